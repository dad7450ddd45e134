"""The two bounds of a cache, bytes held and bytes left free on the disk, and making room within them."""

from __future__ import annotations

import os
import time

from headrace.cache.evict import Evictor
from headrace.cache.inventory import count_entries
from headrace.cache.names import Layout
from headrace.cache.usage import Count, Usage, fresh

RECOUNT_S = 6 * 3600.0
"""Age at which a count is made anew before it may cause evictions: kills let it drift upward."""
_RECOUNT_PAUSE_S = 60.0
"""Least time between two counts that a fruitless eviction asks for."""
_PATIENCE_S = 1.0
"""How long nothing more is tried after nothing could be freed: all is pinned, or others have filled the disk."""
_MOST_SLACK = 256_000_000


class Room:
    """Reserves bytes before they are written, so the limit is never overshot. Any thread; never waits for others.

    `limit`, `min_free`: bytes, as in `CacheSettings`.
    """

    def __init__(self, layout: Layout, usage: Usage, evictor: Evictor, limit: int, min_free: int) -> None:
        self._layout = layout
        self._usage = usage
        self._evictor = evictor
        self.limit = limit
        self.min_free = min_free
        self._barren_until = 0.0
        self._recounted = -_RECOUNT_PAUSE_S

    def take(self, size: int, entries: int = 1) -> bool:
        """Reserve; evict where that is needed. False: there is no room, or others are busy making some.

        Raises:
            OSError: the disk fails.
        """
        if size > self.limit:
            return False
        for _ in range(4):
            try:
                short = self._short(size, entries)
            except BlockingIOError:
                return False
            if short == 0:
                return True
            if short is None:
                if self.recount() is None:
                    return False
            elif not self.make(short):
                return False
        return False

    def give(self, size: int, entries: int = 1) -> None:
        """Return what was reserved and not used."""
        self._usage.add(-entries, -size)

    def make(self, size: int) -> bool:
        """Evict `size` bytes and some slack. False when nothing could be evicted, or another process is at it.

        Raises:
            OSError: the disk fails.
        """
        if time.monotonic() < self._barren_until:
            return False
        count = self._usage.read()
        if count is not None and time.time() - count.counted_at > RECOUNT_S and self.recount() is not None:
            return True
        held = count.bytes if count is not None else 0
        goal = size + min(held // 64, _MOST_SLACK)  # some more, so that the next ones need not evict again
        freed = self._evictor.free(goal)
        if freed is None:
            return False
        if freed < goal and time.monotonic() - self._recounted > _RECOUNT_PAUSE_S:
            return self.recount() is not None  # all that could go went: perhaps the count was wrong
        if freed == 0:
            self._barren_until = time.monotonic() + _PATIENCE_S
        return freed > 0

    def recount(self) -> Count | None:
        """Count what is there, a few seconds a million entries. None when another process is evicting or counting.

        Raises:
            OSError: the folders cannot be read.
        """
        if not self._evictor.lock.acquire(patient=False):
            return None
        try:
            before = self._usage.read()
            self._recounted = time.monotonic()
            return self._usage.set(fresh(*count_entries(self._layout)), since=before)
        except BlockingIOError:
            return None
        finally:
            self._evictor.lock.release()

    def free(self) -> int:
        """Bytes that the disk still has for us. Raises OSError."""
        disk = os.statvfs(self._layout.root)
        return disk.f_bavail * disk.f_frsize

    def _short(self, size: int, entries: int) -> int | None:
        lacking = self.min_free + size - self.free()
        return lacking if lacking > 0 else self._usage.reserve(entries, size, self.limit)
