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
from headrace.fetch import Fetcher, Read
from headrace.store.protocol import Blob, ObjectInfo, Store

_LEAST = 64 << 10  # bytes of a read: to open a file for fewer costs more than to hand them over
_LOCAL, _CACHED = ("fetch.requests", "fetch.bytes"), ("cache.hit", "cache.bytes_read")


class CachedFiles:
    """The files of one store, or those that the node's cache holds of it. Any thread."""

    def __init__(self, store: Store, fetcher: Fetcher) -> None:
        self._store, self._fetcher = store, fetcher
        self._is_local = store.local_root is not None

    @staticmethod
    def of(store: Store, fetcher: Fetcher) -> CachedFiles | None:
        """None where objects are no files, or the system cannot tell what is in its page cache."""
        known = hasattr(os, "RWF_NOWAIT") and (store.local_root is not None or fetcher.keeps(store))
        return CachedFiles(store, fetcher) if known else None

    @property
    def serve(self) -> bool:
        """Whether asking is worth it now: the files are the store's own, or the cache has lately had nearly all."""
        return self._is_local or self._fetcher.warm

    def suit(self, reads: int, size: int) -> bool:
        """Whether so many reads of `size` bytes together are better made here: where opening the cache's file for each
        would cost more than the hand-over, they are not.
        """
        return self._is_local or (self._fetcher.warm and size >= reads * _LEAST)

    def get(self, read: Read) -> Blob | None:
        """The bytes, of the version asked for. None: they would have to be waited for, or something is wrong, and
        `headrace.fetch` says what.
        """
        with suppress(HeadraceError):
            descriptor = self._store.open_file(read.key, read.version) if self._is_local else self._fetcher.file(read)
            if descriptor is None:
                return None
            try:
                data = self._copied(descriptor, read)
            finally:
                os.close(descriptor)
            return None if data is None else Blob(data, ObjectInfo(read.key, read.size or 0, read.version))
        return None

    def _copied(self, descriptor: int, read: Read) -> memoryview | None:
        data = take(read.length())
        try:
            if os.preadv(descriptor, [data], read.start, os.RWF_NOWAIT) < read.length():
                return None
        except OSError:  # nothing of it is there, or a file system that cannot tell
            return None
        metrics, (requests, size) = self._fetcher.metrics, _LOCAL if self._is_local else _CACHED
        metrics.add(requests)
        metrics.add(size, read.length())
        return data.toreadonly()
