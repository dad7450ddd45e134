"""One HTTP/1.1 answer: its head, and a body in chunks put together as it comes (RFC 9112 §6.3 and §7.1).

The standard library's reader puts every head through the parser for mails: a third of a millisecond of the
interpreter's lock for each answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from functools import lru_cache

from headrace.store.http1.failures import BrokenResponse

MOST_HEAD = 64 * 1024  # bytes: a head, or a chunk's, that goes on for longer is no HTTP of a store's
PEEK = 2048
"""Bytes in which the head of most answers ends."""
NOT_MODIFIED = 304
"""The status of an answer to a conditional GET that has nothing new."""
_NOTHING = memoryview(b"")
_FOLD = re.compile(rb"\r\n[ \t]+")


class Response:
    """A parsed answer. `body` is filled up to `got` bytes; `length` is None for chunked or until-close answers, until
    they have come.
    """

    __slots__ = ("_lower", "body", "chunked", "closing", "got", "head", "left", "length", "status", "whole")

    def __init__(self, head: bytes, *, bodiless: bool = False) -> None:
        """`bodiless`: it answers a HEAD."""
        if head[:7] != b"HTTP/1." or not head[9:12].isdigit():
            raise BrokenResponse("not an HTTP answer")
        self.status = status = int(head[9:12])
        self.head = head
        self._lower = lower = head.lower()
        self.body = _NOTHING
        self.got = 0
        self.left = 0
        """Bytes of it that are to come behind `body`: see `Connection.more`."""
        at = lower.find(b"\r\ncontent-length:")
        text = b"" if at < 0 else lower[at + 17 :].partition(b"\r\n")[0].strip()
        at = lower.find(b"\r\ntransfer-encoding:")
        self.chunked = at >= 0 and b"chunked" in lower[at + 20 :].partition(b"\r\n")[0]
        self.length = int(text) if text.isdigit() and not self.chunked else None
        if bodiless or status in (204, 304):
            self.length, self.chunked = 0, False
        self.whole = self.length is not None and (status == 200 or status == 206)
        """Whether the body is an object's bytes, and how many they are is known."""
        at = lower.find(b"\r\nconnection:")
        words = b"" if at < 0 else lower[at + 13 :].partition(b"\r\n")[0]
        self.closing = b"close" in words or (head[7:8] == b"0" and b"keep-alive" not in words)
        """Nothing more may be asked on this connection."""

    def header(self, name: str) -> str | None:
        """One header's value, of the first of that name, which is in lower case; None when absent."""
        start = self._lower.find(b"\r\n%b:" % name.encode())
        if start < 0:
            return None
        start += len(name) + 3
        stop = self.head.find(b"\r\n", start)
        while stop >= 0 and self.head[stop + 2 : stop + 3] in (b" ", b"\t"):  # folded: goes on
            stop = self.head.find(b"\r\n", stop + 2)
        value = self.head[start:] if stop < 0 else self.head[start:stop]
        return _FOLD.sub(b" ", value).strip().decode("latin-1")

    def headers(self) -> Iterator[tuple[str, str]]:
        """All names, in lower case, and values, in their order."""
        for line in _FOLD.sub(b" ", self.head).decode("latin-1").split("\r\n")[1:]:
            name, _, value = line.partition(":")
            yield name.lower(), value.strip()

    @property
    def etag(self) -> str | None:
        """The ETag without its quotes (a weak one is kept as it is)."""
        at = self._lower.find(b"\r\netag:")
        if at < 0:
            return None
        etag = self.head[at + 7 :].partition(b"\r\n")[0].strip().decode("latin-1")
        return etag[1:-1] if len(etag) > 1 and etag[0] == etag[-1] == '"' else etag

    @property
    def mtime_us(self) -> int:
        """Last-Modified in microseconds since the epoch, 0 when absent or malformed."""
        return http_time(self.header("last-modified"))

    @property
    def total(self) -> int | None:
        """The whole object's size: from Content-Range of a 206, else Content-Length."""
        ranged = self.header("content-range") if self.status == 206 else None
        if ranged and "/" in ranged and ranged.rpartition("/")[2].isdigit():
            return int(ranged.rpartition("/")[2])
        return self.length


@lru_cache(maxsize=128)
def http_time(text: str | None) -> int:
    """Microseconds since the epoch of an HTTP date; 0 where there is none."""
    try:
        return round(parsedate_to_datetime(text).timestamp() * 1_000_000) if text else 0
    except ValueError:
        return 0


class UntilClosed:
    """A body that ends with its connection, put together as it comes."""

    __slots__ = ("data",)
    ended = False

    def __init__(self) -> None:
        self.data = bytearray()

    def take(self, more: memoryview) -> None:
        """Go on with what has come."""
        self.data += more


class Chunks:
    """A body in chunks, put together as it comes (RFC 9112 §7.1). `ended`: the last chunk and its trailers are here."""

    __slots__ = ("_left", "_line", "_trailers", "data", "ended")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False
        self._left = 0
        """Bytes of the chunk under way that are to come, with the line end behind them."""
        self._line = b""
        self._trailers = False

    def take(self, more: memoryview) -> None:
        """Go on with what has come. Raises `BrokenResponse`."""
        at = 0
        while at < len(more) and not self.ended:
            if self._left:
                count = min(self._left, len(more) - at)
                self.data += more[at : at + count]
                self._left -= count
                at += count
                if not self._left:
                    if not self.data.endswith(b"\r\n"):
                        raise BrokenResponse("a chunk is longer than it says")
                    del self.data[-2:]
                continue
            piece, found, _ = bytes(more[at : at + PEEK]).partition(b"\n")
            at += len(piece) + len(found)
            self._line += piece + found
            if found:
                self._end_of_line()
            elif len(self._line) > MOST_HEAD:
                raise BrokenResponse("endless chunk head")

    def _end_of_line(self) -> None:
        line, self._line = self._line.strip(), b""
        if self._trailers:
            self.ended = not line
            return
        size = line.partition(b";")[0].strip()
        if not size or size.strip(b"0123456789abcdefABCDEF"):
            raise BrokenResponse("a chunk without a length")
        self._left = int(size, 16) + 2 if int(size, 16) else 0
        self._trailers = not self._left
