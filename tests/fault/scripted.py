"""A real TCP server whose answers a test scripts byte by byte, and a store that reads from it over the wire."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from headrace.base.errors import (
    CredentialsError,
    DeniedError,
    HeadraceError,
    NotFoundError,
    SlowDownError,
    TryAgainError,
)
from headrace.store.protocol import Blob, Capabilities, Endpoint, Folder, ObjectInfo, Store, Wire

Answer = Callable[[socket.socket, str, int], None]
"""Writes the answer to request number n for a path onto the connection. Return normally to keep it alive."""


class ScriptedServer:
    """Listens on a free loopback port until closed."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[str] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        buffered = b""
        with contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in buffered:
                    data = connection.recv(65536)
                    if not data:
                        return
                    buffered += data
                head, _, buffered = buffered.partition(b"\r\n\r\n")
                with self._lock:
                    number = len(self.requests)
                    self.requests.append(head.decode())
                self.answer(connection, head.split(b" ")[1].decode(), number)

    def close(self) -> None:
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def ok(body: bytes, etag: str = "v1", extra: str = "") -> bytes:
    return f'HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nETag: "{etag}"\r\n{extra}\r\n'.encode() + body


def reset(connection: socket.socket) -> None:
    """Close with RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class _Wire:
    ranges = False

    def __init__(self, port: int) -> None:
        self.endpoint = Endpoint("127.0.0.1", port)
        self.refreshed = 0

    def request(self, key: str, start: int, stop: int | None, if_match: str | None) -> bytes:
        ranged = "" if start == 0 and stop is None else f"Range: bytes={start}-{'' if stop is None else stop - 1}\r\n"
        return f"GET /{key} HTTP/1.1\r\nHost: t\r\n{ranged}\r\n".encode()

    def error(self, key: str, status: int, body: bytes) -> HeadraceError:
        kinds = {404: NotFoundError, 401: DeniedError, 403: CredentialsError, 503: SlowDownError}
        return kinds.get(status, TryAgainError)(f"answered {status}: {body[:80].decode(errors='replace')}")

    def refresh(self) -> bool:
        self.refreshed += 1
        return True


class WireStore(Store):
    """Reads only, over the wire only."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.wired = _Wire(port)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def wire(self) -> Wire:
        return self.wired

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        raise AssertionError("reads go over the wire")

    def head(self, key: str) -> ObjectInfo:
        raise NotImplementedError

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        raise NotImplementedError

    def list_folder(self, prefix: str = "") -> Folder:
        raise NotImplementedError

    def put(
        self,
        key: str,
        data: bytes | bytearray | memoryview,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        raise NotImplementedError

    def copy(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete(self, keys: Sequence[str]) -> None:
        raise NotImplementedError


Start = Callable[[Answer], tuple[ScriptedServer, WireStore]]
"""The fixture `start`: begins a server of these answers, which ends with the test, and a store of it."""
