"""What decode threads spend their time on: computing, waiting for a core, for the interpreter's lock, or for others.

Each thread looks at itself: at most every 50 ms it runs a group with two clocks of its own beside the one on the wall,
the CPU that it used (``CLOCK_THREAD_CPUTIME_ID``) and for how long it could run and no core was free (the second number
of ``/proc/thread-self/schedstat``, `sched-stats.rst` of the kernel's documentation). What is left of the wall's time it
stood still. Whether for the interpreter's lock, a probe tells: the thread gives the lock away after the group, and
takes it again; where another thread computes with it, that takes up to the interpreter's switch interval (5 ms).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headrace.catalog import Stage
from headrace.loader.pipeline.run_stages import Call

_EVERY_S: Final = 0.05
"""Seconds between groups that are looked at, of one thread: to look costs system calls."""
_LATE_S: Final = 0.5e-3
"""To take the lock again: longer than two threads that hold it for moments need."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of threads: by the clock on the wall, of CPU, and ready to run while no core was free."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    queued_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall_s + other.wall_s, self.cpu_s + other.cpu_s, self.queued_s + other.queued_s)

    def scaled(self, factor: float) -> Spent:
        """So many times as much of everything."""
        return Spent(self.wall_s * factor, self.cpu_s * factor, self.queued_s * factor)


@dataclass(frozen=True, slots=True)
class Effort:
    """Of the decode threads of one epoch so far, and its worker processes.

    `threads`: all of them, `processes` of which are worker processes. `spent`: on groups, all of them; its `wall_s` is
    measured, the rest inferred from the groups that were looked at. `asked`, `late`: how often the interpreter's lock
    was asked for by the probe, and came late. `stages`: the same as `spent` for each stage, by its name.
    """

    threads: int = 0
    spent: Spent = Spent()
    asked: int = 0
    late: int = 0
    stages: Mapping[str, Spent] = field(default_factory=dict[str, Spent])
    mean_threads: float = 0.0
    """Of the time so far, where `threads` changed."""
    found: str = ""
    """How many threads were found best, and what was tried; empty: somebody said how many."""
    processes: int = 0

    def __add__(self, other: Effort) -> Effort:
        stages = dict(self.stages)
        for name, spent in other.stages.items():
            stages[name] = stages.get(name, Spent()) + spent
        return Effort(
            self.threads + other.threads, self.spent + other.spent, self.asked + other.asked, self.late + other.late,
            stages, self.mean_threads + other.mean_threads, self.found or other.found, self.processes + other.processes,
        )  # fmt: skip

    @staticmethod
    def of(watches: Iterable[Watch]) -> Effort:
        """Of one epoch's threads together. Any thread."""
        kept = list(watches)
        busy, seen, stages = sum(one.busy_s for one in kept), Spent(), dict[str, Spent]()
        for one in kept:
            seen += one.seen
            for name, spent in list(one.stages.items()):
                stages[name] = stages.get(name, Spent()) + spent
        factor = busy / seen.wall_s if seen.wall_s else 0.0
        return Effort(
            len(kept), Spent(busy, seen.cpu_s * factor, seen.queued_s * factor), sum(one.asked for one in kept),
            sum(one.late for one in kept), {name: spent.scaled(factor) for name, spent in stages.items()},
        )  # fmt: skip


class _Now(NamedTuple):
    """A thread's three clocks, in seconds."""

    wall: float
    cpu: float
    queued: float


class Watch:
    """One decode thread. Written by that thread, read by any. The thread calls `close` when it ends."""

    def __init__(self) -> None:
        self.busy_s = 0.0
        self.samples = 0
        self.seen = Spent()
        self.asked = self.late = 0
        self.stages: dict[str, Spent] = {}
        self._due = self._away_s = 0.0
        self._schedstat = -1

    def away(self, seconds: float) -> None:
        """So long, in this group, the thread only waited for a worker process, which has a watch of its own."""
        self._away_s += seconds

    def run(self, work: Callable[[Call | None], None]) -> None:
        """One group. `work` is told how to call its stages, if they are to be looked at. Raises what it does."""
        began, self._away_s = time.perf_counter(), 0.0
        if began < self._due:
            work(None)
            self.busy_s += time.perf_counter() - began - self._away_s
            return
        if self._schedstat < 0:
            self._schedstat = _open_schedstat()
        before = self._now()
        work(self._call)
        after = self._now()
        self.busy_s += after.wall - began - self._away_s
        self.seen += _between(before, after) + Spent(-self._away_s)
        self._probe(after)

    def close(self) -> None:
        """By the thread itself, at its end."""
        if self._schedstat >= 0:
            os.close(self._schedstat)
            self._schedstat = -1

    def _call(self, stage: Stage, sample: Any) -> Any:
        before = self._now()
        try:
            return stage.function(sample)
        finally:
            self.stages[stage.name] = self.stages.get(stage.name, Spent()) + _between(before, self._now())

    def _now(self) -> _Now:
        queued = 0.0
        if self._schedstat >= 0:
            with suppress(OSError, ValueError, IndexError):
                queued = int(os.pread(self._schedstat, 64, 0).split()[1]) * 1e-9
        return _Now(time.perf_counter(), time.thread_time(), queued)

    def _probe(self, before: _Now) -> None:
        time.sleep(0)  # gives the lock away, and takes it again
        after = self._now()
        waited = _between(before, after)
        self.asked += 1
        self.late += waited.wall_s - waited.queued_s > _LATE_S
        self._due = after.wall + _EVERY_S


def _between(before: _Now, after: _Now) -> Spent:
    return Spent(*(late - early for early, late in zip(before, after, strict=True)))


def _open_schedstat() -> int:
    """A descriptor that tells of this thread; -1: this kernel does not tell."""
    try:
        return os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
