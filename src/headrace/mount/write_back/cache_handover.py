"""Staged files that are done with: each becomes the cache's entry of its object, or is removed."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError
from headrace.base.memory import take
from headrace.cache.entry import EntryLabel
from headrace.mount.write_back.publish_file import SMALL, read_into
from headrace.mount.write_back.staged_file import StagedFile
from headrace.store.protocol import ObjectInfo

if TYPE_CHECKING:
    from headrace.mount.write_back.background_threads import Task
    from headrace.namespace import Namespace
    from headrace.upload import Uploader

_log = logging.getLogger("headrace.mount")
_INLINE = 64 << 20
"""Bytes up to which a file is handed to the cache at once; a larger one takes a checksum of that many bytes."""
_SETTLED_S = 1.0  # seconds without a file that follows


class CacheHandover:
    """Closes local files of staged files that are published or given up. Any thread.

    `wake`: called when a background thread has something to do here (see `due`).
    """

    def __init__(self, ns: Namespace, uploader: Uploader, wake: Callable[[], None]) -> None:
        self._ns = ns
        self._uploader = uploader
        self._wake = wake
        self._waiting: deque[tuple[StagedFile, ObjectInfo | None]] = deque()
        self._settle_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether files wait for a background thread."""
        return bool(self._waiting)

    def later(self, file: StagedFile, info: ObjectInfo | None = None) -> None:
        """As `dispose`, on a background thread."""
        self._waiting.append((file, info))
        self._wake()

    def due(self, now: float) -> Task | float:
        """Something to do, for a thread that may wait; or when there will be, on the monotonic clock."""
        with suppress(IndexError):
            return partial(self._close, *self._waiting.popleft())
        settle_at = self._settle_at
        if settle_at is None:
            return float("inf")
        if settle_at > now:
            return settle_at
        self._settle_at = None
        return self._settle

    def close(self) -> None:
        """Close all files that wait."""
        while self._waiting:
            self._close(*self._waiting.popleft())

    def dispose(self, file: StagedFile, info: ObjectInfo | None = None) -> None:
        """Close the local file of a forgotten one, when nobody has it open, and make it the cache entry of `info`."""
        if file.handles > 0:
            return
        if info is not None and info.size > _INLINE:
            self.later(file, info)
        else:
            self._close(file, info)

    def _close(self, file: StagedFile, info: ObjectInfo | None) -> None:
        fd = file.let_go()
        if fd < 0:
            return
        size = file.size
        kept = False
        try:
            if info is not None and file.complete and info.size == size and info.etag is not None:
                kept = self._cached(file, fd, info)
        except (HeadraceError, OSError) as error:
            _log.info("%s: not kept in the cache: %s", file.path, error)
        finally:
            os.close(fd)
            if not kept:
                with suppress(OSError):
                    os.unlink(file.local)

    def _cached(self, file: StagedFile, fd: int, info: ObjectInfo) -> bool:
        """True when the cache has taken the local file itself."""
        store, cache = self._ns.resolve(file.path).store, self._ns.fetcher.cache
        if cache is None or store.local_root is not None or info.size == 0:
            return False
        name = cache.name(store.identity, info.key, info.version, info.size)
        label = EntryLabel(store.identity, info.key, info.version, info.size)
        if cache.adopt(name, file.local, fd, label, file.checksum):
            self._settle_later()
            return True
        if info.size <= SMALL:
            with self._uploader.hold(info.size):
                view = take(info.size)
                read_into(fd, view)
                cache.fill(name, view, label)
        return False

    def _settle_later(self) -> None:
        """The cache has reserved room for more files than this one: some that follow, until none has for a while."""
        first = self._settle_at is None
        self._settle_at = time.monotonic() + _SETTLED_S
        if first:
            self._wake()

    def _settle(self) -> None:
        if self._ns.fetcher.cache is not None:
            self._ns.fetcher.cache.settle()
