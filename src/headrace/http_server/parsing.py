"""Bytes of a connection into requests: httptools' parser, and what it lets pass that may not.

httptools (llhttp) refuses by itself: Content-Length with Transfer-Encoding, several or odd Content-Lengths, lines
without CR, folded headers, spaces before a colon, control bytes, chunk sizes that are not plain hexadecimal, codings
that do not end in ``chunked``. Refused here: other codings before ``chunked``, any coding in HTTP/1.0, other versions,
a missing or second Host, CONNECT, and whatever is above the limits. With an offer of another protocol llhttp leaves the
body to that; here the offer is declined, and the body read.
"""

from __future__ import annotations

from typing import Any, Protocol

import httptools

from headrace.http_server.limits import Limits
from headrace.http_server.messages import Headers

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"))


class Refused(Exception):  # noqa: N818
    """A request that is not taken; the connection ends with the answer."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Ended(Exception):  # noqa: N818
    """Raised by a sink: what follows is not looked at."""


class Head:
    """A request's head. `length`: of the body; 0 without one, None in chunks."""

    __slots__ = ("close", "expects", "headers", "length", "method", "old", "target")

    def __init__(
        self, method: str, target: bytes, headers: Headers, length: int | None, *, old: bool, close: bool, expects: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.length = length
        self.old = old
        self.close = close
        self.expects = expects


class Sink(Protocol):
    """Who is told, in order. Any of these may raise `Refused`."""

    def on_request(self, head: Head) -> None:
        """A head is complete."""

    def on_piece(self, data: bytes) -> None:
        """Bytes of the body."""

    def on_end(self) -> None:
        """The request is complete."""


class RequestParser:
    """One connection's. After `Refused`, or once `ended`, nothing more may be fed.

    Attributes:
        begun: a request has begun and is not complete. ended: the last request asked for the connection's end.
    """

    __slots__ = (
        "_close", "_complete", "_head", "_headers", "_hosts", "_in_head", "_length", "_limits", "_offered", "_parser",
        "_sink", "_special", "_touched", "_unfinished", "_url", "begun", "ended",
    )  # fmt: skip

    def __init__(self, sink: Sink, limits: Limits) -> None:
        self._sink = sink
        self._limits = limits
        self._parser: Any = httptools.HttpRequestParser(self)
        self._unfinished = 0
        self._touched = False
        self.begun = False
        self.ended = False
        self._start()

    def _start(self) -> None:
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._head = 0
        self._in_head = True
        self._hosts = 0
        self._length: int | None = 0
        self._special: dict[bytes, bytes] = {}
        self._offered = False
        self._close = False

    def feed(self, data: memoryview) -> None:
        """Parse; the sink is told meanwhile.

        Raises:
            Refused: what came is no request that may be answered. Requests before it have been told.
        """
        while data and not self.ended:
            self._touched = False
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:  # another protocol was offered: it is declined
                data = data[upgrade.args[0] :]
                self._decline()
                continue
            except httptools.HttpParserCallbackError as error:
                if isinstance(error.__context__, Ended):
                    self.ended = True
                    return
                raise error.__context__ or error from None
            except httptools.HttpParserInvalidMethodError:
                raise Refused(501, "the method is not known") from None
            except httptools.HttpParserError as error:
                if self.ended:  # what follows a last request is nobody's
                    return
                raise Refused(400, str(error)) from None
            break
        self._unfinished = 0 if self._touched else self._unfinished + len(data)
        if self._unfinished > self._limits.head:
            raise self._too_long()

    def _too_long(self) -> Refused:
        """The same whether what is too long was seen whole, or piece by piece: then a trailer looks like a chunk's."""
        if self._in_head:
            return Refused(431, "the head is too long")
        return Refused(400, "a chunk's head, or a trailer, is too long")

    def _decline(self) -> None:
        """An offer of another protocol ends the parser, which takes no body with it: another one reads that."""
        self._parser = httptools.HttpRequestParser(self)
        if self._offered:
            size = b"Transfer-Encoding: chunked" if self._length is None else b"Content-Length: %d" % self._length
            self._parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n\r\n" % size)
            self._offered = False

    def close(self) -> None:
        """Let go of what refers to each other."""
        self._parser = None

    # httptools calls these

    def on_message_begin(self) -> None:
        self.begun = True

    def on_url(self, url: bytes) -> None:
        self._touched = True
        self._url += url
        self._head += len(url)
        if self._head > self._limits.head:
            raise Refused(414, "the target is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._touched = True
        self._head += len(name) + len(value) + 4
        if self._head > self._limits.head:
            raise self._too_long()
        if not self._in_head:
            return  # a trailer: nothing of ours reads any
        name, value = name.lower(), value.rstrip(b" \t")
        headers = self._headers
        headers.append((name, value))
        if len(headers) > self._limits.headers:
            raise Refused(431, "too many headers")
        if name == b"host":
            self._hosts += 1
        elif name in _SPECIAL:
            self._special[name] = self._special[name] + b"," + value if name in self._special else value

    def on_headers_complete(self) -> None:
        self._touched = True
        if self._offered:  # `_decline` asks for the body
            return
        parser = self._parser
        method, version = parser.get_method().decode(), parser.get_http_version()
        old, expects = version == "1.0", False
        if version != "1.1" and not old:
            raise Refused(505, "HTTP/1.1 and 1.0 are spoken here")
        if method not in _METHODS:
            raise Refused(501, "the method is not known")
        if self._hosts != 1 and not (old and self._hosts == 0):
            raise Refused(400, "one Host is needed")
        close = old
        if self._special:
            close, expects = self._specially(old)
        self._close = close
        self._in_head = False
        self._offered = self._length != 0 and parser.should_upgrade()
        head = Head(method, self._url, Headers(self._headers), self._length, old=old, close=close, expects=expects)
        self._sink.on_request(head)

    def _specially(self, old: bool) -> tuple[bool, bool]:
        special, expects = self._special, False
        coding = special.get(b"transfer-encoding")
        if coding is not None:
            if old or coding.lower() != b"chunked":
                raise Refused(400 if old else 501, "the only coding is chunked, in HTTP/1.1")
            self._length = None
        if b"content-length" in special:
            self._length = int(special[b"content-length"])
        expected = special.get(b"expect")
        if expected is not None:
            if expected.lower() != b"100-continue":
                raise Refused(417, "the only expectation is 100-continue")
            expects = not old
        tokens = [token.strip() for token in special.get(b"connection", b"").lower().split(b",")]
        return b"close" in tokens or (old and b"keep-alive" not in tokens), expects

    def on_body(self, data: bytes) -> None:
        self._touched = True
        self._sink.on_piece(data)

    def on_message_complete(self) -> None:
        self._touched = True
        if self._offered:
            return
        self.begun = False
        self.ended = self._close
        self._sink.on_end()
        self._start()
        if self.ended:
            raise Ended


_SPECIAL = frozenset((b"connection", b"content-length", b"expect", b"transfer-encoding"))

