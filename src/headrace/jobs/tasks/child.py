"""One task's run, led by a process of its own, because a runner owns the signals of its process.

Leader and child have a socket between them: over it go the `TaskOrder`, then, at its end, the `Report`. Its end tells
the child that the leader is gone.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import BinaryIO

from headrace.jobs.spec import JobSpec


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """What is to be run. `run`: its id; `base`: folder from where the code is seen; `recorded`: id of the run whose
    tree is laid out instead; `parent`: as `Job` has it.
    """

    spec: JobSpec
    run: str
    base: str
    recorded: str | None
    parent: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Report:
    """How it ended. `left`: files that are not in the bucket; `recorded`: there is such a run."""

    state: str
    reason: str = ""
    left: int = 0
    recorded: bool = True


class Child:
    """The process. One thread. `mark`: stands before each line that it writes; None: it writes to where we do.

    Raises OSError: it cannot be started.
    """

    def __init__(self, program: Sequence[str], order: TaskOrder, mark: str | None) -> None:
        self._line, theirs = socket.socketpair()
        pipe = None if mark is None else subprocess.PIPE
        with theirs:
            self._process = subprocess.Popen(
                [*program, str(theirs.fileno())], pass_fds=(theirs.fileno(),), start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe,
            )  # fmt: skip
        self.pidfd = os.pidfd_open(self._process.pid)
        streams = ((1, self._process.stdout), (2, self._process.stderr))
        self._readers = [
            threading.Thread(target=_pass_on, args=(stream, fd, f"{mark} | ".encode()), daemon=True)
            for fd, stream in streams
            if stream is not None
        ]
        for reader in self._readers:
            reader.start()
        with suppress(BrokenPipeError):
            self._line.sendall(pickle.dumps(order))

    def signal(self, number: int) -> None:
        """No error when it is over."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> Report:
        """How it ended; waits until it has. Without a word: as `lost`."""
        code = self._process.wait()
        self._line.setblocking(False)
        told = b""
        with suppress(OSError):
            told = self._line.recv(1 << 16)
        self._line.close()
        os.close(self.pidfd)
        for reader in self._readers:
            reader.join(1.0)  # what it has left running may hold its output open
        with suppress(ValueError, TypeError):
            return Report(**json.loads(told))
        return Report("lost", f"its runner ended with {code}")


def serve(fd: int, work: Callable[[TaskOrder], Report]) -> None:
    """The child's side: hear what is to be run, run it, and tell how it ended. Main thread.

    When the leader is gone, this process gets SIGTERM, which ends its run with all the grace that it has.
    """
    os.set_inheritable(fd, False)
    line = socket.socket(fileno=fd)
    order: TaskOrder = pickle.load(line.makefile("rb"))  # noqa: S301  # of the process that started this one
    threading.Thread(target=_watch, args=(line,), daemon=True).start()
    try:
        report = work(order)
    except KeyboardInterrupt:  # before the runner was there to heed it
        report = Report("stopped", "SIGINT", recorded=False)
    with suppress(OSError):
        line.sendall(json.dumps(asdict(report)).encode())


def _watch(line: socket.socket) -> None:
    with suppress(OSError):
        line.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _pass_on(stream: BinaryIO, fd: int, mark: bytes) -> None:
    with stream:
        for line in stream:
            whole = mark + line if line.endswith(b"\n") else mark + line + b"\n"
            with suppress(OSError):  # nobody looks any more: the task goes on
                view = memoryview(whole)
                while view:
                    view = view[os.write(fd, view) :]
