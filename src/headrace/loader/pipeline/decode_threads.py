"""Decode threads of one epoch: as many as somebody asked for, or as many as gain something.

The first ones are one to a core. More are tried as long as samples wait for them: a decoder that waits for something
else than a core wants many, one that holds the interpreter's lock none. `headrace.base.level` judges by the samples
that are done. Threads that gained nothing stay, and wait.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from headrace.base.level import Level
from headrace.base.threads import cores
from headrace.loader.pipeline.collector import InTurn
from headrace.loader.pipeline.decode_effort import Effort, Watch

_MOST = 64
"""Threads that are tried at most: with a decoder that waits 20 ms, 3,000 samples a second."""
_FIRST = -1
"""Before every job."""


class DecodeThreads:
    """Threads that take jobs, the one with the lowest number first. Jobs from any thread.

    Args:
        count: threads; None: found while they run.
        work: does a job, on its thread; returns how many samples that were.
        begin: has a function run on one more thread, of that name.
    """

    def __init__(
        self, count: int | None, work: Callable[[Watch, Any], int], begin: Callable[[str, Callable[[], None]], None]
    ) -> None:
        self.jobs: InTurn[Any] = InTurn()
        self._work, self._begin = work, begin
        self._level = Level(_MOST, cores()) if count is None else None
        self._limit = cores() if count is None else count
        self.watches = [Watch() for _ in range(self._limit)]
        self._changed = threading.Condition(threading.Lock())
        self._active = 0
        self._closed = False
        self._began = self._since = time.perf_counter()
        self._room_s = 0.0

    @property
    def threads(self) -> list[tuple[str, Callable[[], None]]]:
        """The first ones, by name."""
        return [self._named(number) for number in range(len(self.watches))]

    def close(self) -> None:
        """Let all of them go. Any thread, as often as one likes."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for _ in self.watches:
            self.jobs.put(_FIRST, None)

    def forget(self) -> None:
        """Let go of the jobs."""
        self.jobs.clear()
        for _ in self.watches:
            self.jobs.put(_FIRST, None)  # for a thread that comes back from a user's function yet

    def effort(self) -> Effort:
        """What they have spent so far."""
        spent, now = Effort.of(self.watches), time.perf_counter()
        mean = (self._room_s + self._limit * (now - self._since)) / max(now - self._began, 1e-9)
        return replace(spent, threads=self._limit, mean_threads=mean, found=self._found())

    def _found(self) -> str:
        if self._level is None or not self.watches:
            return ""
        told = f"{self._limit} of at most {_MOST}, found while running"
        if self._level.undone is None:
            return told
        tried, gain = self._level.undone
        return f"{told}: {tried} decoded {abs(gain):.0%} {'more' if gain >= 0 else 'less'}"

    def _named(self, number: int) -> tuple[str, Callable[[], None]]:
        return f"decode-{number}", lambda: self._run(number)

    def _run(self, number: int) -> None:
        watch = self.watches[number]
        with closing(watch):
            while self._is_wanted(number):
                job = self.jobs.get()
                if job is None or self._closed:
                    return
                self._do(watch, job)
                del job  # who has taken a batch gives its bytes back

    def _is_wanted(self, number: int) -> bool:
        """Wait until so many threads are. False: closed."""
        if number >= self._limit:
            with self._changed:
                while number >= self._limit and not self._closed:
                    self._changed.wait()
        return not self._closed

    def _do(self, watch: Watch, job: Any) -> None:
        level = self._level
        if level is None:
            self._work(watch, job)
            return
        with self._changed:
            self._active += 1
        done = self._work(watch, job)
        with self._changed:
            level.work += done
            level.answers += 1
            level.tick(time.monotonic(), active=self._active, waiting=self.jobs.qsize() > 0)
            self._active -= 1
            wanted = level.limit
            if wanted == self._limit:
                return
            more = self._change(wanted)
        for number in more:
            self._begin(*self._named(number))

    def _change(self, limit: int) -> range:
        """To so many threads, with the lock held. Returns the numbers of those that have to be begun."""
        now = time.perf_counter()
        self._room_s += self._limit * (now - self._since)
        self._since, self._limit = now, limit
        self._changed.notify_all()
        before = len(self.watches)
        self.watches += [Watch() for _ in range(limit - before)]
        return range(before, len(self.watches))
