"""Where attempts of a job run: a backend starts one, and the runner waits for it. Here is the one of this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from signal import SIGKILL
from typing import Final, Protocol

from headrace.base.errors import HeadraceError
from headrace.jobs.folder import RunFolder
from headrace.jobs.job import Job
from headrace.jobs.process import Exit, Process
from headrace.jobs.resources import MemoryWatch
from headrace.jobs.resuming import resume
from headrace.tracking.runs import Run

_MEMORY_S: Final = 1.0
"""How often the memory of a job that may have so much is looked at."""


class Sinks(Protocol):
    """Where what a command writes goes. Any thread."""

    def output(self, stream: str, data: bytes) -> None:
        """Bytes as they came. Raises BrokenPipeError: who looked at it has gone."""
        ...

    def lines(self, rank: int, stream: str, lines: bytes) -> None:
        """Whole lines of one process of a gang."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """What an attempt is made of, and what it tells.

    `number`: counts from 1; `run`: as the bucket has it; `runs`: whose newest checkpoint it goes on from, the first
    that has one. `sinks`: where what it writes goes; `settle`: waits until what was recorded so far is in the bucket,
    False: it is not; `tell`: gets what there is to say; `watch`: the process whose machine is measured; `waits`: why it
    does not begin yet; `stopped`: whether it need not begin any more; `begins`: called before the command is started,
    signals are for it from then on.
    """

    number: int
    job: Job
    run: Run
    folder: RunFolder
    runs: Iterable[Run]
    sinks: Sinks
    settle: Callable[[], bool]
    tell: Callable[[str], None]
    watch: Callable[[int], None]
    waits: Callable[[str], None]
    stopped: Callable[[], bool]
    begins: Callable[[], None]


class Attempt(Protocol):
    """What was started. One thread, but for `signal`."""

    @property
    def failure(self) -> str:
        """Why it was ended by who started it, in words; empty: it was not."""
        ...

    @property
    def lost(self) -> bool:
        """Whether it ended because a machine is gone, by no fault of the job."""
        ...

    @property
    def left(self) -> tuple[str, ...]:
        """Names of files on other machines that are not in the bucket. Once it is closed."""
        ...

    def wait(self, timeout: float, wake: int) -> Exit | None:
        """Until it ends, or `timeout` seconds are over, or the descriptor `wake` can be read: then None."""
        ...

    def signal(self, number: int) -> None:
        """To the command and all it has started. No error when it is over."""
        ...

    def close(self, *, kill: bool) -> None:
        """All of its output was passed on. After its end. `kill`: what it has left running ends too."""
        ...


class Backend(Protocol):
    """Where attempts run."""

    @property
    def here(self) -> bool:
        """Whether on this machine, whose figures are the run's then."""
        ...

    def start(self, start: Start) -> Attempt | None:
        """Waits until there is what the job asks for. None: it was to stop before, and nothing was started.

        Raises NotFoundError: no such command or folder; DeniedError: it cannot be executed. Any HeadraceError.
        """
        ...


class LocalBackend:
    """Processes of this machine."""

    here = True

    def start(self, start: Start) -> Attempt | None:
        """As `Backend.start`."""

        def waits(why: str) -> None:
            start.waits(why)
            start.tell(f"waits: {why}")

        return _LocalAttempt(start) if start.job.allot(waits, start.stopped) else None


class _LocalAttempt:
    def __init__(self, start: Start) -> None:
        resumed = resume(start.runs, start.folder.at("resume", str(start.number)), start.tell)
        invocation = start.job.invocation(start.folder, start.number, resumed)
        self._prepared, self._tell = start.job.prepared, start.tell
        start.begins()
        self._process = Process(invocation, start.sinks.output)
        limit = invocation.limits.memory
        self._memory = MemoryWatch(self._process.pid, limit) if limit else None
        self.failure = ""
        start.watch(self._process.pid)

    @property
    def lost(self) -> bool:
        return False

    @property
    def left(self) -> tuple[str, ...]:
        return ()

    def wait(self, timeout: float, wake: int) -> Exit | None:
        until = time.monotonic() + timeout
        if self._memory is None:
            return self._process.wait(timeout, wake)
        ended = self._process.wait(min(_MEMORY_S, max(0.0, until - time.monotonic())), wake)
        if ended is None and not self.failure and (told := self._memory.over()):
            self.failure = told
            self._tell(f"{told}: SIGKILL")
            self.signal(SIGKILL)
        return ended

    def signal(self, number: int) -> None:
        try:
            self._prepared.send(number, self._process.signal)
        except HeadraceError as error:  # an engine that does not answer
            self._tell(str(error))
            self._process.signal(number)

    def close(self, *, kill: bool) -> None:
        if kill:
            self._process.signal(SIGKILL)
        self._process.close()
        try:
            self._prepared.stop()
        except HeadraceError as error:
            self._tell(str(error))
