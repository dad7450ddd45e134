"""Where a `headrace.testing.http.FaultServer` takes its good answers from: a server behind it, a dict, or a folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.testing.messages import Incoming, Message, answer, s3_error

_RANGE = re.compile(r"bytes=(\d*)-(\d*)\Z")


class Session(Protocol):
    """One client connection's view of an origin; used by one thread."""

    def answer(self, request: Message) -> Message: ...

    def close(self) -> None: ...


class Origin(Protocol):
    """Gives each client connection its session. Any thread may ask."""

    def session(self) -> Session: ...


@dataclass(frozen=True, slots=True)
class Upstream:
    """Another HTTP/1.1 server, reached by one connection for each client connection."""

    host: str
    port: int
    timeout_s: float = 60.0

    def session(self) -> Session:
        return _Relay(self)


class _Relay:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._sock: socket.socket | None = None
        self._stream: io.BufferedReader | None = None

    def answer(self, request: Message) -> Message:
        """Pass it on; once more on a new connection when the kept one had gone stale."""
        stale = self._sock is not None
        try:
            return self._once(request)
        except OSError:
            self.close()
            if not stale:
                return s3_error(502, "Bad Gateway", "UpstreamFailed")
            return self._once(request)

    def _once(self, request: Message) -> Message:
        if self._sock is None or self._stream is None:
            self._sock = socket.create_connection((self._upstream.host, self._upstream.port), self._upstream.timeout_s)
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._sock.makefile("rb")
        self._sock.sendall(request.head() + request.body)
        incoming = Incoming(self._stream)
        head = incoming.head()
        while head is not None and 100 <= head.status < 200:
            head = incoming.head()
        if head is None:
            raise ConnectionError("the server closed the connection")
        if request.method == "HEAD" or head.status in (204, 304):
            return head
        reply = incoming.body(head, until_close=True)
        framed = head.get("content-length") is not None or head.get("transfer-encoding") is not None
        if not framed or (head.get("connection") or "").lower() == "close":
            self.close()
        return reply.without("connection")

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._sock is not None:
            self._sock.close()
        self._sock = self._stream = None


@dataclass(frozen=True, slots=True)
class Objects:
    """A dict of bytes: GET and HEAD with ranges, ETags (MD5) and If-Match; the path is the key."""

    content: Mapping[str, bytes]

    def session(self) -> Session:
        return _Served(self.content.get)


@dataclass(frozen=True, slots=True)
class Tree:
    """A folder's files, read at each request; nothing above the folder is served."""

    folder: Path

    def session(self) -> Session:
        return _Served(self._read)

    def _read(self, key: str) -> bytes | None:
        path = (self.folder / key).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            return None
        with contextlib.suppress(OSError):
            return path.read_bytes()
        return None


def etag_of(data: bytes) -> str:
    """The ETag that `Objects` and `Tree` answer for these bytes, without quotes."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class _Served:
    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read

    def answer(self, request: Message) -> Message:
        if request.method not in ("GET", "HEAD"):
            return s3_error(405, "Method Not Allowed", "MethodNotAllowed")
        data = self._read(request.path)
        if data is None:
            return s3_error(404, "Not Found", "NoSuchKey")
        tag = f'"{etag_of(data)}"'
        wanted = request.get("if-match")
        if wanted is not None and wanted.strip('"') != tag.strip('"'):
            return s3_error(412, "Precondition Failed", "PreconditionFailed")
        headers = {"ETag": tag, "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT", "Accept-Ranges": "bytes"}
        text = request.get("range")
        if text is None:
            return answer(200, "OK", {**headers, "Content-Type": "application/octet-stream"}, data)
        span = _span(text, len(data))
        if span is None:
            return s3_error(416, "Range Not Satisfiable", "InvalidRange")
        start, stop = span
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return answer(206, "Partial Content", headers, data[start:stop])

    def close(self) -> None:
        """Nothing to close."""


def _span(text: str, size: int) -> tuple[int, int] | None:
    """The bytes [start, stop) that a Range header asks of an object of `size`; None: not satisfiable."""
    match = _RANGE.match(text.strip())
    if match is None or not (match[1] or match[2]):
        return 0, size
    if not match[1]:
        start, stop = max(0, size - int(match[2])), size
    else:
        start, stop = int(match[1]), min(size, int(match[2]) + 1) if match[2] else size
    return (start, stop) if start < stop else None
