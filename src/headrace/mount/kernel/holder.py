"""The holder of a mount: a small process that holds the kernel's descriptor, so that the mount outlives its server.

``headrace mount --keep`` is one. The kernel ends a mount when the last copy of its descriptor is closed. The holder has
one copy, which it never reads, and starts a server that reads the other. When the server dies, the next one gets the
descriptor, and the kernel sends it again every request that had no answer (Linux 6.9). What else the next server has to
know is in a file: see `node_record`.

Holder and server talk over a socket pair. The holder says what there is, with the descriptor where it has one. The
server hands over the descriptor once it has mounted; then it says that it answers, or which error it met.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from headrace.base.errors import HeadraceError, InternalError
from headrace.mount.kernel import mount_points
from headrace.mount.kernel.startup_errors import error_from_bytes, error_to_bytes

_log = logging.getLogger("headrace.mount")
_LARGEST: Final = 1 << 16  # bytes of a message between holder and server
_QUICK_S: Final = 10.0
"""A server that dies sooner has done nothing worth starting the next at once."""
_MOST: Final = 3
"""Such servers in a row before the mount is given up: programs that use it would wait for ever."""
_PAUSE_S: Final = 0.5  # seconds before the next server, for each that died quickly


@dataclass(frozen=True, slots=True)
class HeldMount:
    """What a server has of its holder.

    `fd`: the kernel's descriptor; -1: the server has to mount. `point`: where it is mounted. `record`: the file for
    `NodeRecord`. `channel`: the socket to the holder.
    """

    fd: int
    point: str
    record: str
    channel: socket.socket

    @staticmethod
    def ask(channel: int) -> HeldMount:
        """By the number of the socket that the holder gave. Raises OSError, ValueError: no holder is there."""
        ours = socket.socket(fileno=channel)
        ours.set_inheritable(False)
        message, fds, _, _ = socket.recv_fds(ours, _LARGEST, 1)
        said = json.loads(message)
        return HeldMount(_own(fds), said["point"], said["record"], ours)

    def hand_over(self, fd: int, point: str) -> None:
        """Say that it is mounted. Raises OSError: the holder is gone."""
        socket.send_fds(self.channel, [_packed({"mounted": point})], [fd])

    def ready(self) -> None:
        """Say that the server answers."""
        with suppress(OSError):
            self.channel.send(_packed({"ready": True}))

    def failed(self, error: BaseException) -> None:
        """Say why the server cannot start."""
        with suppress(OSError):
            self.channel.send(error_to_bytes(error))


class Holder:
    """Starts servers, one after another, until the mount is over. One thread; it takes over the process's signals.

    Args:
        command: the server's; ``--keeper NUMBER`` is added.
        folder: which it is started in.
        record: file for what servers leave to the next one.
    """

    def __init__(self, command: Sequence[str], *, folder: str, record: str) -> None:
        self._command = command
        self._folder = folder
        self._record = record
        self._fd = -1
        self._point = ""
        self._ending = False
        self._server: subprocess.Popen[bytes] | None = None
        self._began = 0.0

    def open(self) -> Holder:
        """Start the first server; returns once it answers. Raises what it met."""
        signal.set_wakeup_fd(-1)  # no two seconds to stop: the server first sends what is not published
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._forward)
        failure = self._begin()
        if failure is not None:
            self._end()
            raise failure
        return self

    def wait(self) -> None:
        """Wait until the mount is over: unmounted, ended by a signal, or given up."""
        quick = 0
        while not self._over():
            quick = quick + 1 if time.monotonic() - self._began < _QUICK_S else 0
            if quick > _MOST:
                _log.error("%s: given up, since %d servers have died one after another", self._point, quick)
                break
            if quick > 1 and self._pause(_PAUSE_S * quick):
                break
            failure = self._begin()
            if failure is not None:
                _log.error("%s: the next server: %s", self._point, failure)
        self._end()

    def _over(self) -> bool:
        """Wait for the server's end; whether the mount has ended, too."""
        assert self._server is not None
        code = self._server.wait()
        if code == 0 or self._ending or self._pause(0):
            return True
        _log.warning("%s: its server has ended with %d; the next one goes on", self._point, code)
        return False

    def _begin(self) -> HeadraceError | None:
        """Start a server, and wait until it answers; None, or the error that it met."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._began = time.monotonic()
        with ours:
            with theirs:
                self._server = subprocess.Popen(
                    [*self._command, "--keeper", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    cwd=self._folder,
                    start_new_session=True,  # Ctrl-C reaches the holder, which signals the server once
                )
            with suppress(BrokenPipeError):
                said = _packed({"point": self._point, "record": self._record})
                socket.send_fds(ours, [said], [self._fd] if self._fd >= 0 else [])
            return self._hear(ours)

    def _hear(self, channel: socket.socket) -> HeadraceError | None:
        while True:
            with suppress(ConnectionResetError):
                message, fds, _, _ = socket.recv_fds(channel, _LARGEST, 1)
                said: Any = json.loads(message) if message else None
                if isinstance(said, dict) and "mounted" in said:
                    self._fd, self._point = _own(fds), said["mounted"]
                    continue
                if isinstance(said, dict):
                    return None
                if message:
                    return error_from_bytes(message)
            return InternalError("the mount's server ended before it answered")

    def _pause(self, seconds: float) -> bool:
        """Wait, at most until the mount is over. Whether it is."""
        watch = select.poll()
        watch.register(self._fd, 0)  # an error is reported in any case: the mount is gone
        return bool(watch.poll(seconds * 1000)) or self._ending

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._ending = self._ending or number != signal.SIGHUP
        if self._server is not None and self._server.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._server.pid, number)

    def _end(self) -> None:
        """Unmount, where the last server has not."""
        if self._fd >= 0:
            if not self._pause(0) or self._ending:
                with suppress(HeadraceError):
                    mount_points.unmount(self._point, lazy=True)
            os.close(self._fd)
        with suppress(OSError):
            os.unlink(self._record)


def _own(fds: Sequence[int]) -> int:
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds[0] if fds else -1


def _packed(said: dict[str, Any]) -> bytes:
    return json.dumps(said).encode()
