"""Which entries go when room is needed: approximately the least recently used.

The time of use is a file's modification time, moved at most once in ten minutes. Shards are sampled from a random start
until a thousand entries are seen, and the oldest quarter of those goes, oldest first; a cache of fewer entries is
sorted whole, so there the order is exact. Pinned names stay. Whoever reads a whole entry holds it open, and an unlinked
file stays readable; a block entry in use is locked, and skipped.
"""

from __future__ import annotations

import os
import random
import shutil
import uuid
from collections.abc import Iterator

from headrace.base.metrics import Metrics
from headrace.cache.entry import Seals
from headrace.cache.inventory import names_in, partial_charge
from headrace.cache.locks import FileLock, try_flock, unlock_and_close
from headrace.cache.names import SHARDS, Layout, charge_of, size_of
from headrace.cache.usage import Usage

SAMPLE = 1024
"""Entries of which the oldest quarter goes: to sort all of a million would take a second."""
_BATCH = 32
"""Victims between two updates of the count: after a kill it may say this many entries too many, never too few."""


class Evictor:
    """Removes entries. Any thread; one evictor works at a time on one cache, others are told so at once."""

    def __init__(self, layout: Layout, usage: Usage, seals: Seals, metrics: Metrics) -> None:
        """Raises OSError when the lock file can be neither opened nor created."""
        self._layout = layout
        self._usage = usage
        self._seals = seals
        self._metrics = metrics
        self.lock = FileLock(layout.evict_lock)

    def free(self, goal: int) -> int | None:
        """Remove entries until at least `goal` bytes are gone. Returns the bytes gone; None when another is at it.

        Raises:
            OSError: the folders cannot be read.
        """
        if not self.lock.acquire(patient=False):
            return None
        try:
            return self._free(goal)
        finally:
            self.lock.release()

    def remove(self, name: str, *, spare_pinned: bool = True) -> int:
        """Remove one entry in whatever form it is there. Returns its bytes; 0 when absent, pinned, or in use."""
        if spare_pinned and os.path.exists(self._layout.pin(name)):
            return 0
        freed = self._remove_whole(name)
        if freed:
            self._usage.add(-1, -freed)
            self._metrics.add("cache.evicted")
        return freed + self.remove_partial(name)

    def remove_partial(self, name: str) -> int:
        """Remove a block entry that nobody uses. Returns its bytes."""
        freed = self._remove_partial(name)
        if freed:
            self._usage.add(-1, -freed)
            self._metrics.add("cache.evicted")
        return freed

    def _free(self, goal: int) -> int:
        freed = 0
        pending = [0, 0]
        try:
            for name in self._victims():
                if freed >= goal:
                    break
                size = self._remove_whole(name) or self._remove_partial(name)
                if not size:
                    continue
                freed += size
                pending[0] += 1
                pending[1] += size
                self._metrics.add("cache.evicted")
                if pending[0] == _BATCH:
                    self._usage.add(-pending[0], -pending[1])
                    pending = [0, 0]
        finally:
            self._usage.add(-pending[0], -pending[1])
        return freed

    def _victims(self) -> Iterator[str]:
        start = random.randrange(len(SHARDS))
        ring = iter(SHARDS[start:] + SHARDS[:start])
        sample: list[tuple[float, str]] = []
        for shard in ring:
            sample += self._aged(shard)
            if len(sample) >= SAMPLE:
                sample.sort()
                oldest, sample = sample[: len(sample) // 4], []
                yield from self._unpinned(oldest)
        sample.sort()
        yield from self._unpinned(sample)

    def _aged(self, shard: str) -> Iterator[tuple[float, str]]:
        for folder, inner in ((self._layout.objects, ""), (self._layout.blocks, "/data")):
            for name in names_in(folder, shard):
                try:
                    yield os.stat(f"{folder}{shard}/{name[2:]}{inner}").st_mtime, name
                except FileNotFoundError:
                    continue

    def _unpinned(self, sample: list[tuple[float, str]]) -> Iterator[str]:
        for _, name in sample:
            if not os.path.exists(self._layout.pin(name)):
                yield name

    def _remove_whole(self, name: str) -> int:
        try:
            os.unlink(self._layout.entry(name))
        except FileNotFoundError:
            return 0
        self._seals.drop(name)
        return charge_of(size_of(name))

    def _remove_partial(self, name: str) -> int:
        folder = self._layout.partial(name)
        try:
            data = os.open(f"{folder}/data", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            if not _exclusive(data):
                return 0
            size = partial_charge(self._layout, name)
            # Moved aside in one step, so that nobody ever sees the data without its map or a map without its data.
            aside = f"{self._layout.claims}gone-{uuid.uuid4().hex}"
            os.rename(folder, aside)
        except FileNotFoundError:
            return 0
        finally:
            unlock_and_close(data)
        shutil.rmtree(aside, ignore_errors=True)
        return size


def _exclusive(fd: int) -> bool:
    try:
        return try_flock(fd)
    except OSError:  # no locks here: those who have it open keep reading what they have
        return True
