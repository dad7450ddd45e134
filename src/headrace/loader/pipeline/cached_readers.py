"""Threads that read what the cache holds of whole objects, group by group, each into its own memory.

The feeder leaves what is planned; who has nothing to do takes the next group, waits for room itself and reads it. What
is not in the cache is submitted on the way to it, so that all is admitted in the order of the plan.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Protocol, TypeAlias

from headrace.base.errors import HeadraceError
from headrace.base.threads import by_cores
from headrace.cache import Cache
from headrace.fetch import Fetcher, Read
from headrace.loader.pipeline.feeder import Leaf, separate
from headrace.loader.pipeline.slots import Group
from headrace.loader.pipeline.whole_objects import ObjectGroup
from headrace.store.protocol import Blob, ObjectInfo

_LEAST_READERS, _MOST_READERS = 2, 8
"""Bounds of one thread to four cores: each keeps a core busy, mostly in the kernel, where it copies; decoding wants the
other cores, and memory gives no more to more of them.
"""
_JOBS = 2
"""Jobs that wait for a reader: chunks of groups, or reads that go together."""
_LOOK_S = 0.25  # seconds after which it is looked whether all is closed

Job: TypeAlias = "list[ObjectGroup] | tuple[Sequence[Group], list[Read]]"
"""Groups to be read from the cache one by one; or what is not there, and the reads to submit for it."""


class Around(Protocol):
    """What the readers need of the pipeline around them. Any thread."""

    @property
    def closed(self) -> bool:
        """Whether nobody wants anything any more."""
        ...

    def admit(self, groups: Sequence[Group], reads: int) -> bool:
        """Wait until there is room for these groups, and count them. False: closed."""
        ...

    def submit(self, groups: Sequence[Group], reads: list[Read]) -> bool:
        """Admit groups, and have `reads` fetched for them. False: closed."""
        ...

    def arrived(self, read: Read, result: Blob | HeadraceError) -> None:
        """What came of one read."""
        ...

    def filled(self, group: ObjectGroup) -> None:
        """A group has all its bytes."""
        ...

    def fed(self) -> None:
        """All that was planned has been admitted."""
        ...


class Readers:
    """The feeder calls `leave` and `end`, each reader's thread `run`; `bring` and `close` from any."""

    def __init__(self, leaf: Leaf, fetcher: Fetcher, cache: Cache, around: Around) -> None:
        """`leaf`: where all groups are from; `cache`: the fetcher's."""
        self.cache = cache
        self.count = by_cores(1 / 4, _LEAST_READERS, _MOST_READERS)
        """How many threads are to call `run`."""
        self._leaf, self._fetcher, self._around = leaf, fetcher, around
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._free, self._turn = threading.Semaphore(_JOBS), threading.Lock()
        self._next: deque[ObjectGroup] = deque()  # of whoever holds `_turn`

    def leave(self, job: Job) -> bool:
        """To the readers, who take what is planned in its order, and wait for room themselves: so planning is never
        behind, and who gives room back wakes the thread that uses it. False: closed.
        """
        while not self._free.acquire(timeout=_LOOK_S):
            if self._around.closed:
                return False
        self._jobs.put(job)
        return not self._around.closed

    def end(self) -> None:
        """That was all."""
        self._jobs.put(None)

    def close(self) -> None:
        """Let those go that wait for something to do."""
        for _ in range(self.count):
            self._jobs.put(None)

    def run(self) -> None:
        """Read until all is read, or closed."""
        while (group := self._take()) is not None:
            self.bring(group)
            del group  # who has taken a batch gives its bytes back

    def bring(self, group: ObjectGroup) -> None:
        """All of an admitted group from the cache, or what is missing from the store."""
        found = self._fetcher.kept(group.kept.entries)
        whole = [data for data in found if data is not None]
        if len(whole) < len(found):
            self._fetch_rest(group, found)
            return
        group.fill(whole)
        group.fetched_at = time.perf_counter()
        self._around.filled(group)

    def _take(self) -> ObjectGroup | None:
        """What is to be read next; what is not in the cache is submitted on the way to it. None: that was all."""
        around = self._around
        with self._turn:
            while not self._next and (job := self._jobs.get()) is not None and not around.closed:
                self._free.release()
                if isinstance(job, list):
                    self._next.extend(job)
                elif not around.submit(*job):
                    return None
            if self._next and not around.closed:
                group = self._next.popleft()
                return group if around.admit([group], len(group.kept.entries)) else None
            self._jobs.put(None)  # for the others
            around.fed()
        return None

    def _fetch_rest(self, group: ObjectGroup, found: list[memoryview | None]) -> None:
        """Some of it is not in the cache, or no longer."""
        missing: list[Read] = []
        reads = separate(group, self._leaf)
        for read, data in zip(reads, found, strict=True):
            if data is None:
                missing.append(read)
            else:
                self._around.arrived(read, Blob(data, ObjectInfo(read.key, len(data), read.version)))
        group.ticket = ticket = self._fetcher.submit(missing, self._around.arrived)
        if self._around.closed:
            ticket.cancel()
