"""The mount that a case of ``benchmarks/why.py`` reads, over a way to the store that is slow as the case says.

A process of its own in the foreground, with a cache folder of its own that is empty at first, and gone with its case.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.store.embedded import EmbeddedS3
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from mount_data import Server
from mount_peers import Headrace, scratch_folder
from why_cases import Way

_PIECE = 16 << 10
_HOST = "127.0.0.1"


def missing() -> str:
    """Why nothing can be mounted here; empty: it can."""
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse here"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "fusermount3 is not installed"
    return ""


@contextmanager
def mounted(server: EmbeddedS3, bucket: str, way: Way, below: Path, warm: str = "") -> Iterator[str]:
    """The folder at which the bucket is mounted. It is slow once it is mounted, and has the files of the folder `warm`
    in its cache; unmounted however this ends.
    """
    scratch = scratch_folder(below)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        port = int(server.endpoint.rpartition(":")[2])
        late = stack.enter_context(FaultServer(Upstream(_HOST, port)))
        port = late.port
        if way.bandwidth:
            narrow = stack.enter_context(Narrow(port))
            port = narrow.port
        endpoint = f"http://{_HOST}:{port}"
        origin = Server(server, bucket, "")
        mount = stack.enter_context(_Mount(origin, bucket, scratch, endpoint=endpoint, given=way.options))
        if warm:
            for path in sorted(Path(mount.folder, warm).iterdir()):
                path.read_bytes()
        if way.bandwidth:
            narrow.bandwidth = way.bandwidth
        if way.latency_s:
            late.plan = Plan([Fault(Kind.LATENCY, delay_s=way.latency_s)])
        yield mount.folder


@dataclass(kw_only=True)
class _Mount(Headrace):
    """The same, to another endpoint, with the options `given`."""

    endpoint: str
    given: str

    def options(self) -> list[str]:
        return ["-o", self.given] if self.given else []

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "AWS_ENDPOINT_URL_S3": self.endpoint}


class Narrow:
    """A TCP relay to a port on loopback: what comes back is let through at `bandwidth` bytes a second, all connections
    together; 0: as it comes. Threads, two for each connection; nothing is left after ``with``.
    """

    def __init__(self, port: int) -> None:
        self.port, self.bandwidth = 0, 0.0
        self._to = port
        self._lock, self._free_at = threading.Lock(), 0.0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        listener = socket.create_server((_HOST, 0), backlog=128)
        self.port = int(listener.getsockname()[1])
        self._sockets.append(listener)
        self._start(self._accept, listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            sockets, threads = [*self._sockets], [*self._threads]
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(10)
        for one in sockets:
            one.close()

    def _start(self, target: Callable[..., None], *given: object) -> None:
        thread = threading.Thread(target=target, args=given, name="headrace-narrow", daemon=True)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection((_HOST, self._to))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, server]
            self._start(self._pump, client, server, False)
            self._start(self._pump, server, client, True)

    def _pump(self, source: socket.socket, to: socket.socket, paced: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                if paced:
                    self._pace(len(piece))
                to.sendall(piece)
        for one in (source, to):  # one side has enough: so has the other
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _pace(self, size: int) -> None:
        if not self.bandwidth:
            return
        with self._lock:
            self._free_at = max(time.monotonic(), self._free_at) + size / self.bandwidth
            until = self._free_at
        time.sleep(max(0.0, until - time.monotonic()))
