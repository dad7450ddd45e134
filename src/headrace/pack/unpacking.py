"""`unpack`: the members of shards as single objects, under their own names."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import AlreadyExistsError, InputError, NotFoundError, ReadOnlyError, UnsupportedError
from headrace.base.places import temporary_folder
from headrace.base.progress import SILENT, Progress
from headrace.namespace import Entry, Namespace
from headrace.pack.archive import SUFFIXES as TARS
from headrace.pack.archive import File, Unpackable, files_of
from headrace.pack.crew import Crew
from headrace.pack.journal import FOLDER, INDEX, PLAN
from headrace.pack.options import cores
from headrace.pack.records import SUFFIXES as RECORDS
from headrace.pack.records import files_of_records
from headrace.store.protocol import Store
from headrace.upload import Uploader

SUFFIXES = (*TARS, *RECORDS)
_WRITERS = 32
_LARGE = 16 << 20
"""Members above this size go through a temporary file, in parts."""
_IN_FLIGHT, _IN_FLIGHT_BYTES = 64, 32 << 20


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
) -> Unpacked:
    """Write every file in a shard, or in all shards below a folder, as an object below `destination`.

    Records of TFRecord (`tf.train.Example`) and Parquet give an object for each of their fields: ``<__key__>.<field>``.

    Call it from one thread. Memory: some 50 MB for each worker.

    Args:
        source: a shard, or a folder of them (tar, plain, gzip, bzip2 or xz; TFRecord; Parquet); a path or a URL.
        destination: a folder; a path or a URL.
        workers: shards read at once; 0: as many as there are cores.
        overwrite: write over what is there; else that is an error.
        namespace: where paths are looked up; default: the one of the settings.
        progress: told files, and their bytes.

    Raises:
        NotFoundError: no shards. InputError: a packing that is not finished. CorruptError: a shard that is none, is
            cut short, or has names that lead elsewhere; names shard and place. AlreadyExistsError: what would be
            overwritten. DeniedError, TryAgainError, NoRoomError.
    """
    namespace = namespace or Namespace.load()
    source, destination = namespace.named(source), namespace.named(destination)
    shards = sorted(entry.path for entry in _shards(namespace, source))
    location = namespace.resolve(destination)
    if location.read_only:
        raise ReadOnlyError("is read-only", path=destination, hint="attach it again without read_only to write there")
    prefix = location.key.strip("/") + "/" if location.key.strip("/") else ""
    crew = Crew(max(1, min(workers or cores(), len(shards))))
    pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="headrace-unpack-put")
    with Uploader() as uploader:
        target = _Target(location.store, prefix, overwrite, uploader, pool, crew.stop, progress)

        def one(number: int) -> None:
            target.write(namespace, shards[number])

        try:
            crew.run(one, range(len(shards)), "unpack")
        finally:
            pool.shutdown(wait=not crew.stop.is_set(), cancel_futures=True)
    return Unpacked(destination, len(shards), target.objects, target.bytes, target.left_out)


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


class _Target:
    """Where members go. Any thread; what one shard has under way is bounded."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        overwrite: bool,
        uploader: Uploader,
        pool: ThreadPoolExecutor,
        stop: threading.Event,
        progress: Progress,
    ) -> None:
        self._store, self._prefix, self._overwrite = store, prefix, overwrite
        self._uploader, self._pool, self._stop, self._progress = uploader, pool, stop, progress
        self._lock = threading.Lock()
        self.objects = self.bytes = self.left_out = 0

    def write(self, namespace: Namespace, shard: str) -> None:
        """All of one shard."""
        waiting: deque[tuple[Future[None], int]] = deque()
        flying = 0
        with namespace.open(shard) as file:
            for member in members_of(file, shard):
                if self._stop.is_set():
                    return
                if isinstance(member, Unpackable):
                    with self._lock:
                        self.left_out += 1
                elif member.size > _LARGE:
                    self._large(member.name, member.pieces(), member.size)
                else:
                    data = b"".join(member.pieces())
                    waiting.append((self._pool.submit(self._small, member.name, data), len(data)))
                    flying += len(data)
                while len(waiting) > _IN_FLIGHT or flying > _IN_FLIGHT_BYTES:
                    future, size = waiting.popleft()
                    future.result()
                    flying -= size
        for future, _ in waiting:
            future.result()

    def _small(self, name: str, data: bytes) -> None:
        key = self._prefix + name
        try:
            self._store.put(key, data, create=not self._overwrite)
        except UnsupportedError:
            self._must_be_absent(key)
            self._store.put(key, data)
        except AlreadyExistsError as error:
            raise self._exists(key) from error
        self._count(len(data))

    def _large(self, name: str, pieces: Iterator[bytes], size: int) -> None:
        key = self._prefix + name
        with tempfile.TemporaryFile(dir=temporary_folder()) as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            if not self._overwrite:
                self._must_be_absent(key)
            self._uploader.put_file(self._store, key, file.fileno(), size, growing=True, cancel=self._stop)
        self._count(size)

    def _must_be_absent(self, key: str) -> None:
        if self._overwrite:
            return
        try:
            self._store.head(key)
        except NotFoundError:
            return
        raise self._exists(key)

    def _exists(self, key: str) -> AlreadyExistsError:
        return AlreadyExistsError(
            "is there already", path=f"{self._store.url}/{key}", hint="an empty place, or --overwrite"
        )

    def _count(self, size: int) -> None:
        with self._lock:
            self.objects += 1
            self.bytes += size
        self._progress.advance(1, size)
