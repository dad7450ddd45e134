"""How much the cache holds: one small file that all processes share. A hint: lost or wrong, it is counted anew.

Read and written by pread and pwrite rather than through a mapping: a failing or full disk then gives an error to
handle, where a mapping would kill the process with SIGBUS. One update takes about 5 µs.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from dataclasses import dataclass

import xxhash

from headrace.cache.locks import FileLock

_RECORD = struct.Struct("<4sIqqd")
_MAGIC = b"hru1"
_SUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Count:
    """What is held: entries, bytes as `charge_of` gives them, and when that was last counted, in seconds since 1970."""

    entries: int
    bytes: int
    counted_at: float


class Usage:
    """The shared count. Any thread; never waits longer than about 30 ms for another process."""

    def __init__(self, path: str) -> None:
        """Raises OSError when the file can be neither opened nor created."""
        self._lock = FileLock(path)
        self._pending_lock = threading.Lock()
        self._pending = [0, 0]  # what could not be written because the lock was busy

    def read(self) -> Count | None:
        """The count; None when it is not known (new, torn, or marked so)."""
        raw = os.pread(self._lock.fd, _RECORD.size + _SUM.size, 0)
        if len(raw) != _RECORD.size + _SUM.size or _SUM.unpack_from(raw, _RECORD.size)[0] != _checksum(raw):
            return None
        magic, known, entries, size, counted_at = _RECORD.unpack_from(raw)
        return Count(max(0, entries), max(0, size), counted_at) if magic == _MAGIC and known else None

    def reserve(self, entries: int, size: int, limit: int) -> int | None:
        """Add, if the total stays within `limit`.

        Returns 0 when added, else by how many bytes it would be too much; None when the count is not known.

        Raises:
            OSError: the disk fails. BlockingIOError: another process keeps the lock.
        """
        if not self._lock.acquire():
            raise BlockingIOError
        try:
            count = self._settle()
            if count is None:
                return None
            if count.bytes + size > limit:
                return count.bytes + size - limit
            self._write(Count(count.entries + entries, count.bytes + size, count.counted_at))
            return 0
        finally:
            self._lock.release()

    def add(self, entries: int, size: int) -> None:
        """Add (or subtract) whatever the limit says. Errors are swallowed: the count is a hint."""
        with self._pending_lock:
            self._pending[0] += entries
            self._pending[1] += size
        try:
            if self._lock.acquire():
                try:
                    self._settle()
                finally:
                    self._lock.release()
        except OSError:
            pass

    def set(self, count: Count, since: Count | None = None, *, only_unknown: bool = False) -> Count:
        """Put a fresh count in place; what others added after `since` was read is kept on top.

        `only_unknown`: not over a count that is known already.

        Raises:
            OSError: the disk fails. BlockingIOError: another process keeps the lock.
        """
        if not self._lock.acquire():
            raise BlockingIOError
        try:
            now = self._settle()
            if only_unknown and now is not None:
                return now
            if since is not None and now is not None:
                moved = (now.entries - since.entries, now.bytes - since.bytes)
                count = Count(max(0, count.entries + moved[0]), max(0, count.bytes + moved[1]), count.counted_at)
            self._write(count)
            return count
        finally:
            self._lock.release()

    def forget(self) -> None:
        """Mark the count unknown: whoever needs it counts anew. Raises OSError when the disk fails."""
        os.pwrite(self._lock.fd, bytes(_RECORD.size + _SUM.size), 0)

    def reopen(self) -> None:
        """In a forked child. What the parent had pending stays the parent's."""
        self._pending_lock = threading.Lock()
        self._pending = [0, 0]
        self._lock.reopen()

    def close(self) -> None:
        """Write what is pending, and close."""
        if self._pending != [0, 0]:
            self.add(0, 0)
        self._lock.close()

    def _settle(self) -> Count | None:
        count = self.read()
        with self._pending_lock:
            entries, size = self._pending
            self._pending = [0, 0]
        if count is None or (entries, size) == (0, 0):
            return count
        count = Count(max(0, count.entries + entries), max(0, count.bytes + size), count.counted_at)
        self._write(count)
        return count

    def _write(self, count: Count) -> None:
        raw = _RECORD.pack(_MAGIC, 1, count.entries, count.bytes, count.counted_at)
        os.pwrite(self._lock.fd, raw + _SUM.pack(_checksum(raw)), 0)


def fresh(entries: int, size: int) -> Count:
    """A count made just now."""
    return Count(entries, size, time.time())


def _checksum(raw: bytes) -> int:
    return xxhash.xxh32_intdigest(raw[: _RECORD.size])
