"""The footers of a set of files: read once on a node, in parallel, from the store; kept file by file on its shelf."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import xxhash

from headrace.base.errors import CorruptError
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.catalog import Shelf
from headrace.formats.index.index_job import Shard
from headrace.formats.index.parallel_scan import Told, scan_all
from headrace.formats.index.shard_bytes import Reader, StoreBytes
from headrace.formats.tables.table_kind import TableKind
from headrace.store.protocol import Store

FORMAT = 1
_FILE = "footer"


class Job(NamedTuple):
    """What indexing needs to know. `prefix`: of the root, above the files' names."""

    store: Store
    prefix: str
    kind: TableKind
    files: Sequence[Shard]
    settings: Settings
    progress: Progress

    def name(self, what: str, files: Sequence[Shard], *more: str) -> str:
        """On the shelf."""
        digest = xxhash.xxh3_128(f"{self.store.identity}\n{self.prefix}\n{self.kind.version}\n".encode())
        for file in files:
            digest.update(f"{len(file.key)}\n{file.key}\n{file.size}\n{file.version}\n".encode())
        for text in more:
            digest.update(f"{len(text)}\n{text}\n".encode())
        return f"{what}{FORMAT}-{self.kind.name}-{digest.hexdigest()}"


def read_footers(shelf: Shelf, job: Job) -> list[bytes]:
    """What each file's footer says, of this kind's own making.

    Raises:
        CorruptError: a file that is none, or a damaged one. ChangedError, NotFoundError: a file is no longer the one
        that was listed. UnsupportedError. Any store error.
    """
    names = [job.name("footer", [file]) for file in job.files]
    job.progress.total(len(names), sum(file.size for file in job.files))
    missing: list[tuple[str, Shard]] = []
    for name, file in zip(names, job.files, strict=True):
        if shelf.find(name) is None:
            missing.append((name, file))
        else:
            job.progress.advance(1, file.size)
    if missing:

        def scan(one: tuple[str, Shard], reader: Reader, folder: Path, stopped: threading.Event) -> None:
            _scan(shelf, job, Told(job.progress, stopped), reader, folder, *one)

        scan_all(shelf, job.settings, missing, scan)
    return [_found(shelf, name, file) for name, file in zip(names, job.files, strict=True)]


def _scan(shelf: Shelf, job: Job, told: Told, reader: Reader, folder: Path, name: str, file: Shard) -> None:
    footer = job.kind.footer(StoreBytes(reader, job.store, file.key, file.size, file.version, told.advance))
    folder.mkdir()
    (folder / _FILE).write_bytes(footer)
    shelf.publish(folder, name, {})
    job.progress.advance(1, max(0, file.size - told.bytes))


def _found(shelf: Shelf, name: str, file: Shard) -> bytes:
    found = shelf.find(name)
    if found is None:
        raise CorruptError(
            "its index was damaged while it was made", path=file.key, hint="is the cache folder's disk well? Try again"
        )
    return (found[0] / _FILE).read_bytes()
