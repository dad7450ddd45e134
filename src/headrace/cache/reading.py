"""Reading complete entries: the hot path of every epoch but the first."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.cache.absence import Absence
from headrace.cache.boot import boot_time
from headrace.cache.entry import Seals, checksum_of_file, read_into
from headrace.cache.health import Health
from headrace.cache.names import Layout, size_of

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
        self._absence = Absence()

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

    def absent(self, name: str) -> bool:
        """As `Cache.absent`."""
        return self._absence.sure(f"{self._objects}{name[:2]}/{name[2:]}")

    def open(self, name: str) -> int | None:
        """A complete entry, opened and marked as used; None when it is not there. Raises OSError."""
        try:
            fd = os.open(self._layout.entry(name), _READ)
        except FileNotFoundError:
            return None
        try:
            stat = os.fstat(fd)
            if stat.st_size != size_of(name):
                self._damaged(name)
                return None
            recent = stat.st_ctime >= self._boot and time.time() - stat.st_mtime <= TOUCH_S
            if recent or self._used(name, fd, stat):
                found, fd = fd, -1
                return found
            return None
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
