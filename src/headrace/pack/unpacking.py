"""`unpack`: the members of shards as single objects, under their own names."""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from headrace.base.errors import (
    AlreadyExistsError,
    InputError,
    NotFoundError,
    ReadOnlyError,
    TryAgainError,
    UnsupportedError,
)
from headrace.base.places import temporary_folder
from headrace.base.progress import SILENT, Progress
from headrace.base.threads import ForEach, cores
from headrace.namespace import Entry, Namespace
from headrace.pack.archive import SUFFIXES as TARS
from headrace.pack.archive import File, Unpackable, files_of
from headrace.pack.journal import FOLDER, INDEX, PLAN
from headrace.pack.records import SUFFIXES as RECORDS
from headrace.pack.records import files_of_records
from headrace.store.protocol import Store
from headrace.upload import Uploader

SUFFIXES = (*TARS, *RECORDS)
_WRITERS = 32
"""Threads that put small objects: they wait for the store."""
_LARGE = 16 << 20
"""Members above this size go through a temporary file, in parts."""
_IN_FLIGHT, _IN_FLIGHT_BYTES = 64, 32 << 20  # objects on their way from one shard, and bytes of them
_AT_ONCE, _SHARES = 64 << 20, 64  # bytes of a piece of work; and pieces, no fewer, where the shards allow


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What became of the members. `left_out`: links, devices and the like, which no object can be."""

    path: str
    shards: int
    objects: int
    bytes: int
    left_out: int


def unpack(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    workers: int = 0,
    overwrite: bool = False,
    namespace: Namespace | None = None,
    progress: Progress = SILENT,
    hands: UnpackHands | None = None,
) -> Unpacked:
    """Write every file in a shard, or in all shards below a folder, as an object below `destination`.

    Records of TFRecord (`tf.train.Example`) and Parquet give an object for each of their fields: ``<__key__>.<field>``.

    Call it from one thread. Memory: some 50 MB for each worker.

    Args:
        source: a shard, or a folder of them (tar, plain, gzip, bzip2 or xz; TFRecord; Parquet); a path or a URL.
        destination: a folder; a path or a URL.
        workers: shards read at once; 0: as many as there are cores.
        overwrite: write over what is there; else that is an error, unless these very bytes are there: so a run goes on
            after one that was killed.
        namespace: where paths are looked up; default: the one of the settings.
        progress: told files, and their bytes.
        hands: who unpacks; None: threads of this process, `workers` of them.

    Raises:
        NotFoundError: no shards. InputError: a packing that is not finished. CorruptError: a shard that is none, is
            cut short, or has names that lead elsewhere; names shard and place. AlreadyExistsError: what would be
            overwritten. DeniedError, TryAgainError, NoRoomError.
    """
    namespace = namespace or Namespace.load()
    source, destination = namespace.named(source), namespace.named(destination)
    shards = sorted(Shard(entry.path, entry.size) for entry in _shards(namespace, source))
    orders = UnpackOrders(destination, overwrite)
    orders.target(namespace)
    done: list[Counts] = []
    (hands or _Threads(namespace, workers, progress)).write(orders, shards, done.append)
    objects, size, left_out = map(sum, zip(*done, strict=True))
    return Unpacked(destination, len(shards), objects, size, left_out)


class Shard(NamedTuple):
    """One to be unpacked. `size`: its bytes, as listed."""

    path: str
    size: int


class Counts(NamedTuple):
    """What became of members, as in `Unpacked`."""

    objects: int
    bytes: int
    left_out: int


@dataclass(frozen=True, slots=True)
class UnpackOrders:
    """Where members go, for any process. `destination`: as written for every process."""

    destination: str
    overwrite: bool

    def target(self, namespace: Namespace) -> tuple[Store, str]:
        """The store, and what keys in it begin with. Raises ReadOnlyError."""
        location = namespace.resolve(self.destination)
        if location.read_only:
            hint = "attach it again without read_only to write there"
            raise ReadOnlyError("is read-only", path=self.destination, hint=hint)
        return location.store, location.key.strip("/") + "/" if location.key.strip("/") else ""


class UnpackHands(Protocol):
    """Who unpacks shards."""

    def write(self, orders: UnpackOrders, shards: Sequence[Shard], take: Callable[[Counts], None]) -> None:
        """Have all of them unpacked; `take` is called with parts that sum up to what became of them. Raises the first
        error.
        """
        ...


class _Threads:
    """Threads of this process."""

    def __init__(self, namespace: Namespace, workers: int, progress: Progress) -> None:
        self._namespace, self._workers, self._progress = namespace, workers or cores(), progress

    def write(self, orders: UnpackOrders, shards: Sequence[Shard], take: Callable[[Counts], None]) -> None:
        """See `UnpackHands.write`."""
        crew = ForEach(max(1, min(self._workers, len(shards))))
        with unpacker(orders, self._namespace, crew.stop, self._progress) as target:
            crew.run(lambda number: take(target.write(shards[number].path)), range(len(shards)), "unpack")


@contextmanager
def unpacker(
    orders: UnpackOrders, namespace: Namespace, stop: threading.Event, progress: Progress = SILENT
) -> Generator[Unpacker]:
    """What unpacks shards in this process. `stop`: set when what is under way should end."""
    store, prefix = orders.target(namespace)
    pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="headrace-unpack-put")
    with Uploader() as uploader:
        try:
            yield Unpacker(namespace, store, prefix, orders.overwrite, uploader, pool, stop, progress)
        except BaseException:
            stop.set()
            raise
        finally:
            pool.shutdown(wait=not stop.is_set(), cancel_futures=True)


def pieces_of(shards: Sequence[Shard]) -> list[tuple[str, ...]]:
    """Shards cut into pieces of work: each some 64 MB, or one shard where it is larger, and no fewer than 64 pieces
    where there are as many shards.
    """
    share = min(_AT_ONCE, sum(shard.size for shard in shards) // _SHARES)
    pieces: list[tuple[str, ...]] = []
    piece: list[str] = []
    filled = 0
    for shard in shards:
        if piece and filled + shard.size > share:
            pieces.append(tuple(piece))
            piece, filled = [], 0
        piece.append(shard.path)
        filled += shard.size
    return [*pieces, tuple(piece)] if piece else pieces


def members_of(file: Any, shard: str) -> Iterator[File | Unpackable]:
    """What is in the shard, by its suffix; one of another suffix is taken for a tar. Raises CorruptError."""
    return files_of_records(file, shard) if shard.lower().endswith(RECORDS) else files_of(file, shard)


def _shards(namespace: Namespace, source: str) -> Iterator[Entry]:
    """Raises NotFoundError, InputError."""
    entry = namespace.stat(source)
    if entry.kind == "file":
        yield entry
        return
    root = source.rstrip("/")
    if namespace.exists(f"{root}/{PLAN}") and not namespace.exists(f"{root}/{INDEX}"):
        raise InputError("is not packed to the end", path=source, hint="run the same headrace pack again: it goes on")
    found = (
        file
        for file in namespace.walk(source)
        if file.path.lower().endswith(SUFFIXES) and not file.path[len(root) + 1 :].startswith(FOLDER)
    )
    first = next(found, None)
    if first is None:
        raise NotFoundError("holds no shards", path=source, hint=f"their names end in {', '.join(SUFFIXES)}")
    yield from itertools.chain((first,), found)


class Unpacker:
    """Writes members as objects. Any thread; what one shard has under way is bounded. See `unpacker`."""

    def __init__(
        self,
        namespace: Namespace,
        store: Store,
        prefix: str,
        overwrite: bool,
        uploader: Uploader,
        pool: ThreadPoolExecutor,
        stop: threading.Event,
        progress: Progress,
    ) -> None:
        self._namespace, self._store, self._prefix, self._overwrite = namespace, store, prefix, overwrite
        self._uploader, self._pool, self._stop, self._progress = uploader, pool, stop, progress

    def write(self, shard: str) -> Counts:
        """All of one shard. Raises as `unpack`; TryAgainError: also when stopped."""
        waiting: deque[tuple[Future[None], int]] = deque()
        flying = objects = size = left_out = 0
        with self._namespace.open(shard) as file:
            for member in members_of(file, shard):
                if self._stop.is_set():
                    raise TryAgainError("stopped")
                if isinstance(member, Unpackable):
                    left_out += 1
                    continue
                objects, size = objects + 1, size + member.size
                if member.size > _LARGE:
                    self._large(member.name, member.pieces(), member.size)
                else:
                    data = b"".join(member.pieces())
                    waiting.append((self._pool.submit(self._small, member.name, data), len(data)))
                    flying += len(data)
                while len(waiting) > _IN_FLIGHT or flying > _IN_FLIGHT_BYTES:
                    future, length = waiting.popleft()
                    future.result()
                    flying -= length
        for future, _ in waiting:
            future.result()
        return Counts(objects, size, left_out)

    def _small(self, name: str, data: bytes) -> None:
        key = self._prefix + name
        try:
            self._store.put(key, data, create=not self._overwrite)
        except UnsupportedError:
            if not self._is_there(key, memoryview(data)):
                self._store.put(key, data)
        except AlreadyExistsError as error:
            if not self._is_there(key, memoryview(data)):  # removed meanwhile
                raise self._exists(key) from error
        self._progress.advance(1, len(data))

    def _large(self, name: str, pieces: Iterator[bytes], size: int) -> None:
        key = self._prefix + name
        with tempfile.TemporaryFile(dir=temporary_folder()) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
                there = not self._overwrite and self._is_there(key, data)
            if not there:
                self._uploader.put_file(self._store, key, file.fileno(), size, growing=True, cancel=self._stop)
        self._progress.advance(1, size)

    def _is_there(self, key: str, data: memoryview) -> bool:
        """Whether these very bytes are there, of an earlier run. Raises AlreadyExistsError: others are."""
        try:
            info = self._store.head(key)
            same = info.size == len(data) and all(
                memoryview(self._store.get(key, at, min(at + _LARGE, info.size)).data) == data[at : at + _LARGE]
                for at in range(0, info.size, _LARGE)
            )
        except NotFoundError:
            return False
        if not same:
            raise self._exists(key)
        return True

    def _exists(self, key: str) -> AlreadyExistsError:
        return AlreadyExistsError(
            "is there already, in other bytes", path=f"{self._store.url}/{key}", hint="an empty place, or --overwrite"
        )
