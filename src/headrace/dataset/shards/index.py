"""The index of a set of shards: made once on a node, in parallel, from the store; resumable shard by shard.

Every shard's rows are published on the node's shelf under a name made of the store's identity, key, version, size and
format, so of a set in which one shard was replaced only that one is read again, and what was scanned before a crash is
kept. The set's own rows are these, one after the other, in key order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.base.errors import CorruptError
from headrace.base.metrics import Metrics
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.dataset.shards.format import Format, Typed
from headrace.dataset.shards.reading import StoreBytes
from headrace.dataset.shards.rows import Rows, RowsWriter, join_rows
from headrace.dataset.shelf import Shelf
from headrace.fetch import Fetcher
from headrace.store.protocol import Store

FORMAT = 1
_T = TypeVar("_T")
_AT_ONCE = 16
"""Shards scanned side by side: where only headers are read, each waits for one small answer after the other."""
_HEAD = 4096
_GRACE_S = 1.0


class Shard(NamedTuple):
    """One shard. `key` is the store's; `version` as listed."""

    key: str
    size: int
    version: str | None


class ShardSet:
    """The mapped index of a set. Any thread; survives fork. `first`: int64 [shards+1], each one's first row."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.rows = Rows(folder, meta)
        self.first: npt.NDArray[np.int64] = np.fromfile(folder / "first", "<i8")
        kinds = [bytes.fromhex(one) for one in meta["preambles"]]
        self.preambles = [kinds[number] for number in meta["preamble_of"]]
        """Of each shard; see `Typed.preamble`."""


class Job(NamedTuple):
    """What indexing needs to know."""

    store: Store
    format: Format
    shards: Sequence[Shard]
    settings: Settings
    progress: Progress


def open_set(shelf: Shelf, job: Job) -> ShardSet:
    """The index of `job.shards`, made on this node if it is not there yet. By one process at a time.

    Ctrl-C ends it within moments; what is finished by then is kept.

    Raises:
        CorruptError: a shard that is none, or a damaged one: with its URL, the byte and the reason.
        ChangedError, NotFoundError: a shard is no longer the one that was listed. Any store error.
    """
    return ShardSet(*shelf.get(_name("shards", job, job.shards), lambda folder: _build(shelf, job, folder)))


def _name(kind: str, job: Job, shards: Sequence[Shard]) -> str:
    digest = xxhash.xxh3_128(f"{job.store.identity}\n{job.format.name}{job.format.version}\n".encode())
    for shard in shards:
        digest.update(f"{len(shard.key)}\n{shard.key}\n{shard.size}\n{shard.version}\n".encode())
    return f"{kind}{FORMAT}-{job.format.name}-{digest.hexdigest()}"


def _build(shelf: Shelf, job: Job, folder: Path) -> dict[str, Any]:
    names = [_name("shard", job, [shard]) for shard in job.shards]
    job.progress.total(len(names), sum(shard.size for shard in job.shards))
    missing: list[tuple[str, Shard]] = []
    for name, shard in zip(names, job.shards, strict=True):
        if shelf.find(name) is None:
            missing.append((name, shard))
        else:
            job.progress.advance(1, shard.size)
    if missing:
        _scan_all(shelf, job, missing)
    found = [_found(shelf, name, shard) for name, shard in zip(names, job.shards, strict=True)]
    kinds: dict[str, int] = {}
    preamble_of = [kinds.setdefault(meta["preamble"], len(kinds)) for _, meta in found]
    return {**join_rows(folder, found), "preambles": list(kinds), "preamble_of": preamble_of}


def _found(shelf: Shelf, name: str, shard: Shard) -> tuple[Path, dict[str, Any]]:
    found = shelf.find(name)
    if found is None:
        raise CorruptError(
            "its index was damaged while it was made", path=shard.key, hint="is the cache folder's disk well? Try again"
        )
    return found


def _scan_all(shelf: Shelf, job: Job, missing: Sequence[tuple[str, Shard]]) -> None:
    """Scan and publish, some at once. The first failure, or Ctrl-C, ends it within two seconds, come what may.

    Daemon threads, not a pool: a pool's threads are waited for when the interpreter ends, and one of ours may be in a
    read that a stalled store answers after its deadline.
    """
    fetcher = Fetcher(job.settings, None, Metrics())
    left = _Shared(enumerate(missing))
    ends: SimpleQueue[BaseException | None] = SimpleQueue()
    stopped = threading.Event()
    with shelf.workspace() as work:

        def scan_on() -> None:
            try:
                while not stopped.is_set() and (one := next(left, None)) is not None:
                    number, (name, shard) = one
                    _scan(shelf, job, _Told(job.progress, stopped), fetcher, work / str(number), name, shard)
            except BaseException as error:
                ends.put(error)
            else:
                ends.put(None)

        threads = [
            threading.Thread(target=scan_on, name=f"headrace-shards-{number}", daemon=True)
            for number in range(min(_AT_ONCE, len(missing)))
        ]
        try:
            for thread in threads:
                thread.start()
            for _ in threads:
                if (error := ends.get()) is not None:
                    raise error
        finally:
            stopped.set()
            deadline = time.monotonic() + _GRACE_S
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            fetcher.close()


class _Shared(Iterator[_T]):
    """An iterator that several threads share."""

    def __init__(self, values: Iterable[_T]) -> None:
        self._values = iter(values)
        self._lock = threading.Lock()

    def __next__(self) -> _T:
        with self._lock:
            return next(self._values)


def _scan(shelf: Shelf, job: Job, told: _Told, fetcher: Fetcher, folder: Path, name: str, shard: Shard) -> None:
    data = StoreBytes(fetcher, job.store, shard.key, shard.size, shard.version, told.advance)
    if not job.format.recognise(data.read(0, _HEAD)):
        raise CorruptError(
            f"at byte 0: this is no {job.format.name}" if shard.size else "at byte 0: the shard is empty",
            path=data.path,
            hint='is it damaged? format="objects" takes every object as it is',
        )
    folder.mkdir()
    writer = RowsWriter(folder, data.path)
    preamble = job.format.preamble(data) if isinstance(job.format, Typed) else b""
    writer.add(job.format.scan(data))
    shelf.publish(folder, name, {**writer.meta(), "preamble": preamble.hex()})
    job.progress.advance(1, max(0, shard.size - told.bytes))


class _StoppedError(Exception):
    """Another shard failed, or the user wants it to end."""


class _Told:
    """Bytes of one shard that progress has heard of; the place where a scan learns that it is to end."""

    def __init__(self, progress: Progress, stopped: threading.Event) -> None:
        self.bytes = 0
        self._progress, self._stopped = progress, stopped

    def advance(self, size: int) -> None:
        if self._stopped.is_set():
            raise _StoppedError
        self.bytes += size
        self._progress.advance(0, size)
