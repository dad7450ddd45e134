"""The sample index over tables: a sample is a row, its parts are the stretches of its row group."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from headrace.base.progress import SILENT
from headrace.catalog import KEY, Abilities, IndexFolder, Part, Rows, SampleIndex, SampleSpec, Shelf, Stage
from headrace.formats.tables.footers import Job
from headrace.formats.tables.row_decoding import GROUP, ROW, Decoder, Matches, TableRows
from headrace.formats.tables.row_group import RowGroup, Scheme
from headrace.formats.tables.table_view import Wanted, open_view
from headrace.namespace.home import url_of

_GROUPS = 4096  # row groups kept, without their bytes
_THREADS = 2
"""Decoding is shared by the rows of a group: more threads would wait for one another."""


def as_table(index: SampleIndex) -> TableSamples | None:
    """The table whose rows an index holds; None where samples are no rows of one."""
    found = index.abilities.table
    return found if isinstance(found, TableSamples) else None


class TableSamples:
    """A `headrace.catalog.sample_index.SampleIndex`. Any thread; survives fork.

    Rows come file after file in key order, within a file as they lie there; those of row groups that ``where`` rules
    out are not counted. ``__key__`` is the row's number in its file, unless it has a key of its own
    (`catalog.record_keys`), which takes decoding it; the extra field ``__shard__`` is the file's name below the
    root.
    """

    pinned = True
    """Always: a footer says where the bytes lie of one version of a file only."""
    classes: list[str] | None = None
    home: IndexFolder | None = None
    """Of a snapshot: where what is known of these samples is kept beside it."""

    def __init__(self, job: Job, wanted: Wanted, shelf: Shelf) -> None:
        self._job, self._shelf = job, shelf
        self.store, self.prefix, self.kind = job.store, job.prefix, job.kind
        self._view, partitions = open_view(shelf, job, wanted)
        self._files = list(job.files)
        self._names = [file.key[len(job.prefix) :] for file in job.files]
        where = wanted.where
        self.scheme = Scheme(
            job.kind,
            self._view.schema,
            self._view.columns,
            self._view.read,
            partitions,
            None if where is None else where.expression(),
        )
        self.first = self._view.first
        """Int64 [groups+1]: each row group's first row."""
        self.sizes_of_groups = self._view.bytes_of()
        self.fingerprint = self._digest(wanted)
        decoder = Decoder()
        rows = Stage("map", TableRows(decoder, own=KEY in self._view.columns), _THREADS)
        matches = (Stage("filter", Matches(decoder), _THREADS),) if where is not None else ()
        self.stages: tuple[Stage, ...] = (*matches, rows)
        """What makes values of the bytes."""
        self.group = lru_cache(_GROUPS)(self._group)
        """Row group `number` of the set: the same object for all of its rows."""

    def __len__(self) -> int:
        return int(self.first[-1])

    def __repr__(self) -> str:
        below = url_of(self.store, self.prefix)
        return f"<{len(self):,} rows of {len(self._files):,} {self.kind.name} files below {below}>"

    @property
    def abilities(self) -> Abilities:
        """See `SampleIndex.abilities`."""
        return Abilities(
            table=self, blocks=self.blocks, folders=self.folders, stages=self.stages, home=self.home, shares=True
        )

    @property
    def named(self) -> TableSamples:
        """The same rows, of which only their own keys are read. Only where no ``where`` rules any out."""
        return TableSamples(self._job._replace(progress=SILENT), Wanted((KEY,)), self._shelf)

    def groups_of(self, rows: Rows) -> Rows:
        """The row group in which each row lies."""
        return np.searchsorted(self.first, rows, side="right").astype(np.int64) - 1

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        rows = self._checked(rows)
        numbers = self.groups_of(rows)
        within = (rows - self.first[numbers]).tolist()
        specs: list[SampleSpec] = []
        for number, row in zip(numbers.tolist(), within, strict=True):
            group = self.group(number)
            extra = {"__shard__": group.name, GROUP: group, ROW: row}
            specs.append((f"{group.first + row:08d}", group.parts, extra))
        return specs

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`: a row's share of its row group."""
        numbers = self.groups_of(self._checked(rows))
        return np.maximum(self.sizes_of_groups[numbers] // np.diff(self.first)[numbers], 1)

    def blocks(self, size: int) -> Rows:
        """The rows at which blocks of about `size` bytes begin, the first being 0: whole row groups of one file."""
        at = np.cumsum(self.sizes_of_groups) - self.sizes_of_groups
        files = self._view.groups[:, 0]
        starts: list[int] = []
        begun = 0
        for number in range(len(at)):
            new_file = number == 0 or files[number] != files[number - 1]
            if new_file or at[number] + self.sizes_of_groups[number] - begun > size:
                starts.append(number)
                begun = int(at[number])
        return self.first[np.asarray(starts, np.int64)]

    def folders(self) -> Rows:
        """The rows at which another file begins, the first being 0."""
        files = self._view.groups[:, 0]
        return self.first[:-1][np.diff(files, prepend=-1) != 0]

    def _group(self, number: int) -> RowGroup:
        file, inner, rows, first = self._view.groups[number].tolist()
        shard = self._files[file]
        ranges = self._view.ranges[self._view.at[number] : self._view.at[number + 1]].tolist()
        parts = tuple(
            Part(str(place), shard.key, shard.size, shard.version, start, stop)
            for place, (start, stop) in enumerate(ranges)
        )
        url = url_of(self.store, shard.key)
        footer = self._view.footer(file)
        return RowGroup(self.scheme, shard, file, self._names[file], url, inner, rows, first, parts, footer)

    def _checked(self, rows: Rows) -> Rows:
        rows = np.asarray(rows, np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)} samples")
        return rows

    def _digest(self, wanted: Wanted) -> str:
        """Of the files' names below the root, sizes and versions, and of what is wanted of them, keys apart."""
        columns = tuple(name for name in self._view.columns if name != KEY)
        digest = hashlib.sha256(f"{columns}\n{wanted.where}\n".encode())
        for name, (_, size, version) in zip(self._names, self._files, strict=True):
            digest.update(f"{len(name)}\n{name}\n{size}\n{version}\n".encode())
        return f"{self.kind.name}{self.kind.version}-{digest.hexdigest()[:32]}"
