"""An HTTP/1.1 answer read from a blocking socket (RFC 9112).

The standard library's reader puts every head through the parser for mails: a third of a millisecond of the
interpreter's lock for each request. Errors are the standard library's, so callers see one kind.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from http.client import BadStatusLine, HTTPException, IncompleteRead, LineTooLong, RemoteDisconnected

_LINE = 65536
_LINES = 256
_CHUNK = 1 << 20
_BODILESS = (204, 304)
_SMALL = 1 << 18


class Headers:
    """Names and values in their order; names in any case; a name that comes twice is looked up as its first."""

    __slots__ = ("_first", "_items")

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self._items = tuple(items)
        self._first: dict[str, str] = {}
        for name, value in self._items:
            self._first.setdefault(name.lower(), value)

    def get(self, name: str) -> str | None:
        """A value; None if absent."""
        return self._first.get(name.lower())

    def items(self) -> tuple[tuple[str, str], ...]:
        """All, as they came."""
        return self._items


class _Incoming:
    """What comes in on a socket. A small answer is one `recv`; a file object of the standard library costs more."""

    __slots__ = ("_at", "_data", "_link")

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._data = b""
        self._at = 0

    def readline(self, most: int) -> bytes:
        """Up to a newline; what there is where it is longer than `most`, or ends without one."""
        while True:
            end = self._data.find(b"\n", self._at, self._at + most) + 1
            if end or len(self._data) - self._at >= most:
                line = self._data[self._at : end or self._at + most]
                self._at += len(line)
                return line
            more = self._link.recv(_LINE)
            self._data = self._data[self._at :] + more
            self._at = 0
            if not more:
                line, self._data = self._data, b""
                return line

    def readinto(self, view: memoryview) -> int:
        """Some bytes; 0 at the end."""
        held = len(self._data) - self._at
        if not held:
            return self._link.recv_into(view)
        count = min(held, len(view))
        view[:count] = self._data[self._at : self._at + count]
        self._at += count
        return count

    def read(self) -> bytes:
        """All that comes until the end."""
        pieces = [self._data[self._at :]]
        self._data, self._at = b"", 0
        while piece := self._link.recv(_CHUNK):
            pieces.append(piece)
        return b"".join(pieces)


class Reply:
    """The next answer on `link`, its head read. One thread. `status`: the final one, after any 1xx.

    Raises:
        http.client.HTTPException: it is no HTTP/1.x, or broke off. OSError: the connection failed.
    """

    def __init__(self, link: socket.socket, method: str) -> None:
        self._file = _Incoming(link)
        version, self.status = b"", 100
        while self.status < 200:
            version, self.status = self._first_line()
            self.headers = Headers(self._lines())
        get = self.headers.get
        connection = (get("connection") or "").lower()
        self._chunked = "chunked" in (get("transfer-encoding") or "").lower()
        length = get("content-length") or ""
        self._length = int(length) if length.isascii() and length.isdigit() and not self._chunked else None
        if method == "HEAD" or self.status in _BODILESS:
            self._length, self._chunked = 0, False
        endless = self._length is None and not self._chunked
        self.closing = endless or "close" in connection or (version == b"HTTP/1.0" and "keep-alive" not in connection)
        """Nothing more may be asked on this connection."""

    def body(self, check: Callable[[], object]) -> memoryview:
        """All of the body; `check` is called now and then, and may raise. Raises as the constructor."""
        if self._chunked:
            return memoryview(b"".join(self._chunks(check)))
        if self._length is None:
            return memoryview(self._file.read())
        return self._exactly(self._length, check)

    def _exactly(self, size: int, check: Callable[[], object]) -> memoryview:
        data = _room(size)
        done = 0
        while done < size:
            check()
            count = self._file.readinto(data[done : done + _CHUNK])
            if not count:
                raise IncompleteRead(b"", size - done)
            done += count
        return data

    def _chunks(self, check: Callable[[], object]) -> Iterable[memoryview]:
        while True:
            try:
                size = int(self._line().split(b";", 1)[0], 16)
            except ValueError as error:
                raise IncompleteRead(b"") from error
            if size <= 0:
                break
            yield self._exactly(size, check)
            if self._line().strip():
                raise IncompleteRead(b"")
        self._lines()  # trailers

    def _first_line(self) -> tuple[bytes, int]:
        line = self._file.readline(_LINE + 1)
        if not line:
            raise RemoteDisconnected("the connection was closed without an answer")
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise BadStatusLine(repr(line[:80]))
        return version, int(rest[:3])

    def _lines(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        while (line := self._line().decode("latin-1").rstrip("\r\n")) != "":
            if line[0] in " \t" and found:  # folded: goes on
                name, value = found[-1]
                found[-1] = (name, f"{value} {line.strip()}")
                continue
            name, _, value = line.partition(":")
            found.append((name, value.strip()))
            if len(found) > _LINES:
                raise HTTPException(f"more than {_LINES} header lines")
        return found

    def _line(self) -> bytes:
        line = self._file.readline(_LINE + 1)
        if len(line) > _LINE:
            raise LineTooLong("header line")
        if not line.endswith(b"\n"):
            raise IncompleteRead(line)
        return line


def _room(size: int) -> memoryview:
    """`size` bytes, contents arbitrary."""
    if size <= _SMALL:
        return memoryview(bytearray(size))
    # Here, because a command's first request, a listing as a rule, need not wait until NumPy is imported.
    import numpy as np

    return np.empty(size, np.uint8).data  # memory that was never zeroed
