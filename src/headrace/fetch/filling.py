"""Keeping what was fetched: objects wait here, in memory, for the one thread that writes them into the cache.

Reading comes first. While somebody waits for bytes, so that whatever a write takes is taken from them, the writer works
in bursts (`pace`); what piles up beyond a bound is read without being kept, and the epoch after keeps it. A caller who
wants everything kept insists.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from headrace.base.threads import Crew
from headrace.cache import MOST_TOGETHER, Cache, Fill
from headrace.fetch.pace import Pace

_MOST_CLAIMS = 384  # claims of this process, at most; those that ask again wait until a quarter has ended
_MOST_CLAIMS_WAITING = 128
"""Objects claimed, and of those the ones that wait to be written. The kernel walks all locks of a file to find one."""
_MOST_WAITING = 2048
"""Objects nobody claimed that may wait: each costs a closure and a label, too."""
_MOST_TOGETHER_BYTES = 4 << 20
"""Bytes of whole objects written in one go, besides one more: about what a disk writes while a reader may wait."""
_CLAIM_WAIT_S = 5.0
"""How long claims are waited for, which end as fast as the store answers; then objects are read without being kept."""
_INSIST_S = 60.0
"""The same for the disk, where the caller wants everything kept."""
DRAIN_S = 1.5
"""What the writer gets at the end for what waits: Ctrl-C ends any command within two seconds."""


class Filling:
    """The queue before the cache's disk. Any thread.

    `most`: bytes that may wait to be written. `progress`, `hurried`: as in `Pace`.
    """

    def __init__(self, cache: Cache, most: int, progress: Callable[[], int], hurried: Callable[[], bool]) -> None:
        self._cache = cache
        self._most = most
        # Memory that is held here is fresh memory for the reads.
        self._most_unclaimed = min(most, max(8 << 20, most // 10))
        self._pace = Pace(progress, hurried)
        self._writers = Crew("cache-fill", 1)  # two would mostly fight for the interpreter's lock
        self._whole: deque[Fill] = deque()
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
        """Wait for the right to claim; False when objects should be read without."""
        if self._slow and not (self.insist and self._wait_for(lambda: not self._slow, _INSIST_S)):
            return False
        # Claims end as fast as the store answers, so these are waited for.
        return not self.crowded or self._wait_for(lambda: self._claims < _MOST_CLAIMS * 3 // 4, _CLAIM_WAIT_S)

    @property
    def behind(self) -> bool:
        """Whether as many bytes wait to be written as may."""
        return self._backlog >= self._most

    @property
    def full(self) -> bool:
        """Whether the writer would not find the time for an object that nobody claimed."""
        return self._backlog >= self._most_unclaimed or self._arrived >= _MOST_WAITING

    @property
    def _slow(self) -> bool:
        return self.behind or self._arrived >= _MOST_CLAIMS_WAITING

    def begin(self) -> None:
        """An object was claimed, or is here without: `keep` or `end` follows."""
        with self._changed:
            self._claims += 1

    def keep(self, fill: Fill) -> None:
        """An object is here: it is kept, and its claim, if any, ends, on the writer's thread."""
        self._here(len(fill.data))
        self._whole.append(fill)
        self._writers.add(self._write_whole)

    def end(self, size: int, end_claim: Callable[[], object]) -> None:
        """Something else that was claimed is here, `size` bytes, or has failed: end its claim, on the writer's thread.
        Others wait for it, so nothing comes first.
        """
        self._here(size)

        def write() -> None:
            try:
                end_claim()
            finally:
                self._done(1, size)

        self._writers.add(write)

    def _write_whole(self) -> None:
        """What waits, or as much of it as goes together."""
        fills: list[Fill] = []
        size = 0
        while self._whole and len(fills) < MOST_TOGETHER and size < _MOST_TOGETHER_BYTES:
            fills.append(self._whole.popleft())
            size += len(fills[-1].data)
        if not fills:  # with those before it
            return
        count = len(fills)
        try:
            self._cache.fill_many(fills)
        finally:
            fills.clear()  # their memory is wanted while the writer rests
            idle = self._done(count, size)
        if not idle and not self.insist:
            self._pace.wrote()

    def _here(self, size: int) -> None:
        with self._changed:
            self._backlog += size
            self._arrived += 1

    def _done(self, count: int, size: int) -> bool:
        """They are no longer waited for. Whether nothing is claimed any more."""
        with self._changed:
            self._backlog -= size
            self._claims -= count
            self._arrived -= count
            idle = not self._claims
            if self._waiting:
                self._changed.notify_all()
        if idle:
            self._cache.settle()
        return idle

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing waits to be written; False when `timeout_s` was not enough."""
        return self._wait_for(lambda: self._claims == 0 and self._backlog == 0, timeout_s)

    def drain(self, timeout_s: float) -> bool:
        """Wait until what is here is written; False when `timeout_s` was not enough. What is still to come may come."""
        return self._wait_for(lambda: self._arrived == 0, timeout_s)

    def close(self) -> None:
        """Stop, once what is here is written, or was given the time."""
        self.drain(DRAIN_S)
        self._writers.close(10.0, drop=True)

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(condition, timeout_s)
            finally:
                self._waiting -= 1
