"""One object version as something to load from: its bytes by ranges, and its file where this machine has one."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.base import memory
from headrace.base.errors import HeadraceError, NotFoundError
from headrace.fetch import Fetcher, Read
from headrace.store.protocol import Blob

if TYPE_CHECKING:
    from headrace.namespace import Namespace

_PIECE: Final = 8 << 20  # bytes of a read
_AT_ONCE: Final = 6
"""Pieces on their way to the cache: with what waits to be written, at most 64 MiB and some."""
_LOOK_S: Final = 0.002  # seconds between looks whether the disk is still behind
_WRITTEN_S: Final = 120.0  # seconds until all that came is in the cache
_NORESERVE: Final = 0x4000
"""Linux, mman.h: what is never changed takes nothing from what other programs may have."""


@dataclass(frozen=True)
class Source:
    """An object version. `read`: all of it; `path`: as it was asked for."""

    read: Read
    path: str
    fetcher: Fetcher

    @staticmethod
    def find(namespace: Namespace, path: str | os.PathLike[str], *, refresh: bool = False) -> Source:
        """The present version, or one seen within ``cache.ttl``, unless `refresh`. Raises NotFoundError."""
        entry = namespace.stat(path, refresh=refresh)
        if not entry.is_file:
            raise NotFoundError("is a folder", path=os.fspath(path), hint="name a file in it")
        location = namespace.resolve(entry.path)
        read = Read(location.store, location.key, entry.size, entry.version, 0, entry.size)
        return Source(read, os.fspath(path), namespace.fetcher)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.read.size or 0

    @property
    def kept(self) -> bool:
        """Whether what is read of it is kept in the node's cache."""
        return self.fetcher.keeps(self.read.store)

    def part(self, start: int, stop: int) -> Read:
        """A read of bytes [start, stop)."""
        return self.read._replace(start=start, stop=stop)

    def get(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop), through the cache. Raises as `Fetcher.get`."""
        return self.fetcher.get(self.part(start, stop)).data if stop > start else memoryview(b"")

    def file(self) -> int | None:
        """Its file, opened for reading: it is one of this machine, or the cache holds all of it. Close it."""
        if self.read.store.local_root is not None:
            return self.read.store.open_file(self.read.key, self.read.version)
        return self.fetcher.file(self.read)

    def bring(self) -> int | None:
        """Its file as `file`, brought into the cache where it is missing. None: the cache is off, or does not keep it.

        Bytes are fetched once a node: what another process has on its way is waited for. In memory are 64 MiB and
        some, however large it is. Raises as `Fetcher.get`.
        """
        if (found := self.file()) is not None or not self._worth_keeping():
            return found
        _fill(self.fetcher, self.read)
        memory.trim()
        return self.file()

    def _worth_keeping(self) -> bool:
        cache = self.fetcher.cache
        if cache is None or not self.kept or not cache.filling:
            return False
        return 0 < self.size <= self.fetcher.settings.cache.size // 2  # what is larger would drive itself out


def mapped(descriptor: int) -> memoryview:
    """All of a file's bytes, as memory that may be changed: what is changed is this process's own, all else is shared
    with whoever reads the file. Closes `descriptor`.

    A file that somebody cuts short while it is mapped ends the process (SIGBUS): the cache's are never changed, and
    stay readable when they are evicted.
    """
    try:
        size = os.fstat(descriptor).st_size
        if not size:
            return memoryview(bytearray())
        flags = mmap.MAP_PRIVATE | _NORESERVE
        return memoryview(mmap.mmap(descriptor, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    finally:
        os.close(descriptor)


def announce(view: memoryview, start: int, stop: int) -> None:
    """Have the kernel begin to read bytes [start, stop) of a mapped file from the disk, if they are not in memory."""
    if isinstance(view.obj, mmap.mmap) and stop > start:
        at = start - start % mmap.PAGESIZE
        with suppress(OSError):
            view.obj.madvise(mmap.MADV_WILLNEED, at, stop - at)


def _fill(fetcher: Fetcher, read: Read) -> None:
    """Read all of an object through the cache, a few pieces at a time, and wait until they are kept."""
    size = read.length()
    failed: list[HeadraceError] = []

    def sink(_: Read, result: Blob | HeadraceError) -> None:
        if isinstance(result, HeadraceError):
            failed.append(result)

    def pieces() -> Iterator[Read]:
        for start in range(0, size, _PIECE):
            while fetcher.behind and not failed:
                time.sleep(_LOOK_S)
            if failed:
                return
            yield read._replace(start=start, stop=min(start + _PIECE, size))

    fetcher.read_all(pieces(), sink, in_flight=_AT_ONCE, pieces=True)
    if failed:
        raise failed[0]
    fetcher.settle(_WRITTEN_S)
