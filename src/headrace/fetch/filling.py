"""Keeping what was fetched: objects wait here, in memory, for the one thread that writes them into the cache.

Reading comes first. While somebody waits for bytes, so that whatever a write takes is taken from them, the writer works
in bursts (`pace`); what piles up beyond a bound is read without being kept, and the epoch after keeps it. A caller who
wants everything kept insists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.cache import Cache
from headrace.fetch.pace import Pace
from headrace.fetch.threads import Workers

_WRITERS = 1  # two would mostly fight for the interpreter's lock
_MOST_CLAIMS = 384
_MOST_CLAIMS_WAITING = 128
"""Objects claimed, and of those the ones that wait to be written. The kernel walks all locks of a file to find one."""
_MOST_WAITING, _MOST_WAITING_BYTES = 2048, 24 << 20
"""Objects nobody claimed that may wait, and their bytes: memory that is held here is fresh memory for the reads."""
_CLAIM_WAIT_S = 5.0
_INSIST_S = 60.0
_DRAIN_S = 1.5


class Filling:
    """The queue before the cache's disk. Any thread.

    `most`: bytes that may wait to be written. `progress`, `hurried`: as in `Pace`.
    """

    def __init__(self, cache: Cache, most: int, progress: Callable[[], int], hurried: Callable[[], bool]) -> None:
        self._cache = cache
        self._most = most
        self._pace = Pace(progress, hurried)
        self._writers = Workers("cache-fill", _WRITERS)
        self._backlog = 0
        self._claims = 0
        self._arrived = 0
        self._waiting = 0
        self._changed = threading.Condition()
        self.insist = False

    def __len__(self) -> int:
        return self._claims

    @property
    def crowded(self) -> bool:
        """Whether no more claims should be made just now."""
        return self._claims >= _MOST_CLAIMS

    def wait(self) -> bool:
        """Wait for the right to claim; False when objects should be read without: see `offer`."""
        if self._slow and not (self.insist and self._wait_for(lambda: not self._slow, _INSIST_S)):
            return False
        # Claims end as fast as the store answers, so these are waited for.
        return not self.crowded or self._wait_for(lambda: self._claims < _MOST_CLAIMS * 3 // 4, _CLAIM_WAIT_S)

    @property
    def behind(self) -> bool:
        """Whether as many bytes wait to be written as may."""
        return self._backlog >= self._most

    @property
    def _slow(self) -> bool:
        return self.behind or self._arrived >= _MOST_CLAIMS_WAITING

    def begin(self) -> None:
        """An object was claimed."""
        with self._changed:
            self._claims += 1

    def end(self, size: int, end_claim: Callable[[], object], *, paced: bool = True) -> None:
        """It is here, `size` bytes, or failed: end its claim, on the writer's thread. `paced`: reading comes first."""
        with self._changed:
            self._backlog += size
            self._arrived += 1

        def write() -> None:
            try:
                end_claim()
            finally:
                with self._changed:
                    self._backlog -= size
                    self._claims -= 1
                    self._arrived -= 1
                    idle = not self._claims
                    if self._waiting:
                        self._changed.notify_all()
                if idle:
                    self._cache.settle()
                elif paced and not self.insist:
                    self._pace.wrote()

        self._writers.add(write)

    def offer(self, size: int, fill: Callable[[], object]) -> bool:
        """An object that nobody claimed is here: `fill` keeps it, if the writer finds the time. False: it does not."""
        if self._backlog >= min(self._most, _MOST_WAITING_BYTES) or self._arrived >= _MOST_WAITING:
            return False
        self.begin()
        self.end(size, fill)
        return True

    def add(self, task: Callable[[], None]) -> None:
        """Do something else on the writer's thread."""
        self._writers.add(task)

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be written; False when `timeout_s` was not enough."""
        return self._wait_for(lambda: self._claims == 0 and self._backlog == 0, timeout_s)

    def drain(self, timeout_s: float) -> bool:
        """Wait until what is here is written; False when `timeout_s` was not enough. What is still to come may come."""
        return self._wait_for(lambda: self._arrived == 0, timeout_s)

    def close(self) -> None:
        """Stop, once what is here is written, or was given the time."""
        self.drain(_DRAIN_S)
        self._writers.close(timeout=10.0)

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(condition, timeout_s)
            finally:
                self._waiting -= 1
