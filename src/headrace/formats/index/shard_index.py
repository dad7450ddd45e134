"""The index of a set of shards: made once on a node, in parallel, from the store; resumable shard by shard.

Every shard's rows are published on the node's shelf under a name made of the store's identity, key, version, size and
format, so of a set in which one shard was replaced only that one is read again, and what was scanned before a crash is
kept. The set's own rows are these, one after the other, in key order.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.base.errors import CorruptError, NotFoundError
from headrace.base.metrics import Metrics
from headrace.catalog import Shelf
from headrace.fetch import Fetcher
from headrace.formats.codecs.decompressed_stream import StreamBytes, seen_through
from headrace.formats.index.index_job import Job, Packed, Shard
from headrace.formats.index.parallel_scan import Told, scan_all
from headrace.formats.index.shard_bytes import Reader, StoreBytes, reader_of
from headrace.formats.index.shard_rows import Rows, RowsWriter, join_rows
from headrace.formats.index.stored_index import adopt
from headrace.formats.shard_format import Accompanied, Alike, Format, Member, Paired, ShardBytes, Typed, groups_of

FORMAT = 1
_HEAD = 4096  # bytes by which it is told what a file is that is no shard


class ShardSet:
    """The mapped index of a set. Any thread; survives fork. `first`: int64 [shards+1], each one's first row."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.rows = Rows(folder, meta)
        self.first: npt.NDArray[np.int64] = np.fromfile(folder / "first", "<i8")
        kinds = [bytes.fromhex(one) for one in meta["preambles"]]
        self.preambles = [kinds[number] for number in meta["preamble_of"]]
        """Of each shard; see `Typed.preamble`."""
        self.packed: dict[int, Packed] = {int(number): Packed(*one) for number, one in meta.get("packed", {}).items()}
        """The compressed shards, by number."""


class ScannedShard(NamedTuple):
    """One shard's rows, as another machine takes them: the files of its folder on the shelf, and their meta data."""

    shard: Shard
    files: Mapping[str, bytes]
    meta: Mapping[str, Any]


def open_set(shelf: Shelf, job: Job) -> ShardSet:
    """The index of `job.shards`, made on this node if it is not there yet. By one process at a time.

    Ctrl-C ends it within moments; what is finished by then is kept.

    Raises:
        CorruptError: a shard that is none, or a damaged one: with its URL, the byte and the reason.
        ChangedError, NotFoundError: a shard is no longer the one that was listed. Any store error.
    """
    return ShardSet(*find_set(shelf, job))


def find_set(shelf: Shelf, job: Job) -> tuple[Path, dict[str, Any]]:
    """As `open_set`: the set's folder on the shelf and its meta data, for `formats.index.stored_index.export_index`."""
    return shelf.get(_name("shards", job, job.shards), lambda folder: _build(shelf, job, folder))


def scan_shards(shelf: Shelf, job: Job, shards: Sequence[Shard]) -> list[ScannedShard]:
    """The rows of some shards of the job, read where this node does not know them, for another machine.

    Raises as `open_set`.
    """
    names = [_name("shard", job, [shard]) for shard in shards]
    missing = [one for one in zip(names, shards, strict=True) if shelf.find(one[0]) is None]
    _scan_missing(shelf, job, missing, _about(job) if missing else {})
    scanned: list[ScannedShard] = []
    for name, shard in zip(names, shards, strict=True):
        folder, meta = _found(shelf, name, shard)
        files = {file: (folder / file).read_bytes() for file in meta["files"]}
        told = {key: one for key, one in meta.items() if key not in ("files", "boot")}
        scanned.append(ScannedShard(shard, files, told))
    return scanned


def put_scanned(shelf: Shelf, job: Job, scanned: ScannedShard) -> None:
    """Put rows that another machine has scanned on the shelf. Any thread."""
    with shelf.workspace() as work:
        folder = work / "0"
        folder.mkdir()
        for name, data in scanned.files.items():
            (folder / name).write_bytes(data)
        shelf.publish(folder, _name("shard", job, [scanned.shard]), dict(scanned.meta))
        job.progress.advance(1, max(0, scanned.shard.size))


def index_bytes(shelf: Shelf, job: Job, shard: Shard, data: ShardBytes) -> None:
    """Put one shard's rows on the shelf from bytes at hand, so that `find_set` need not read it. Any thread.

    Raises CorruptError.
    """
    preamble = job.format.preamble(data) if isinstance(job.format, Typed) else b""
    index_members(shelf, job, shard, data.path, groups_of(job.format, data), preamble)


def index_members(
    shelf: Shelf, job: Job, shard: Shard, path: str, members: Iterable[Member | Alike], preamble: bytes = b""
) -> None:
    """As `index_bytes`, of members that are known already, in the order in which they lie in the shard at URL `path`.

    Raises CorruptError.
    """
    with shelf.workspace() as work:
        folder = work / "0"
        folder.mkdir()
        writer = RowsWriter(folder, path)
        writer.add(members)
        shelf.publish(folder, _name("shard", job, [shard]), {**writer.meta(), "preamble": preamble.hex()})


def _name(kind: str, job: Job, shards: Sequence[Shard]) -> str:
    digest = xxhash.xxh3_128(f"{job.store.identity}\n{job.format.name}{job.format.version}\n".encode())
    for shard in shards:
        digest.update(f"{len(shard.key)}\n{shard.key}\n{shard.size}\n{shard.version}\n".encode())
        near = (job.beside or {}).get(shard.key) or (job.beside or {}).get(_folder(shard.key))
        if near is not None:
            digest.update(f"beside\n{near.size}\n{near.version}\n".encode())
    return f"{kind}{FORMAT}-{job.format.name}-{digest.hexdigest()}"


def _build(shelf: Shelf, job: Job, folder: Path) -> dict[str, Any]:
    if (adopted := adopt(job, folder)) is not None:
        return adopted
    names = [_name("shard", job, [shard]) for shard in job.shards]
    job.progress.total(len(names), sum(shard.size for shard in job.shards))
    about = _about(job)
    missing: list[tuple[str, Shard]] = []
    for name, shard in zip(names, job.shards, strict=True):
        if shelf.find(name) is None:
            missing.append((name, shard))
        else:
            job.progress.advance(1, shard.size)
    if missing and job.elsewhere is not None:
        job.elsewhere(shelf, job, [shard for _, shard in missing])
    else:
        _scan_missing(shelf, job, missing, about)
    found = [_found(shelf, name, shard) for name, shard in zip(names, job.shards, strict=True)]
    kinds: dict[str, int] = {}
    preamble_of = [kinds.setdefault(meta["preamble"], len(kinds)) for _, meta in found]
    packed = {str(number): meta["packed"] for number, (_, meta) in enumerate(found) if "packed" in meta}
    more = {"packed": packed} if packed else {}
    return {**join_rows(folder, found), "preambles": list(kinds), "preamble_of": preamble_of, **more}


def _scan_missing(
    shelf: Shelf, job: Job, missing: Sequence[tuple[str, Shard]], about: Mapping[str, Any]
) -> None:
    if not missing:
        return

    def scan(one: tuple[str, Shard], reader: Reader, folder: Path, stopped: threading.Event) -> None:
        _scan(shelf, job, Told(job.progress, stopped), reader, folder, *one, about)

    scan_all(shelf, job.settings, missing, scan)


def _found(shelf: Shelf, name: str, shard: Shard) -> tuple[Path, dict[str, Any]]:
    found = shelf.find(name)
    if found is None:
        raise CorruptError(
            "its index was damaged while it was made", path=shard.key, hint="is the cache folder's disk well? Try again"
        )
    return found


def _about(job: Job) -> Mapping[str, Any]:
    """What lies beside the shards says of them, by folder. Read whenever a set is put together: it names the shards
    that there should be.
    """
    if not isinstance(job.format, Accompanied) or not job.beside:
        return {}
    names: dict[str, list[str]] = {}
    for shard in job.shards:
        folder = _folder(shard.key)
        names.setdefault(folder, []).append(shard.key[len(folder) :])
    fetcher = Fetcher(job.settings, None, Metrics())
    try:
        return {
            folder: job.format.about(StoreBytes(reader_of(fetcher), job.store, *near, _nothing), names[folder])
            for folder, near in job.beside.items()
            if folder in names
        }
    finally:
        fetcher.close()


def _folder(key: str) -> str:
    return key[: key.rfind("/") + 1]


def _kind(job: Job, reader: Reader, shard: Shard, path: str) -> Format:
    """The format as it reads that shard."""
    if not isinstance(job.format, Paired):
        return job.format
    near = (job.beside or {}).get(shard.key)
    if near is None:
        pair = path.rpartition(".")[0] + job.format.paired
        raise NotFoundError(f"there is no {job.format.paired} beside the shard", path=pair, hint="copy it there, too")
    return job.format.with_pair(StoreBytes(reader, job.store, *near, _nothing))


def _nothing_else(_: memoryview) -> None:
    """Looks like nothing in particular."""


def _nothing(_: int) -> None:
    """Progress counts shards only."""


def _scan(
    shelf: Shelf,
    job: Job,
    told: Told,
    reader: Reader,
    folder: Path,
    name: str,
    shard: Shard,
    about: Mapping[str, Any],
) -> None:
    stored = StoreBytes(reader, job.store, shard.key, shard.size, shard.version, told.advance)
    data = seen_through(job.format, stored)
    if data is None:
        looks_like = getattr(job.format, "looks_like", _nothing_else)
        what = f"this is no {job.format.name.partition('-')[0]}" if shard.size else "the shard is empty"
        raise CorruptError(
            f"at byte 0: {what}",
            path=stored.path,
            hint=looks_like(stored.read(0, _HEAD)) or 'is it damaged? format="objects" takes every object as it is',
        )
    folder.mkdir()
    writer = RowsWriter(folder, data.path)
    kind = _kind(job, reader, shard, data.path)
    if isinstance(kind, Accompanied):
        preamble = kind.preamble(data, about.get(_folder(shard.key)))
    else:
        preamble = kind.preamble(data) if isinstance(kind, Typed) else b""
    writer.add(groups_of(kind, data))
    packed = {"packed": Packed(data.codec, data.finish())} if isinstance(data, StreamBytes) else {}
    shelf.publish(folder, name, {**writer.meta(), "preamble": preamble.hex(), **packed})
    job.progress.advance(1, max(0, shard.size - told.bytes))
