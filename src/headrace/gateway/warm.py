"""Cache files of objects asked for lately, held open: such a request is a look into a table, and `sendfile`."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict

from headrace.gateway.changes import Changes
from headrace.http_server import FileSlice

_MOST = 512
"""Files held open: half of the descriptors that a process has by default."""
_SWEEP_S = 5.0
"""Between two looks for those that nobody asked for any more."""
_SMALL = 16 * 1024
"""Bytes of files that are held in memory: one system call sends them with their head."""


class WarmFile:
    """One open file. `headers`: of every answer with it. Closed when nobody uses it any longer."""

    __slots__ = ("_lock", "_users", "data", "fd", "headers", "mtime_us", "number", "size", "until", "version")

    def __init__(
        self, fd: int, size: int, version: str, mtime_us: int, *, until: float, number: bytes,
        headers: tuple[tuple[str, str], ...],
    ) -> None:  # fmt: skip
        self.fd, self.size, self.version, self.mtime_us = fd, size, version, mtime_us
        self.until, self.number, self.headers = until, number, headers
        self._users = 1
        self._lock = threading.Lock()
        self.data = os.pread(fd, size, 0) if size <= _SMALL else None

    def part(self, start: int, stop: int) -> FileSlice | bytes | None:
        """Bytes of it, held open until they are sent; None: it has just been closed."""
        if self.data is not None and len(self.data) == self.size:
            return self.data if stop - start == self.size else self.data[start:stop]
        with self._lock:
            if not self._users:
                return None
            self._users += 1
        return FileSlice(self.fd, start, stop - start, self.release)

    def release(self) -> None:
        """One user less."""
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            os.close(self.fd)


class WarmFiles:
    """Those of one process. Any thread.

    A file is held no longer than what is known of its object is trusted, so that what the cache evicts takes room on
    the disk only for so long.
    """

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._files: OrderedDict[tuple[str, str], WarmFile] = OrderedDict()
        self._lock = threading.Lock()
        self._swept = 0.0

    def get(self, bucket: str, key: str) -> WarmFile | None:
        """The file of what the object is known to be now."""
        found = self._files.get((bucket, key))
        if found is None:
            return None
        if found.until > time.monotonic() and found.number == self._changes.number(bucket, key):
            return found
        self._drop((bucket, key), found)
        return None

    def put(self, bucket: str, key: str, file: WarmFile) -> None:
        """Hold it, until it may no longer be trusted."""
        with self._lock:
            before = self._files.pop((bucket, key), None)
            self._files[bucket, key] = file
            over = [before] if before else []
            while len(self._files) > _MOST:
                over.append(self._files.popitem(last=False)[1])
        for one in over:
            one.release()
        self.sweep()

    def sweep(self) -> None:
        """Let go of what may no longer be trusted. Now and then."""
        now = time.monotonic()
        if now - self._swept < _SWEEP_S:
            return
        self._swept = now
        for key, file in list(self._files.items()):
            if file.until <= now:
                self._drop(key, file)

    def close(self) -> None:
        """Let go of all."""
        for key, file in list(self._files.items()):
            self._drop(key, file)

    def _drop(self, key: tuple[str, str], file: WarmFile) -> None:
        with self._lock:
            mine = self._files.get(key) is file
            if mine:
                del self._files[key]
        if mine:
            file.release()
