"""Ranges of files on this machine that are in the page cache: read by whoever wants them next.

Through `headrace.fetch` a read is handed to one of many threads, and its bytes back: for bytes that have only to be
copied, that costs more than the copy. What the disk would have to bring is left to `headrace.fetch`, whose threads
wait for it side by side.
"""

from __future__ import annotations

import os
from contextlib import suppress

from headrace.base.errors import HeadraceError
from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.fetch import Read
from headrace.store.protocol import Blob, ObjectInfo, Store


class CachedFiles:
    """The files of one store. Any thread."""

    def __init__(self, store: Store, metrics: Metrics) -> None:
        self._store, self._metrics = store, metrics

    @staticmethod
    def of(store: Store, metrics: Metrics) -> CachedFiles | None:
        """None where objects are no files, or the system cannot tell what is in its page cache."""
        known = store.local_root is not None and hasattr(os, "RWF_NOWAIT")
        return CachedFiles(store, metrics) if known else None

    def get(self, read: Read) -> Blob | None:
        """The bytes, of the version asked for. None: they would have to be waited for, or something is wrong, and
        `headrace.fetch` says what.
        """
        with suppress(HeadraceError):
            descriptor = self._store.open_file(read.key, read.version)
            try:
                return self._copied(descriptor, read)
            finally:
                os.close(descriptor)
        return None

    def _copied(self, descriptor: int, read: Read) -> Blob | None:
        data = take(read.length())
        try:
            if os.preadv(descriptor, [data], read.start, os.RWF_NOWAIT) < len(data):
                return None
        except OSError:  # nothing of it is there, or a file system that cannot tell
            return None
        self._metrics.add("fetch.requests")
        self._metrics.add("fetch.bytes", len(data))
        return Blob(data, ObjectInfo(read.key, read.size or 0, read.version))
