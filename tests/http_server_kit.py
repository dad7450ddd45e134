"""A server with an application whose paths say what it does, and a client that sends bytes as they are."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.http_server import Address, Exchange, FileSlice, Limits, Response, Server, Stream, Streamed, Whole

PLAIN = [("Content-Type", "text/plain")]


@dataclass
class Rig:
    """An application.

    `/echo` tells what came; `/later` waits in `held` until a test answers it; `/file` sends `file`; `/stream/N` sends N
    pieces of 64 kB; `/up` reads a streamed body; `/slow-up` reads it when `go` is set; `/refuse` answers at the head.
    """

    limit: int | None = None
    file: str = ""
    batches: list[list[str]] = field(default_factory=list)
    held: list[Exchange] = field(default_factory=list)
    released: int = 0
    pulled: int = 0
    closed: int = 0
    go: threading.Event = field(default_factory=threading.Event)
    failed: list[BaseException] = field(default_factory=list)

    def head(self, exchange: Exchange) -> Whole | Streamed | Response:
        if exchange.path == "/refuse":
            return Response(403, PLAIN, b"no")
        if exchange.path in ("/up", "/slow-up", "/early"):
            return Streamed(self._upload)
        if exchange.path == "/bad-head":
            raise RuntimeError("the application fails")
        return Whole(self.limit)

    def arrived(self, exchanges: Sequence[Exchange]) -> None:
        self.batches.append([one.path for one in exchanges])
        for one in exchanges:
            if one.path.startswith("/later"):
                self.held.append(one)
            elif one.path == "/bad":
                raise RuntimeError("the application fails")
            else:
                one.answer(self._answer(one))

    def _answer(self, one: Exchange) -> Response:
        if one.path == "/file":
            fd = os.open(self.file, os.O_RDONLY)
            return Response(200, PLAIN, FileSlice(fd, 0, os.fstat(fd).st_size, lambda: self._release(fd)))
        if one.path == "/longer-file":
            fd = os.open(self.file, os.O_RDONLY)
            return Response(200, PLAIN, FileSlice(fd, 0, os.fstat(fd).st_size + 1, lambda: self._release(fd)))
        if one.path.startswith("/stream/"):
            count = int(one.path.rsplit("/", 1)[1])
            return Response(200, PLAIN, Stream(self._pieces(count), count * 65536 if "known" in one.query else None))
        if one.path == "/short-stream":
            return Response(200, PLAIN, Stream(self._pieces(1), 65537))
        if one.path == "/failing-stream":
            return Response(200, PLAIN, Stream(self._failing()))
        if one.path == "/split":
            return Response(200, [("X", "a\r\nSet-Cookie: b")], b"")
        if one.path == "/nothing":
            return Response(204)
        if one.path == "/pieces":
            return Response(200, PLAIN, [b"one,", memoryview(b"two,"), bytearray(b"three")])
        told = [one.method.encode(), one.target, b"%d" % len(one.body), one.body]
        told += [f"{name}={value}".encode("latin-1") for name, value in one.headers.items()]
        return Response(200, PLAIN, b"|".join(told))

    def _release(self, fd: int) -> None:
        os.close(fd)
        self.released += 1

    def _pieces(self, count: int) -> Iterator[bytes]:
        try:
            for _ in range(count):
                self.pulled += 1
                yield b"x" * 65536
        finally:
            self.closed += 1

    def _failing(self) -> Iterator[bytes]:
        yield b"some"
        raise OSError("the source fails")

    def _upload(self, exchange: Exchange) -> None:
        assert exchange.stream is not None
        if exchange.path == "/early":
            exchange.answer(Response(409, PLAIN, b"enough"))
            return
        if exchange.path == "/slow-up":
            self.go.wait(20)
        try:
            size = sum(len(piece) for piece in exchange.stream)
        except BaseException as error:
            self.failed.append(error)
            raise
        exchange.answer(Response(200, PLAIN, str(size).encode()))


@contextmanager
def serving(rig: Rig | None = None, limits: Limits | None = None) -> Iterator[tuple[Rig, Server]]:
    rig = rig or Rig()
    server = Server(rig, Address(), limits=limits).start()
    try:
        yield rig, server
    finally:
        rig.go.set()
        server.close()


class Client:
    """One connection. `answer` reads one answer: status, headers in lower case, body."""

    def __init__(self, server: Server, timeout: float = 20.0, *, buffer: int = 0) -> None:
        self.sock = socket.socket()
        self.sock.settimeout(timeout)
        if buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.sock.connect((server.address.host, server.address.port))
        self._rest = b""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, path: str, *more: str) -> tuple[int, dict[str, str], bytes]:
        self.send("\r\n".join([f"GET {path} HTTP/1.1", "Host: a", *more, "", ""]).encode())
        return self.answer()

    def _until(self, end: bytes) -> bytes:
        while end not in self._rest:
            data = self.sock.recv(65536)
            if not data:
                raise EOFError(self._rest)
            self._rest += data
        found, _, self._rest = self._rest.partition(end)
        return found

    def _take(self, count: int) -> bytes:
        pieces = [self._rest[:count]]
        self._rest = self._rest[count:]
        have = len(pieces[0])
        while have < count:
            data = self.sock.recv(min(1 << 20, count - have))
            if not data:
                raise EOFError("the body was cut")
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def answer(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        if method == "HEAD" or status in (204, 304) or status < 200:
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._until(b"\r\n"), 16):
                body += self._take(size)
                assert self._take(2) == b"\r\n"
            assert self._take(2) == b"\r\n"
            return status, headers, body
        if "content-length" in headers:
            return status, headers, self._take(int(headers["content-length"]))
        return status, headers, self.rest()

    def rest(self) -> bytes:
        """All until the end."""
        while data := self.sock.recv(1 << 20):
            self._rest += data
        rest, self._rest = self._rest, b""
        return rest

    def ended(self) -> bool:
        """Whether nothing more comes."""
        try:
            return not self._rest and not self.sock.recv(1)
        except ConnectionError:
            return True

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(true: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for what another thread does."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)
