"""The parts of a staged file that still lie in the object it was opened on, and fetching them when they are touched."""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from headrace.base.errors import ChangedError, NotFoundError
from headrace.cache.entry import write_all
from headrace.fetch import Read
from headrace.store.protocol import ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.fetch import Fetcher

BLOCK = 4 << 20  # bytes fetched when one of them is touched
_AT_ONCE = 4  # blocks fetched side by side for one request, 16 MiB in memory


class MissingBlocks:
    """Blocks of 4 MiB of the object version `info` that are not in the file `fd` yet. Any thread.

    `limit`: bytes from there on are no longer the object's: it was cut there, and what follows is new.
    """

    def __init__(
        self, fetcher: Fetcher, store: Store, info: ObjectInfo, fd: int, blocks: set[int] | None = None
    ) -> None:
        self._fetcher = fetcher
        self._store = store
        self.info = info
        self._fd = fd
        self._lock = threading.Lock()
        self.limit = info.size
        self.blocks = set(range(-(-info.size // BLOCK))) if blocks is None else blocks

    def fetch(self, start: int, stop: int) -> bool:
        """Bring bytes [start, stop) into the file, as far as they are the object's. False: they were there already.

        Raises:
            ChangedError, NotFoundError: the object is another one by now, or gone. TryAgainError, DeniedError,
            NoRoomError.
        """
        last = -(-min(stop, self.limit) // BLOCK) if start < self.limit else 0
        wanted = deque(block for block in range(start // BLOCK, last) if block in self.blocks)
        found = bool(wanted)
        while wanted:
            info = self.info
            try:
                with closing(self._read(info, list(wanted))) as coming:
                    for data in coming:
                        self._put(wanted[0], data)
                        wanted.popleft()
            except (ChangedError, NotFoundError):
                if self.info is info:
                    raise  # else it was we who replaced it, meanwhile
        return found

    def cut(self, size: int) -> None:
        """The file ends at `size` now."""
        with self._lock:
            self.limit = min(self.limit, size)
            self.blocks = {block for block in self.blocks if block * BLOCK < size}

    def follow(self, info: ObjectInfo) -> None:
        """The object was replaced by one that holds the same bytes wherever they are still absent here: our own."""
        self.info = info

    def _put(self, block: int, data: memoryview) -> None:
        with self._lock:  # two readers may have fetched the same block, and one of them written to it since
            if block in self.blocks:
                start = block * BLOCK
                write_all(self._fd, data[: max(0, self.limit - start)], start)
                self.blocks.discard(block)

    def _read(self, info: ObjectInfo, blocks: Sequence[int]) -> Generator[memoryview]:
        """Their bytes, one after the other, a few of them under way."""
        starts = [block * BLOCK for block in blocks]
        reads = [
            Read(self._store, info.key, info.size, info.version, start, min(start + BLOCK, info.size))
            for start in starts
        ]
        with closing(self._fetcher.in_order(reads, ahead=_AT_ONCE - 1)) as coming:
            for read, blob in zip(reads, coming, strict=True):
                if len(blob.data) != read.length():
                    raise ChangedError("became shorter while it was being edited", path=read.path)
                yield blob.data

    def record(self) -> dict[str, Any]:
        """As the journal keeps it."""
        info = self.info
        with self._lock:
            return {
                "key": info.key,
                "size": info.size,
                "etag": info.etag,
                "mtime_us": info.mtime_us,
                "limit": self.limit,
                "blocks": sorted(self.blocks),
            }


def from_record(record: dict[str, Any], fetcher: Fetcher, store: Store, fd: int) -> MissingBlocks:
    """What `MissingBlocks.record` gave."""
    info = ObjectInfo(record["key"], record["size"], record["etag"], record["mtime_us"])
    absent = MissingBlocks(fetcher, store, info, fd, set(record["blocks"]))
    absent.limit = record["limit"]
    return absent


def bring_whole(fetcher: Fetcher, store: Store, info: ObjectInfo, fd: int) -> bool:
    """Fill the empty file `fd` from a complete cache entry, inside the kernel. False where there is none.

    Raises:
        OSError: the disk is full, or fails.
    """
    cache = fetcher.cache
    if cache is None or store.local_root is not None:
        return False
    path = cache.path(cache.name(store.identity, info.key, info.version, info.size))
    if path is None:
        return False
    try:
        source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        done = 0
        while done < info.size:
            try:
                count = os.copy_file_range(source, fd, info.size - done, done, done)
            except OSError as error:
                if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise
                count = 0
            if count == 0:
                os.ftruncate(fd, 0)
                return False
            done += count
        return True
    finally:
        os.close(source)
