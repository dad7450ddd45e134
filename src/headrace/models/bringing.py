"""Objects brought to this node as files, and proved by their digests on the way; or only read for these.

Files come in parts, as many at once as the store gives, past the cache. Each file's digest is made while it comes:
parts that are there are read back, from memory, in their order.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final, NamedTuple

from headrace.base.errors import ChangedError, CorruptError, InputError, NoRoomError
from headrace.base.progress import SILENT, Progress
from headrace.base.threads import REQUESTS_AT_ONCE, Threads
from headrace.fetch import Fetcher, Read, Straight
from headrace.store.protocol import ObjectInfo, Store

_PART: Final = 8 << 20  # bytes of a read
_BLOCK: Final = 1 << 20  # bytes added up at a time: they stay in the processor's cache
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class Wanted(NamedTuple):
    """One object in one version, and the file that it becomes."""

    info: ObjectInfo
    path: str


def bring(store: Store, fetcher: Fetcher, wanted: Sequence[Wanted], progress: Progress = SILENT) -> list[str]:
    """Write each object as a new file; their SHA-256, in order. At most 64 MiB are in memory.

    Raises:
        ChangedError, NotFoundError: an object is no longer that version. NoRoomError: the disk is full. OSError, any
        store error. Files that were begun stay.
    """
    progress.total(len(wanted), sum(one.info.size for one in wanted))
    with _readers(fetcher) as readers:
        files: list[_File] = []
        try:
            files += (_File(store, one, readers, progress) for one in wanted)
            _all([part for file in files for part in file.parts()])
            return [file.digest() for file in files]
        finally:
            for file in files:
                file.close()


def digests(store: Store, fetcher: Fetcher, infos: Sequence[ObjectInfo], progress: Progress = SILENT) -> list[str]:
    """The SHA-256 of each object, read once, in order; nothing is written. Raises as `bring`."""
    with _readers(fetcher) as readers:

        def one(info: ObjectInfo) -> str:
            if store.local_root is not None:
                return digest_of(store.open_file(info.key, info.version))
            reader, found = readers.get(), hashlib.sha256()
            try:
                for read in _reads(store, info):
                    found.update(_bytes_of(read, reader))
                    progress.advance(0, read.length())
            finally:
                readers.put(reader)
            return found.hexdigest()

        with Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models") as pool:
            under_way = [pool.submit(one, info) for info in infos]
            try:
                return [future.result() for future in under_way]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def digest_of(descriptor: int) -> str:
    """The SHA-256 of an open file, which is closed. Raises OSError."""
    with open(descriptor, "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def path_below(folder: str, name: str) -> str:
    """The file of that name below a folder of this machine. Raises InputError: it leads out of it."""
    path = os.path.normpath(os.path.join(folder, name))
    if not path.startswith(folder.rstrip(os.sep) + os.sep) or "\0" in name:
        raise InputError("has a name that leads out of its folder", path=name)
    return path


class _File:
    """One object on its way. Its file is open from its first part to its last: few of many are at a time."""

    def __init__(self, store: Store, wanted: Wanted, readers: SimpleQueue[Straight], progress: Progress) -> None:
        self._store, self._wanted, self._readers, self._progress = store, wanted, readers, progress
        self._lock = threading.Lock()
        self._there: set[int] = set()
        self._next = 0
        self._hashing = False
        self._sum = hashlib.sha256()
        os.makedirs(os.path.dirname(wanted.path), exist_ok=True)
        os.close(os.open(wanted.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        self._descriptor: int | None = None
        self._reads = list(_reads(store, wanted.info))

    def parts(self) -> list[_Part]:
        if not self._reads:
            self._progress.advance(1, 0)
        return [_Part(self, number, read, number == len(self._reads) - 1) for number, read in enumerate(self._reads)]

    def bring(self, number: int, read: Read, *, last: bool) -> None:
        """One part: into the file, and into the digest, if all before it are."""
        reader = self._readers.get()
        try:
            data = _bytes_of(read, reader)
        finally:
            self._readers.put(reader)
        descriptor = self._opened()
        _write(descriptor, data, read.start, self._wanted.path)
        self._progress.advance(1 if last else 0, len(data))
        self._arrived(number, descriptor)

    def digest(self) -> str:
        """Once all parts are there."""
        return self._sum.hexdigest()

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _opened(self) -> int:
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.open(self._wanted.path, os.O_RDWR | os.O_CLOEXEC)
            return self._descriptor

    def _arrived(self, number: int, descriptor: int) -> None:
        with self._lock:
            self._there.add(number)
            if self._hashing:
                return
            self._hashing = True
        while True:
            with self._lock:
                if self._next not in self._there:
                    self._hashing = False
                    return
                self._there.remove(self._next)
            at, end = self._next * _PART, min((self._next + 1) * _PART, self._wanted.info.size)
            for start in range(at, end, _BLOCK):
                self._sum.update(os.pread(descriptor, min(_BLOCK, end - start), start))
            with self._lock:
                self._next += 1
            if self._next == len(self._reads):
                self.close()


class _Part(NamedTuple):
    file: _File
    number: int
    read: Read
    last: bool

    def bring(self) -> None:
        self.file.bring(self.number, self.read, last=self.last)


def _all(parts: Sequence[_Part]) -> None:
    """All of them, several at once; the first failure ends what has not begun."""
    pool = Threads(REQUESTS_AT_ONCE, thread_name_prefix="headrace-models")
    try:
        under_way: list[Future[None]] = [pool.submit(part.bring) for part in parts]
        for future in under_way:
            future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _readers(fetcher: Fetcher) -> Generator[SimpleQueue[Straight]]:
    """As many as read at once. Whoever takes one puts it back."""
    ours = fetcher.straights(REQUESTS_AT_ONCE)
    queue: SimpleQueue[Straight] = SimpleQueue()
    for one in ours:
        queue.put(one)
    try:
        yield queue
    finally:
        for one in ours:
            one.close()


def _reads(store: Store, info: ObjectInfo) -> Iterator[Read]:
    for start in range(0, info.size, _PART):
        yield Read(store, info.key, info.size, info.version, start, min(start + _PART, info.size))


def _bytes_of(read: Read, reader: Straight) -> memoryview:
    try:
        data = reader.get(read).data
    finally:
        reader.leave()
    if len(data) != read.length():
        raise ChangedError("became shorter while it was read", path=read.path)
    return data


def _write(descriptor: int, data: memoryview, at: int, path: str) -> None:
    done = 0
    while done < len(data):
        try:
            done += os.pwrite(descriptor, data[done:], at + done)
        except OSError as error:
            if error.errno in _FULL:
                hint = "make room, or set HEADRACE_CACHE_DIR to another disk"
                raise NoRoomError("no room for a model's file", path=path, hint=hint) from error
            raise


def check(found: str, expected: str, where: str) -> None:
    """Raises CorruptError: the digests differ."""
    if found != expected:
        hint = "roll back to another version, or publish it again"
        raise CorruptError(f"its SHA-256 is {found[:12]}…, not {expected[:12]}… as published", path=where, hint=hint)
