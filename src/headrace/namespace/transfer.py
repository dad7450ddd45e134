"""Copying an object from one store to another, through this process: large ones in parts, many at once, from where they
are to where they are wanted.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.base.errors import ChangedError
from headrace.base.progress import SILENT, Progress
from headrace.store.protocol import Buffer, ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.fetch import Fetcher, Read
    from headrace.upload import Uploader

_PART = 8 << 20
_AT_ONCE = 16
"""Parts under way, of all copies together; how many of them are received at a time is found out (`fetch.straight`)."""


class Transfers:
    """Copies between stores, of versions that are pinned. Any thread; threads and buffers are shared by all copies.

    An object that the cache holds is read there. One that it does not hold comes straight from the store, and the cache
    is left alone: a copy is of use for whoever wanted it, and would drive out what is read again.
    """

    def __init__(self, fetcher: Callable[[], Fetcher]) -> None:
        self._fetcher = fetcher
        self._lock = threading.Lock()
        self._uploader: Uploader | None = None

    def copy(self, read: Read, target: Store, key: str, *, progress: Progress = SILENT) -> ObjectInfo:
        """Write the object version that `read` names as the object `key` of `target`: whole, or not at all.

        At most 128 MiB of all copies together are in memory.

        Raises:
            ChangedError: it is another version by now. NotFoundError, DeniedError, TryAgainError, NoRoomError.
        """
        size = read.length()
        with self._file(read) as descriptor:
            if descriptor is not None:
                return self._sender().put_file(target, key, descriptor, size, progress=progress)
        if size <= _PART:
            copied = target.put(key, _all_of(read, self._fetcher().get(read).data))
            progress.advance(1, size)
            return copied
        return self._relay(read, target, key, progress)

    @contextmanager
    def _file(self, read: Read) -> Generator[int | None]:
        """The object as a file of this machine, if it is one, or if the cache holds it."""
        if read.store.local_root is not None:
            descriptor: int | None = read.store.open_file(read.key, read.version)
        else:
            descriptor = self._fetcher().file(read)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _relay(self, read: Read, target: Store, key: str, progress: Progress) -> ObjectInfo:
        free: queue.SimpleQueue[Callable[[Read], Buffer]] = queue.SimpleQueue()
        readers = self._fetcher().straights(_AT_ONCE)
        for reader in readers:
            free.put(lambda part, reader=reader: _all_of(part, reader.get(part).data, reader.leave))

        def bring(start: int, stop: int) -> Buffer:
            one = free.get()
            try:
                return one(read._replace(start=start, stop=stop))
            finally:
                free.put(one)

        try:
            return self._sender().put_from(target, key, read.length(), bring, progress=progress)
        finally:
            for reader in readers:
                reader.close()

    def _sender(self) -> Uploader:
        from headrace.upload import Uploader, UploadOptions

        with self._lock:
            if self._uploader is None:
                self._uploader = Uploader(UploadOptions(part=_PART, threads=_AT_ONCE))
            return self._uploader


def _all_of(read: Read, data: memoryview, then: Callable[[], None] = lambda: None) -> memoryview:
    """The bytes that came, if they are as many as were asked for. Raises ChangedError."""
    then()
    if len(data) != read.length():
        raise ChangedError("became shorter while it was copied", path=read.path)
    return data
