"""A shell's end on a node: ``headrace shell`` there, in an actor of Ray's, with a terminal of its own.

What it draws is asked for, what is typed is handed over, each by a call. Who asks no more is gone, and the shell ends.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Final, cast

import headrace
from headrace.base.errors import UnsupportedError
from headrace.base.settings import whole_environment
from headrace.cluster.submission import Reach
from headrace.jobs import Exit, Scratch

_CHUNK: Final = 64 << 10  # bytes read of the terminal at a time
_MOST: Final = 1 << 20
"""Bytes that wait to be asked for; a command that writes more waits."""
_LINGER_S: Final = 0.5
"""After the end of the shell, how long its output may rest before it is taken for complete."""
_SILENT_S: Final = 15.0  # seconds without a question from the caller, after which it is taken to be gone
_GRACE_S: Final = 10.0  # seconds for the shell to end by itself
_WITH_US: Final = ("setpriv", "--pdeathsig", "TERM", "--", "env", "--default-signal")
"""It ends with the actor; and heeds Ctrl-C, which Ray has its workers ignore, and what they start."""


@dataclass(frozen=True, slots=True)
class Size:
    """Of a terminal."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Opened:
    """What is started. `words`: of ``headrace shell``; `size`: of the caller's terminal, None: it has none;
    `variables`: of the caller's terminal, and those that hide all other GPUs.
    """

    version: str
    reach: Reach
    words: tuple[str, ...]
    size: Size | None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Drawn:
    """Bytes for the descriptors 1 and 2; `exit`: how it ended, once there is nothing more."""

    pieces: tuple[tuple[int, bytes], ...] = ()
    exit: Exit | None = None


class ShellThere:
    """It, started. Any thread, as Ray calls. Raises UnsupportedError: the node has another headrace. OSError."""

    def __init__(self, opened: Opened) -> None:
        if opened.version != headrace.__version__:
            hint = "have the same headrace here as on the nodes"
            reason = f"the cluster has headrace {headrace.__version__}, here is {opened.version}"
            raise UnsupportedError(reason, hint=hint)
        self._changed = threading.Condition()
        self._pieces: list[tuple[int, bytes]] = []
        self._held = 0
        self._reading = 0
        self._exit: Exit | None = None
        self._scratch = Scratch()
        opened.reach.write(self._scratch.path)
        environ = {**whole_environment(), **opened.reach.variables, **opened.variables}
        argv = [*_WITH_US, sys.executable, "-P", "-m", "headrace.cli", "shell", *opened.words]
        if opened.size is not None:
            self._terminal, theirs = os.openpty()
            self.resize(opened.size)
            self._process = subprocess.Popen(
                ["setsid", "--ctty", *argv], env=environ, cwd=self._scratch.path, stdin=theirs, stdout=theirs,
                stderr=theirs,
            )  # fmt: skip
            os.close(theirs)
            self._keys, draws = self._terminal, {self._terminal: 1}
        else:
            self._process = subprocess.Popen(
                argv, env=environ, cwd=self._scratch.path, start_new_session=True, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            self._keys = _descriptor(self._process.stdin)
            draws = {_descriptor(self._process.stdout): 1, _descriptor(self._process.stderr): 2}
        self._asked_at = time.monotonic()
        self._reading = len(draws)
        for fd, number in draws.items():
            threading.Thread(target=self._read, args=(fd, number), name="headrace-drawn", daemon=True).start()
        threading.Thread(target=self._watch, name="headrace-shell", daemon=True).start()

    def draw(self, timeout: float) -> Drawn:
        """What it has written, once there is anything, or nothing after `timeout` seconds."""
        self._asked_at = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._exit is not None, timeout)
            pieces = tuple(self._pieces)
            self._pieces.clear()
            self._held = 0
            self._changed.notify_all()
            return Drawn(pieces, self._exit if not pieces else None)

    def type(self, data: bytes) -> None:
        """Keys, one call after the other; none: there come no more."""
        with suppress(OSError):  # it is over
            if not data and self._process.stdin is not None:
                self._process.stdin.close()
            while data:
                data = data[os.write(self._keys, data) :]

    def resize(self, size: Size) -> None:
        """The caller's terminal has another size."""
        with suppress(OSError):
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))

    def end(self) -> None:
        """The shell, and what runs in it; what it had laid out is removed. Waits for that, ten seconds at most."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._scratch.close(kept=False)

    def _read(self, fd: int, number: int) -> None:
        with suppress(OSError):  # EIO: a terminal that nobody holds any more
            while data := os.read(fd, _CHUNK):
                with self._changed:
                    self._pieces.append((number, data))
                    self._held += len(data)
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._held < _MOST)
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()

    def _watch(self) -> None:
        while self._process.poll() is None:
            if time.monotonic() - self._asked_at > _SILENT_S:
                self.end()
                os._exit(0)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        code = self._process.returncode
        with self._changed:  # what it left running in the background may hold its output open for ever
            self._changed.wait_for(lambda: not self._reading, _LINGER_S)
            self._exit = Exit(code) if code >= 0 else Exit(None, -code)
            self._changed.notify_all()


def _descriptor(pipe: IO[bytes] | None) -> int:
    return cast("IO[bytes]", pipe).fileno()
