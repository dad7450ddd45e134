"""The two bounds of a cache, bytes held and bytes left free on the disk, and making room within them."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

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
_MOST_SLACK_BYTES = 256_000_000
"""Evicted at once beyond what is needed, at most: it may be wanted again."""
_STEP = 32 << 20
"""Most bytes reserved ahead, where a caller says that more will follow: a reservation takes six system calls."""


@dataclass(slots=True)
class Ahead:
    """Reserved in one step: bytes left of it and used of it, entries not counted yet, and the count it is part of."""

    left: int = 0
    used: int = 0
    entries: int = 0
    counted_at: float = 0.0


class Reservations:
    """Reserves bytes before they are written, so the limit is not overshot. Any thread; never waits for others.

    A count made anew may miss what is published or removed at that moment: so much it may be too much for a while, and
    the next count evicts it.

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
        self._ahead = Ahead()
        self._ahead_lock = threading.Lock()

    def take(self, size: int, entries: int = 1, *, ahead: bool = False) -> bool:
        """Reserve; evict where that is needed. False: there is no room, or others are busy making some.

        `ahead`: reserve more than this, if there is plenty, for those that follow; `settle` gives back what is left.

        Raises:
            OSError: the disk fails.
        """
        if not ahead:
            return self._take(size, entries)
        with self._ahead_lock:
            if self._ahead.left < size:
                self._settle()
                got = self._step(size)
                if not got:
                    return False
                count = self._usage.read()
                self._ahead = Ahead(left=got, counted_at=count.counted_at if count else 0.0)
            self._ahead.left -= size
            self._ahead.used += size
            self._ahead.entries += entries
            return True

    def settle(self) -> None:
        """Give back what was reserved ahead and not used."""
        with self._ahead_lock, suppress(OSError):
            self._settle()

    def after_fork(self) -> None:
        """In a forked child: what was reserved ahead stays the parent's."""
        self._ahead = Ahead()
        self._ahead_lock = threading.Lock()

    def _step(self, size: int) -> int:
        more = min(_STEP, self.limit // 64)
        try:
            if self._short(size + more, 0) == 0:
                return size + more
        except BlockingIOError:
            return 0
        return size if self._take(size, 0) else 0

    def _settle(self) -> None:
        ahead, self._ahead = self._ahead, Ahead()
        if not ahead.left and not ahead.used:
            return
        count = self._usage.read()
        if count is not None and count.counted_at == ahead.counted_at:
            self._usage.add(ahead.entries, -ahead.left)
        else:  # counted anew meanwhile, without the reservation: rather too much than too little
            self._usage.add(0, ahead.used)

    def _take(self, size: int, entries: int) -> bool:
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
        with self._ahead_lock:
            ahead = self._ahead
            if ahead.used >= size and ahead.entries >= entries:  # of that which is not counted yet
                ahead.left += size
                ahead.used -= size
                ahead.entries -= entries
                return
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
        goal = size + min(held // 64, _MOST_SLACK_BYTES)  # some more, so that the next ones need not evict again
        freed = self._evictor.free(goal)
        if freed is None:
            return False
        if freed < goal and time.monotonic() - self._recounted > _RECOUNT_PAUSE_S:
            return self.recount() is not None  # all that could go went: perhaps the count was wrong
        if freed == 0:
            self._barren_until = time.monotonic() + _PATIENCE_S
        return freed > 0

    def relieve(self) -> bool:
        """Evict what the disk lacks of `min_free`; whether it lacked any. Raises OSError: the disk fails."""
        lacking = self.min_free - self.free()
        if lacking > 0:
            self.make(lacking)
        return lacking > 0

    def recount(self) -> Count | None:
        """Count what is there, a few seconds a million entries, and evict what is over the limit.

        None when another process is evicting or counting.

        Raises:
            OSError: the folders cannot be read.
        """
        if not self._evictor.lock.acquire(patient=False):
            return None
        try:
            before = self._usage.read()
            self._recounted = time.monotonic()
            count = self._usage.set(fresh(*count_entries(self._layout)), since=before)
        except BlockingIOError:
            return None
        finally:
            self._evictor.lock.release()
        if count.bytes > self.limit and self._evictor.free(count.bytes - self.limit):
            return self._usage.read()
        return count

    def free(self) -> int:
        """Bytes that the disk still has for us. Raises OSError."""
        disk = os.statvfs(self._layout.root)
        return disk.f_bavail * disk.f_frsize

    def _short(self, size: int, entries: int) -> int | None:
        lacking = self.min_free + size - self.free()
        return lacking if lacking > 0 else self._usage.reserve(entries, size, self.limit)
