"""Many segments of metrics in one object, sorted by metric: who wants one metric of a day reads 24 pieces, not 8,640.

    metrics/rollup/<first:08d>-<last:08d>.parquet         the points of these segments, by name, rank and time; a row
                                                          group holds one metric
                   <first:08d>-<last:08d>.blocks.parquet  the same in short, as `headrace.tracking.blocks` has it

Both say ``headrace.format`` in their metadata, the first ``headrace.names`` too: a JSON list of the metric of each row
group. Segments stay: what reads the run in its order, or is older, reads them. Whoever deletes a rollup loses nothing.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy as np

from headrace.base.errors import CorruptError, NotFoundError, UnsupportedError
from headrace.store.protocol import Store
from headrace.tracking.arrow import Table, as_schema, numbers, pa, pq, texts, to_array
from headrace.tracking.blocks import BLOCK, Blocks, blocks_of
from headrace.tracking.points import SCHEMA, table
from headrace.tracking.segments import publishing

FORMAT: Final = 1
FOLDER: Final = "rollup/"
_NAME: Final = re.compile(r"([0-9]{8,})-([0-9]{8,})\.parquet")
_BLOCKS: Final = ".blocks.parquet"
_ROWS: Final = 1 << 17
"""Of a row group, at most: who looks closely at a stretch reads no more than it needs."""
_FOOTER: Final = 1 << 16
"""Bytes at the end of the file that mostly hold all that Parquet says of it."""
_ENCODINGS: Final = {"time": "DELTA_BINARY_PACKED", "step": "DELTA_BINARY_PACKED", "value": "BYTE_STREAM_SPLIT"}


def write_rollup(folder: str, first: int, last: int, points: Table) -> Blocks:
    """Those of the segments `first` to `last` into `folder`, a local one. Returns them in short. Raises OSError."""
    os.makedirs(folder, exist_ok=True)
    whole, blocks = blocks_of(points)
    path = os.path.join(folder, f"{first:08d}-{last:08d}")
    with publishing(f"{path}{_BLOCKS}") as file:
        pq.write_table(_as_table(blocks), file, compression="zstd", write_page_checksum=True)
    with publishing(f"{path}.parquet") as file:
        _write_points(whole, blocks, file)
    return blocks


def _write_points(whole: Table, blocks: Blocks, file: Any) -> None:
    """A row group a metric, several where it is long."""
    groups: list[tuple[str, int, int]] = []
    array, names = blocks.array, blocks.names
    starts = [int(array["row"][at]) for at in np.flatnonzero(np.diff(array["code"], prepend=-1))]
    codes = [int(array["code"][at]) for at in np.flatnonzero(np.diff(array["code"], prepend=-1))]
    for code, (start, stop) in zip(codes, pairwise([*starts, whole.num_rows]), strict=True):
        groups += [(names[code], at, min(_ROWS, stop - at)) for at in range(start, stop, _ROWS)]
    told = {"headrace.format": str(FORMAT), "headrace.names": json.dumps([name for name, _, _ in groups])}
    with pq.ParquetWriter(
        file, SCHEMA.with_metadata(told), compression="zstd", write_page_checksum=True, use_dictionary=["name"],
        column_encoding=_ENCODINGS,
    ) as writer:  # fmt: skip
        for name, at, count in groups:
            rows = whole.slice(at, count)
            only = pa.DictionaryArray.from_arrays(numbers(np.zeros(count, np.int32), pa.int32()), texts([name]))
            writer.write_table(rows.set_column(SCHEMA.names.index("name"), SCHEMA.field("name"), only), _ROWS)


def _as_table(blocks: Blocks) -> Table:
    columns = {"name": pa.DictionaryArray.from_arrays(
        numbers(np.ascontiguousarray(blocks.array["code"]), pa.int32()), texts(blocks.names)
    )}  # fmt: skip
    for name in BLOCK.names or ():
        if name != "code":
            column = np.ascontiguousarray(blocks.array[name])
            columns[name] = numbers(column, pa.from_numpy_dtype(column.dtype))
    made = pa.Table.from_arrays(list(columns.values()), names=list(columns))
    return made.replace_schema_metadata({"headrace.format": str(FORMAT)})


def _from_table(read: Table) -> Blocks:
    whole = read.unify_dictionaries().combine_chunks()
    array = np.empty(read.num_rows, BLOCK)
    names: tuple[str, ...] = ()
    if read.num_rows:
        coded = whole.column("name").chunk(0)
        names, array["code"] = tuple(coded.dictionary.to_pylist()), to_array(coded.indices, np.int32)
        for name in BLOCK.names or ():
            if name != "code":
                array[name] = to_array(whole.column(name).chunk(0), BLOCK[name])
    return Blocks(names, array)


@dataclass(frozen=True)
class Rollup:
    """One of them. `prefix`: that of all rollups of its run; `first`, `last`: numbers of segments; `size`: bytes.

    Any thread. All that reads raises CorruptError, UnsupportedError, any store error.
    """

    store: Store = field(repr=False)
    prefix: str
    first: int
    last: int
    size: int

    @property
    def key(self) -> str:
        """Of the object with the points."""
        return f"{self.prefix}{self.first:08d}-{self.last:08d}.parquet"

    def blocks(self) -> Blocks:
        """The points in short. Where nobody has written that, they are read."""
        key = self.key.removesuffix(".parquet") + _BLOCKS
        try:
            blob = self.store.get(key)
        except NotFoundError:
            return blocks_of(self.read())[1]
        with _translated(f"{self.store.url}/{key}"):
            file = pq.ParquetFile(pa.BufferReader(blob.data), page_checksum_verification=True)
            _check(file.metadata.metadata or {}, key)
            return _from_table(file.read(use_threads=False))

    def read(self, names: Collection[str] = ()) -> Table:
        """Its points, by name, rank and time. `names`: only of these metrics, or shell patterns."""
        if not names:
            with _translated(f"{self.store.url}/{self.key}"):
                data = self.store.get(self.key).data
                file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
                return as_schema(file.read(use_threads=False), SCHEMA)
        wanted = {name for name in self._names if any(name == one or fnmatchcase(name, one) for one in names)}
        return self._groups([at for at, name in enumerate(self._names) if name in wanted])

    def rows(self, start: int, stop: int) -> Table:
        """Those rows of its points, [start, stop): `row` of a block, and the rows behind it."""
        ends = self._ends
        groups = [at for at, end in enumerate(ends) if end > start and (ends[at - 1] if at else 0) < stop]
        before = ends[groups[0] - 1] if groups and groups[0] else 0
        return self._groups(groups).slice(start - before, stop - start)

    def _groups(self, groups: Sequence[int]) -> Table:
        """Each stretch of neighbours is one request."""
        tables = [table(())]
        with _translated(f"{self.store.url}/{self.key}"):
            for first, last in _neighbours(groups):
                start, stop = _span(self._footer, first)[0], _span(self._footer, last)[1]
                piece = _Piece(self.size, start, self.store.get(self.key, start, stop).data)
                file = pq.ParquetFile(pa.PythonFile(piece, "r"), metadata=self._footer, page_checksum_verification=True)
                tables.append(as_schema(file.read_row_groups(list(range(first, last + 1)), use_threads=False), SCHEMA))
            return pa.concat_tables(tables)

    @cached_property
    def _footer(self) -> Any:
        """What Parquet says of the file."""
        with _translated(f"{self.store.url}/{self.key}"):
            start = max(0, self.size - _FOOTER)
            data = self.store.get(self.key, start, self.size).data
            length = int.from_bytes(data[-8:-4], "little") + 8
            if length > len(data):
                start = max(0, self.size - length)
                data = self.store.get(self.key, start, self.size).data
            told = pq.read_metadata(pa.PythonFile(_Piece(self.size, start, data), "r"))
            _check(told.metadata or {}, self.key)
            return told

    @cached_property
    def _names(self) -> list[str]:
        return list(json.loads((self._footer.metadata or {})[b"headrace.names"]))

    @cached_property
    def _ends(self) -> list[int]:
        """The number of rows up to the end of each row group."""
        told = self._footer
        return np.cumsum([told.row_group(at).num_rows for at in range(told.num_row_groups)]).tolist()


class _Piece(io.RawIOBase):
    """A file of `size` bytes of which those from `start` on are here."""

    def __init__(self, size: int, start: int, data: memoryview) -> None:
        super().__init__()
        self._size, self._start, self._data, self._at = size, start, data, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Raises ValueError: it lies elsewhere."""
        start = self._at - self._start
        stop = len(self._data) if size < 0 else min(start + size, len(self._data))
        if start < 0 or (stop < start + size and self._start + stop < self._size):
            raise ValueError("its footer leads elsewhere")
        self._at = self._start + stop
        return bytes(self._data[start:stop])


def _span(footer: Any, group: int) -> tuple[int, int]:
    """Where the bytes of a row group are."""
    told = footer.row_group(group)
    columns = [told.column(at) for at in range(told.num_columns)]
    starts = [min(one.dictionary_page_offset or one.data_page_offset, one.data_page_offset) for one in columns]
    ends = [at + one.total_compressed_size for at, one in zip(starts, columns, strict=True)]
    return min(starts), max(ends)


def _neighbours(groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and last of each stretch of numbers without a gap."""
    there = set(groups)
    firsts = sorted(one for one in there if one - 1 not in there)
    lasts = sorted(one for one in there if one + 1 not in there)
    yield from zip(firsts, lasts, strict=True)


def rollups(store: Store, prefix: str, *, after: int = -1) -> list[Rollup]:
    """Of a run, those that follow the segment `after` (-1: all of them) and each other: one listing. `prefix`: of its
    metrics.

    Raises any store error.
    """
    below = prefix + FOLDER
    found = [
        Rollup(store, below, int(match[1]), int(match[2]), info.size)
        for page in store.list(below)
        for info in page
        if (match := _NAME.fullmatch(info.key[len(below) :]))
    ]
    return list(_following(sorted(found, key=lambda one: (one.first, -one.last)), after + 1))


def _following(found: list[Rollup], due: int) -> Iterator[Rollup]:
    """What comes after a gap is left to its segments. Of two that begin alike the longer one counts."""
    for one in found:
        if one.first == due:
            due = one.last + 1
            yield one


def _check(told: Any, where: str) -> None:
    """Raises ValueError, UnsupportedError."""
    if (found := told.get(b"headrace.format")) is None:
        raise ValueError("it does not say headrace.format")
    if int(found) > FORMAT:
        reason = f"is a rollup of format {int(found)}; this version reads up to {FORMAT}"
        raise UnsupportedError(reason, path=where, hint="update headrace, or delete it: its segments are read then")


@contextmanager
def _translated(where: str) -> Generator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        hint = "delete it: its segments are read then"
        raise CorruptError(f"is no rollup of metrics: {error}", path=where, hint=hint) from error
