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
    from headrace.fetch import Fetcher, Read, Straight
    from headrace.upload import Uploader

_PART = 8 << 20
"""Bytes of a part, received and sent as a whole; S3 takes 10,000 of them, larger ones of larger objects."""
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
        self._users = 0
        self._readers: queue.SimpleQueue[Straight] = queue.SimpleQueue()
        self._readers_of: Fetcher | None = None

    def copy(self, read: Read, target: Store, key: str, *, progress: Progress = SILENT) -> ObjectInfo:
        """Write the object version that `read` names as the object `key` of `target`: whole, or not at all.

        At most 128 MiB of all copies together are in memory.

        Raises:
            ChangedError: it is another version by now. NotFoundError, DeniedError, TryAgainError, NoRoomError.
        """
        size = read.length()
        with self._file(read) as descriptor:
            if descriptor is not None:
                with self._sender() as sender:
                    return sender.put_file(target, key, descriptor, size, progress=progress)
        if size <= _PART:
            with self._reader() as reader:
                data = _all_of(read._replace(start=0, stop=size), reader)
            copied = target.put(key, data)
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
        mine: list[Straight] = []  # who reads for this copy now

        def bring(start: int, stop: int) -> Buffer:
            with self._reader() as reader:
                mine.append(reader)
                try:
                    return _all_of(read._replace(start=start, stop=stop), reader)
                finally:
                    mine.remove(reader)

        try:
            with self._sender() as sender:
                return sender.put_from(target, key, read.length(), bring, progress=progress)
        finally:
            for reader in tuple(mine):  # after a failure: nobody waits for what they read
                reader.close()

    @contextmanager
    def _reader(self) -> Generator[Straight]:
        """One with a connection that is open already, if there is one. It is closed when it fails."""
        fetcher = self._fetcher()
        with self._lock:
            if self._readers_of is not fetcher:  # the first, or after a fork: connections are the parent's
                self._readers_of, self._readers = fetcher, queue.SimpleQueue()
            readers = self._readers
        try:
            reader = readers.get_nowait()
        except queue.Empty:
            reader, *more = fetcher.straights(_AT_ONCE)
            for one in more:
                readers.put(one)
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        readers.put(reader)

    @contextmanager
    def _sender(self) -> Generator[Uploader]:
        """One for all copies under way; its threads end with the last of them."""
        from headrace.upload import Uploader, UploadOptions

        with self._lock:
            if self._uploader is None:
                self._uploader = Uploader(UploadOptions(part=_PART, threads=_AT_ONCE))
            uploader = self._uploader
            self._users += 1
        try:
            yield uploader
        finally:
            with self._lock:
                self._users -= 1
                over = not self._users
                if over:
                    self._uploader = None
            if over:
                uploader.close()


def _all_of(read: Read, reader: Straight) -> memoryview:
    """The bytes, if they are as many as were asked for. Raises ChangedError, and as `Fetcher.get`."""
    try:
        data = reader.get(read).data
    finally:
        reader.leave()
    if len(data) != read.length():
        raise ChangedError("became shorter while it was copied", path=read.path)
    return data
