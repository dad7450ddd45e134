"""The index, written with the shards: each is scanned while its temporary file is at hand, not from the store."""

from __future__ import annotations

import contextlib
import os
from typing import IO

from headrace.base.progress import SILENT
from headrace.base.settings import Settings
from headrace.dataset.shards.adopt import BESIDE, Kept, export
from headrace.dataset.shards.format import Format
from headrace.dataset.shards.formats import format_named
from headrace.dataset.shards.index import Job, Shard, find_set, index_bytes
from headrace.dataset.shelf import Shelf
from headrace.pack.journal import Journal, Record
from headrace.pack.layouts import Layout
from headrace.store.protocol import ObjectInfo


class ShardIndex:
    """Gathers shards' rows on this node's shelf, and writes them beside the shards. `add`: any thread.

    Shards that an earlier run made are on the shelf too, or are scanned from the store.
    """

    def __init__(self, journal: Journal, layout: Layout, settings: Settings) -> None:
        self._journal, self._settings = journal, settings
        self._format: Format | None = None if layout.format is None else format_named(layout.format)
        self._shelf = Shelf.of(settings)

    def add(self, number: int, file: IO[bytes], info: ObjectInfo) -> None:
        """Index a shard that is in the store as `info`, from the file it was sent from."""
        del number
        if self._format is None:
            return
        shard = Shard(info.key, info.size, info.version)
        with contextlib.suppress(OSError):  # no room on the shelf: it is scanned later, or by who opens it
            index_bytes(self._shelf, self._job([shard]), shard, _Local(file, info.key, info.size))

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
        export(find_set(self._shelf, job), job, Kept(journal.store, journal.prefix + BESIDE))

    def _job(self, shards: list[Shard]) -> Job:
        assert self._format is not None
        return Job(self._journal.store, self._format, shards, self._settings, SILENT, root=self._journal.prefix)


class _Local:
    """A `headrace.dataset.shards.format.ShardBytes` over a file. One thread."""

    def __init__(self, file: IO[bytes], path: str, size: int) -> None:
        self.path, self.size = path, size
        self._handle = file.fileno()

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`."""
        return memoryview(os.pread(self._handle, max(0, min(stop, self.size) - start), start))
