"""Several processes that answer on one address. Each is started afresh, never forked, and is started again if it dies.

A child holds one end of a socket: what it is to do comes by it, and its end says that the parent has gone.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headrace.base.errors import HeadraceError, InputError, InternalError
from headrace.http_server.address import Address, listen
from headrace.http_server.application import Application
from headrace.http_server.limits import Limits
from headrace.http_server.server import Server

_log = logging.getLogger("headrace.http")
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[3]); "
    "from headrace.http_server.processes import child_main; child_main(int(sys.argv[1]), int(sys.argv[2]))"
)
_AGAIN_S, _LONGEST_S = 0.5, 30.0
"""A child that died is started again after that, twice as long each time it happens within `_LONGEST_S`."""
_READY_S = 60.0
"""A child that has not said that it listens by then never will."""
_BETWEEN = 20_000
"""New objects between two collections: what a request makes is gone with it, and hardly ever in a cycle."""


@dataclass(frozen=True)
class _Work:
    make: Callable[[], Application]
    address: Address
    limits: Limits


class _Child:
    def __init__(self, listener: socket.socket, payload: bytes) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (theirs.fileno(), listener.fileno())
            self.process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *map(str, fds), json.dumps(sys.path)],
                pass_fds=fds, start_new_session=True,
            )  # fmt: skip
        self.line = ours
        self.began = time.monotonic()
        with contextlib.suppress(OSError):
            ours.sendall(len(payload).to_bytes(8, "big") + payload)

    def ready(self) -> None:
        """Wait until it answers. Raises what it failed with."""
        self.line.settimeout(_READY_S)
        try:
            said = self.line.makefile("rb").readline()
        except OSError:
            said = b""
        finally:
            with contextlib.suppress(OSError):
                self.line.settimeout(None)
        if said == b"ready\n":
            return
        self.end(0)
        if not said:
            raise InternalError("a server's process ended before it answered", hint="its last words are on stderr")
        raise InputError(json.loads(said))

    def ask(self, seconds: float) -> None:
        """Have it drain."""
        with contextlib.suppress(OSError):
            self.line.sendall(f"{seconds}\n".encode())

    def end(self, seconds: float) -> bool:
        """Wait so long, then kill it; whether that was not needed."""
        try:
            self.process.wait(seconds)
            drained = self.process.returncode == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            drained = False
        self.line.close()
        return drained


class Processes:
    """`count` processes, each with a `Server` of its own, among which the kernel spreads connections.

    Args:
        make: makes the application, in each process: a function of a module, or a `functools.partial` of one.
        address, limits: as of `Server`.

    Raises:
        InputError: the address cannot be listened on; `make` cannot be sent to another process; it failed there.
    """

    def __init__(
        self, make: Callable[[], Application], address: Address | None = None, *, count: int,
        limits: Limits | None = None,
    ) -> None:  # fmt: skip
        if count < 1:
            raise InputError(f"{count} processes cannot answer")
        self._listeners, self.address = listen(address or Address(), count)
        try:
            self._payload = pickle.dumps(_Work(make, self.address, limits or Limits()))
        except Exception as error:
            self._close_listeners()
            raise InputError(f"the application cannot be made in another process: {error}") from error
        self._children: list[_Child] = []
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="headrace-http-processes", daemon=True)

    @property
    def pids(self) -> list[int]:
        """Of those that answer now."""
        return [child.process.pid for child in self._children]

    def start(self) -> Self:
        """Start all, and wait until each answers."""
        try:
            for listener in self._listeners:
                self._children.append(_Child(listener, self._payload))
            for child in self._children:
                child.ready()
        except BaseException:
            self.close()
            raise
        self._watcher.start()
        return self

    def wait(self, seconds: float | None = None) -> bool:
        """Until `drain` or `close` is called elsewhere, at most so long; whether it has been."""
        return self._ending.wait(seconds)

    def serve(self) -> None:
        """Until `drain` or `close` is called elsewhere, or an exception comes here."""
        self.start()
        try:
            self.wait()
        finally:
            self.close()

    def drain(self, seconds: float = 10.0) -> bool:
        """As `Server.drain`, all at once; whether every request under way was answered."""
        self._stop_watching()
        for child in self._children:
            child.ask(seconds)
        deadline = time.monotonic() + seconds + 2.0
        drained = [child.end(max(0.1, deadline - time.monotonic())) for child in self._children]
        self._children.clear()
        self._close_listeners()
        return all(drained)

    def close(self) -> None:
        """End now. Idempotent."""
        self.drain(0.0)

    def _stop_watching(self) -> None:
        self._ending.set()
        if self._watcher.is_alive():
            self._watcher.join()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        if self.address.unix:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address.unix)

    def _watch(self) -> None:
        pauses = [_AGAIN_S] * len(self._children)
        while not self._ending.wait(0.2):
            for index, child in enumerate(self._children):
                if child.process.poll() is None:
                    continue
                lasted = time.monotonic() - child.began > _LONGEST_S
                pauses[index] = _AGAIN_S if lasted else min(_LONGEST_S, pauses[index] * 2)
                _log.warning("a server's process ended (%s); it is started again", child.process.returncode)
                child.line.close()
                if self._ending.wait(pauses[index]):
                    return
                self._children[index] = _Child(self._listeners[index], self._payload)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def child_main(line_fd: int, listener_fd: int) -> None:
    """A child's life. Ends with 0 when all under way was answered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line, listener = socket.socket(fileno=line_fd), socket.socket(fileno=listener_fd)
    listener.setblocking(False)
    with line, line.makefile("rb") as orders:
        size = int.from_bytes(orders.read(8), "big")
        work: _Work = pickle.loads(orders.read(size))  # noqa: S301 (our parent's)
        try:
            application = work.make()
        except HeadraceError as error:
            line.sendall(json.dumps(str(error)).encode() + b"\n")
            sys.exit(1)
        gc.collect()
        gc.freeze()  # all of this lives as long as we do: no collection need walk it
        gc.set_threshold(_BETWEEN, 20, 20)
        server = Server(application, work.address, limits=work.limits, listener=listener).start()

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        threading.Thread(target=_hang_up, args=(server, line), name="headrace-http-end", daemon=True).start()
        seconds = 1.0
        try:
            line.sendall(b"ready\n")
            said = orders.readline()  # empty: our parent has gone
            seconds = float(said) if said else seconds
        except (KeyboardInterrupt, OSError):
            pass
        drained = server.drain(seconds)
        close = getattr(application, "close", None)
        if close is not None:
            close()
    sys.exit(0 if drained else 1)


def _hang_up(server: Server, line: socket.socket) -> None:
    """A loop that failed ends its process: the parent starts another."""
    server.wait()
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RD)
