"""The index, written with the shards: of where members were put, or of the temporary file; never from the store."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import IO

from headrace.base.progress import SILENT
from headrace.base.settings import Settings
from headrace.catalog import IndexFolder, Shelf
from headrace.formats import (
    INDEX_BESIDE,
    Format,
    Job,
    Member,
    ScannedShard,
    Shard,
    export_index,
    find_set,
    format_named,
    index_bytes,
    index_members,
    put_scanned,
    scan_shards,
    split_name,
)
from headrace.pack.journal import Journal, Record
from headrace.pack.layouts import Layout
from headrace.pack.tar import Places
from headrace.store.protocol import ObjectInfo


class ShardIndex:
    """Gathers shards' rows on this node's shelf, and writes them beside the shards. `add`: any thread.

    Shards that an earlier run made are on the shelf too, or are scanned from the store; of those that another node has
    made it sends the rows.
    """

    def __init__(self, journal: Journal, layout: Layout, settings: Settings) -> None:
        self._journal, self._settings = journal, settings
        self._format: Format | None = None if layout.format is None else format_named(layout.format)
        self._shelf = Shelf.of(settings)

    def add(self, info: ObjectInfo, places: Places | None, file: IO[bytes] | None) -> None:
        """Index a shard that is in the store as `info`: by where its members were put, else from the file it was sent
        from.
        """
        if self._format is None:
            return
        shard = Shard(info.key, info.size, info.version)
        job = self._job([shard])
        with contextlib.suppress(OSError):  # no room on the shelf: it is scanned later, or by who opens it
            if places is not None:
                index_members(self._shelf, job, shard, info.key, members_in(places))
            elif file is not None:
                index_bytes(self._shelf, job, shard, _Local(file, info.key, info.size))

    def rows(self, record: Record) -> ScannedShard | None:
        """A finished shard's rows, for another node's `take`; None where it needs none. Raises what scanning raises."""
        if self._format is None or record.empty:
            return None
        shard = Shard(self._journal.prefix + record.name, record.size, record.version)
        with contextlib.suppress(OSError):  # no room on the shelf: as in `add`
            return scan_shards(self._shelf, self._job([shard]), [shard])[0]
        return None

    def take(self, rows: ScannedShard) -> None:
        """Have the rows of a shard that was made elsewhere. Any thread."""
        with contextlib.suppress(OSError):
            put_scanned(self._shelf, self._job([rows.shard]), rows)

    def write(self, records: list[Record]) -> None:
        """Write the index of all shards that have samples. Raises what scanning and writing raise."""
        if self._format is None:
            return
        journal = self._journal
        found = journal.listing()
        infos = [found[record.name] for record in records if not record.empty]
        shards = [
            Shard(info.key, info.size, info.version) for info in sorted(infos, key=lambda info: info.key.encode())
        ]
        if not shards:
            return
        job = self._job(shards)
        export_index(find_set(self._shelf, job), job, IndexFolder(journal.store, journal.prefix + INDEX_BESIDE))

    def _job(self, shards: list[Shard]) -> Job:
        assert self._format is not None
        return Job(self._journal.store, self._format, shards, self._settings, SILENT, root=self._journal.prefix)


def members_in(places: Places) -> Iterator[Member]:
    """As a reader finds them; see `headrace.formats.tar.tar`."""
    for name, start, stop in places:
        key, part = split_name(name)
        if part:
            yield Member(key, part, start, stop)


class _Local:
    """A `headrace.formats.shard_format.ShardBytes` over a file. One thread."""

    def __init__(self, file: IO[bytes], path: str, size: int) -> None:
        self.path, self.size = path, size
        self._handle = file.fileno()

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`."""
        return memoryview(os.pread(self._handle, max(0, min(stop, self.size) - start), start))
