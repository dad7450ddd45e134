"""Reading complete entries: the hot path of every epoch but the first."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.cache import batch_io
from headrace.cache.boot import boot_time
from headrace.cache.entries import Entries
from headrace.cache.entry import Seals, checksum_of_file, read_into
from headrace.cache.health import Health
from headrace.cache.names import Layout, size_of
from headrace.cache.seen import Seen

TOUCH_S = 600.0
"""A use moves an entry's time of use only when that is older than this: the resolution of the LRU order."""
_READ = os.O_RDONLY | os.O_CLOEXEC


class Reader:
    """Opens and reads complete entries. Any thread, any process.

    `remove` is called with the name of an entry whose bytes are not what its name says.
    """

    def __init__(
        self, layout: Layout, health: Health, seals: Seals, metrics: Metrics, remove: Callable[[str], None]
    ) -> None:
        self._layout = layout
        self._objects = layout.objects
        self._health = health
        self._seals = seals
        self._metrics = metrics
        self._remove = remove
        self._boot = boot_time()
        self._seen = Seen()

    def read(self, name: str) -> memoryview | None:
        """As `Cache.read`. Written out in one piece, since this is what a warm sample costs."""
        if not self._health.reading:
            return None
        try:
            fd = os.open(f"{self._objects}{name[:2]}/{name[2:]}", _READ)
        except FileNotFoundError:
            self._metrics.add("cache.miss")
            return None
        except OSError as error:
            return self.failed(error)
        try:
            stat = os.fstat(fd)
            size = stat.st_size
            if size != int(name[33:], 16):
                return self._damaged(name)
            if (stat.st_ctime < self._boot or time.time() - stat.st_mtime > TOUCH_S) and not self._used(name, fd, stat):
                return None
            data = take(size)
            if os.readv(fd, (data,)) != size and not read_into(fd, data, 0):
                return self._damaged(name)
        except OSError as error:
            return self.failed(error)
        finally:
            os.close(fd)
        self._metrics.add("cache.hit")
        self._metrics.add("cache.bytes_read", size)
        return data

    def read_many(self, entries: Entries) -> list[memoryview | None]:
        """As `Cache.read_many`."""
        if len(entries) < 2 or not self._health.reading:
            return self._read_singly(entries)
        found: list[memoryview | None] = []
        for start in range(0, len(entries), batch_io.MOST):
            some = entries[start : start + batch_io.MOST]
            try:
                found += self._read_together(some)
            except OSError:  # by itself, each says what is the matter
                found += self._read_singly(some)
        return found

    def _read_singly(self, entries: Entries) -> list[memoryview | None]:
        return [self.read(entries.name(at)) for at in range(len(entries))]

    def _read_together(self, entries: Entries) -> Sequence[memoryview | None]:
        marks, wanted = entries.marks, entries.sizes.tolist()
        seen = self._seen.holds(marks)
        if all(seen):
            views, counts = batch_io.chosen().read_many(entries.paths, wanted)
        else:
            views, counts = batch_io.chosen().read_many(
                entries.paths, wanted, lambda at, file: seen[at] or self._usable(entries.name(at), file)
            )
            self._seen.note(marks[np.equal(counts, wanted)])
        if counts == wanted:
            self._metrics.add("cache.hit", len(wanted))
            self._metrics.add("cache.bytes_read", sum(wanted))
            return views
        return self._judged(entries, views, wanted, counts)

    def _judged(
        self, entries: Entries, views: Sequence[memoryview], sizes: Sequence[int], counts: Sequence[int]
    ) -> list[memoryview | None]:
        """What came of each entry: bytes, or a negative errno. By itself, each says what is the matter."""
        found: list[memoryview | None] = [None] * len(entries)
        hits = size_read = absent = 0
        for at, (view, size, count) in enumerate(zip(views, sizes, counts, strict=True)):
            if count == size:
                found[at] = view
                hits, size_read = hits + 1, size_read + size
            elif count == -errno.ENOENT:
                absent += 1
            elif count != batch_io.LEFT_OUT:
                found[at] = self.read(entries.name(at))
        self._metrics.add("cache.hit", hits)
        self._metrics.add("cache.bytes_read", size_read)
        self._metrics.add("cache.miss", absent)
        return found

    def _usable(self, name: str, fd: int) -> bool:
        """Whether an open entry is whole and sound; it is marked as used. Raises OSError."""
        stat = os.fstat(fd)
        if stat.st_size != size_of(name):
            self._damaged(name)
            return False
        recent = stat.st_ctime >= self._boot and time.time() - stat.st_mtime <= TOUCH_S
        return recent or self._used(name, fd, stat)

    def open(self, name: str) -> int | None:
        """A complete entry, opened and marked as used; None when it is not there. Raises OSError."""
        try:
            fd = os.open(self._layout.entry(name), _READ)
        except FileNotFoundError:
            return None
        try:
            if not self._usable(name, fd):
                return None
            found, fd = fd, -1
            return found
        finally:
            if fd >= 0:
                os.close(fd)

    def read_range(self, name: str, start: int, stop: int) -> memoryview | None:
        """Bytes [start, stop) of a complete entry. Raises OSError."""
        fd = self.open(name)
        if fd is None:
            return None
        try:
            data = take(max(0, stop - start))
            return data if read_into(fd, data, start) else None
        finally:
            os.close(fd)

    def failed(self, error: OSError) -> None:
        """An entry that is there could not be read: a miss, and a mark against the disk."""
        self._metrics.add("cache.miss")
        self._health.read_failed(error)

    def _used(self, name: str, fd: int, stat: os.stat_result) -> bool:
        """Move the time of use; compare the bytes first if they date from before the boot. Raises OSError."""
        if stat.st_ctime < self._boot and not self._sound(name, fd):
            self._damaged(name)
            return False
        with suppress(OSError):  # a read-only disk: the order of eviction no longer matters
            os.utime(fd)
        return True

    def _sound(self, name: str, fd: int) -> bool:
        seal = self._seals.get(name, fd)
        return seal is not None and checksum_of_file(fd, size_of(name), seal.block) == seal.checksum

    def _damaged(self, name: str) -> None:
        """Most likely after a power loss: a miss, and removed."""
        self._metrics.add("cache.errors")
        self._metrics.add("cache.miss")
        self._remove(name)
