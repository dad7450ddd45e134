"""One process of a job on this machine: started, listened to, signalled, waited for.

Where headrace stands at a terminal the command gets one too, so that it draws and asks as if started by hand; else it
gets pipes.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import DeniedError, InputError, NotFoundError
from headrace.jobs.environment.described import Invocation
from headrace.jobs.terminal import Terminal

Output = Callable[[str, bytes], None]
"""Told the stream (``stdout`` or ``stderr``) and bytes as they came, from one thread a stream. Raises BrokenPipeError:
nobody listens any more, and the command is to learn of it."""
_CHUNK: Final = 64 << 10  # bytes: a pipe's own size on Linux
_LINGER_S = 0.2
"""After the end of the command, how long its output may rest before it is taken for complete: what it left running in
the background may hold it open for ever."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How it ended: a code, or the signal that killed it."""

    code: int | None
    signal: int | None = None

    @property
    def status(self) -> int:
        """As a shell tells it: 128 and the signal's number."""
        return self.code if self.code is not None else 128 + (self.signal or 0)

    @property
    def succeeded(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        with suppress(ValueError):
            return signal.Signals(self.signal).name
        return f"signal {self.signal}"


class Process:
    """A command that was started. One thread, but for `signal`.

    Args:
        invocation: what is started.
        output: gets what it writes.

    Raises:
        NotFoundError: no such command or folder; DeniedError: it cannot be executed. InputError: there is none.
    """

    def __init__(self, invocation: Invocation, output: Output) -> None:
        check_startable(invocation)
        self._output = output
        self._ended = threading.Event()
        self._terminal = Terminal.like_ours()
        held, reads = self._ends()
        if self._terminal is not None and self._terminal.controls:
            launcher, session = ["setsid", "--ctty"], False  # of util-linux, on every Debian and Ubuntu
        else:
            launcher, session = [], True
        if invocation.limits.cpus is not None:
            launcher = ["taskset", "--cpu-list", ",".join(map(str, invocation.limits.cpus)), *launcher]
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [*launcher, *invocation.argv], env=dict(invocation.environment), cwd=invocation.folder,
                start_new_session=session, stdin=held[0], stdout=held[1], stderr=held[2],
            )  # fmt: skip
        finally:
            for fd in {fd for fd in held if fd is not None}:
                os.close(fd)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._guard = _Guard(self._process.pid)
        self._readers = [threading.Thread(target=self._read, args=one, daemon=True) for one in reads]
        for reader in self._readers:
            reader.start()
        if self._terminal is not None:
            self._terminal.enter()

    @property
    def pid(self) -> int:
        """Of the command itself."""
        return self._process.pid

    def wait(self, timeout: float, wake: int) -> Exit | None:
        """Until it ends, or `timeout` seconds are over, or the descriptor `wake` can be read: then None."""
        ready, _, _ = select.select([self._pidfd, wake], [], [], max(0.0, timeout))
        if self._pidfd not in ready:
            return None
        code = self._process.wait()
        self._ended.set()
        return Exit(code) if code >= 0 else Exit(None, -code)

    def signal(self, number: int) -> None:
        """To the command and all it has started. No error when it is over."""
        with suppress(ProcessLookupError, PermissionError):
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:  # it has no group of its own yet, or all of it is over
                if not self._ended.is_set():
                    os.kill(self._process.pid, number)

    def close(self) -> None:
        """All of its output was passed on, and its terminal is given back. After its end."""
        self._ended.set()
        for reader in self._readers:
            reader.join()
        if self._terminal is not None:
            self._terminal.leave()
        self._guard.release()
        os.close(self._pidfd)

    def _ends(self) -> tuple[list[int | None], list[tuple[int, str]]]:
        """Descriptors for the command, and those to read from with their streams."""
        terminal = self._terminal
        held: list[int | None] = [None, None, None]
        reads: list[tuple[int, str]] = []
        if terminal is not None:
            reads.append((terminal.ours, "stdout"))
        for number, stream in ((1, "stdout"), (2, "stderr")):
            if terminal is not None and terminal.has[number]:
                held[number] = os.dup(terminal.theirs)
            else:
                fd, held[number] = os.pipe()
                reads.append((fd, stream))
        if terminal is not None:
            if terminal.has[0]:
                held[0] = os.dup(terminal.theirs)
            terminal.hand_over()
        return held, reads

    def _read(self, fd: int, stream: str) -> None:
        with suppress(OSError):  # EIO: a terminal that nobody holds any more
            while True:
                ended = self._ended.is_set()  # before the look: what was written until then is there to be seen
                ready, _, _ = select.select([fd], [], [], _LINGER_S)
                if not ready:
                    if ended:
                        break
                    continue
                data = os.read(fd, _CHUNK)
                if not data:
                    break
                self._output(stream, data)
        os.close(fd)


class _Guard:
    """A shell that waits beside the command: if its runner is killed, the command and all in its group end too.

    Without that the command would work on with nobody to record it, and hold what it holds.
    """

    _SCRIPT = 'read -r word || { kill -TERM "-$0"; sleep "$1"; kill -KILL "-$0"; } 2> /dev/null'
    _GRACE_S = "10"

    def __init__(self, pid: int) -> None:
        self._process = subprocess.Popen(
            ["sh", "-c", self._SCRIPT, str(pid), self._GRACE_S],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    def release(self) -> None:
        """The command is over."""
        with suppress(BrokenPipeError):
            self._process.communicate(b"over\n", timeout=5.0)


def check_startable(invocation: Invocation) -> None:
    """Look for the command as a shell does, so that who starts it for us need not tell of it.

    Raises InputError, NotFoundError, DeniedError.
    """
    if not invocation.argv or not invocation.argv[0]:
        raise InputError("there is no command", hint="headrace run -- python train.py")
    if not os.path.isdir(invocation.folder):
        raise NotFoundError("there is no such folder to run in", path=invocation.folder)
    name = invocation.argv[0]
    path = os.path.join(invocation.folder, name) if "/" in name else None
    if path is not None and not os.path.exists(path):
        raise NotFoundError("there is no such command", path=name, hint="is it spelled right, and in the tree?")
    if path is not None and not (os.access(path, os.X_OK) and os.path.isfile(path)):
        raise DeniedError("cannot be executed", path=name, hint=f"chmod +x {name}, or run it by its interpreter")
    if path is None and shutil.which(name, path=invocation.environment.get("PATH", os.defpath)) is None:
        raise NotFoundError("there is no such command", path=name, hint="is it spelled right, and in PATH?")
