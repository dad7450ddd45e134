"""Parquet, as https://parquet.apache.org/docs/file-format/ has it: column chunks of row groups, found by the footer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from headrace.base.arrow import Expression, Schema, Table, first_line, pa, pq
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.shard_format import ShardBytes
from headrace.formats.tables.sparse_file import SparseFile
from headrace.formats.tables.table_kind import Pieces, joined
from headrace.store.protocol import Buffer

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_TAIL = 64 << 10  # bytes of the first read: most footers end there
_LONGEST = 256 << 20  # bytes of a footer: a larger one is damage, or an attack on memory
_GAP = 256 << 10
"""Bytes of columns not wanted between two that are, which are rather read along than asked around."""
_PADDING = 100
"""parquet-mr of long ago did not count the dictionary's header; readers of its files allow for that (PARQUET-816)."""


class Parquet:
    """See `headrace.formats.tables.table_kind.TableKind`."""

    name = "parquet"
    version = 1
    suffixes = (".parquet", ".parq", ".pq")

    def footer(self, file: ShardBytes) -> bytes:
        """See `Kind.footer`: meta data, its length, magic, as they end the file."""
        if not file.size:
            raise CorruptError("the file is empty", path=file.path, hint="even one without rows has a footer")
        tail = file.read(max(0, file.size - _TAIL), file.size)
        end = bytes(tail[-8:])
        if end[4:] == _ENCRYPTED:
            raise UnsupportedError("is encrypted", path=file.path, hint="write it again without modular encryption")
        if end[4:] != _MAGIC:
            raise CorruptError(
                f"does not end as Parquet does, at byte {file.size:,}",
                path=file.path,
                hint='is it cut short? format="objects" takes every object as it is',
            )
        size = int.from_bytes(end[:4], "little") + 8
        if size > min(file.size - 4, _LONGEST):
            raise CorruptError(f"says that its footer has {size:,} bytes, of {file.size:,} in all", path=file.path)
        footer = bytes(tail[-size:] if size <= len(tail) else file.read(file.size - size, file.size))
        try:
            self.parse(footer, file.size).check()
        except (CorruptError, UnsupportedError) as error:
            raise error.at(file.path) from None
        return footer

    def parse(self, footer: Buffer, size: int) -> ParquetFooter:
        """See `Kind.parse`."""
        return ParquetFooter(footer, size)


class ParquetFooter:
    """See `headrace.formats.tables.table_kind.Footer`."""

    def __init__(self, footer: Buffer, size: int) -> None:
        self._bytes, self._size = footer, size
        try:
            self._meta: Any = pq.read_metadata(pa.BufferReader(pa.py_buffer(footer)))
            self.schema: Schema = self._meta.schema.to_arrow_schema()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptError(f"its footer cannot be read: {first_line(error)}") from error
        self.rows: list[int] = [self._meta.row_group(group).num_rows for group in range(self._meta.num_row_groups)]
        self._end = size - len(memoryview(footer))
        self._idle: list[tuple[SparseFile, Any]] = []
        """Readers not in use: making one takes a fifth of the time for a small row group."""

    def check(self) -> None:
        """That everything here can be asked for, and all numbers are possible: before anything else is asked.

        Raises:
            CorruptError. UnsupportedError: a column is encrypted.
        """
        try:
            self._look()
            self._check()
        except (pa.ArrowException, OSError, ValueError, LookupError) as error:
            if "decrypt" in str(error):
                hint = "write it again without modular encryption"
                raise UnsupportedError("has encrypted columns", hint=hint) from error
            raise CorruptError(f"its footer makes no sense: {first_line(error)}") from error

    def _look(self) -> None:
        """Have pyarrow look at the meta data of all column chunks where it reports what is wrong with them.

        Asked for one chunk, it ends the process over one that is encrypted or makes no sense (pyarrow 26). A reader
        that fetches ahead looks at all of them, with errors, before it reads anything.
        """
        if not self.rows or not self._meta.num_columns:
            return
        reader = pq.ParquetFile(pa.PythonFile(_Unread(self._size), mode="r"), metadata=self._meta, pre_buffer=True)
        with suppress(_Reached):
            reader.read_row_groups(range(len(self.rows)), use_threads=False)

    def _check(self) -> None:
        if any(rows < 0 for rows in self.rows) or sum(self.rows) != self._meta.num_rows:
            raise CorruptError(f"its row groups hold {sum(self.rows):,} rows, the file {self._meta.num_rows:,}")
        kinds = [self._meta.schema.column(number).physical_type for number in range(self._meta.num_columns)]
        for group, rows in enumerate(self.rows):
            row_group = self._meta.row_group(group)
            for number, kind in enumerate(kinds):
                if (found := row_group.column(number).physical_type) != kind:
                    raise CorruptError(f"row group {group}, column {number}: {found}, where the schema has {kind}")
            if rows:
                self.ranges(group, self.schema.names)

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Numbers of the columns that lie below each of the schema's."""
        found: dict[str, list[int]] = {name: [] for name in self.schema.names}
        for number in range(self._meta.num_columns):
            path = self._meta.schema.column(number).path
            parts = path.split(".")
            for stop in range(1, len(parts) + 1):
                if (name := ".".join(parts[:stop])) in found:
                    found[name].append(number)
        return found

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """See `Footer.ranges`."""
        padding = _PADDING if "parquet-mr" in (self._meta.created_by or "") else 0
        row_group = self._meta.row_group(group)
        found: list[tuple[int, int]] = []
        for name in columns:
            for number in self._leaves[name]:
                chunk = row_group.column(number)
                start, size = chunk.data_page_offset, chunk.total_compressed_size
                if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
                    start = chunk.dictionary_page_offset
                if start < 4 or size <= 0 or start + size > self._end:
                    raise CorruptError(
                        f"row group {group}, column {name!r}: bytes {start:,} to {start + size:,} of {self._end:,}"
                    )
                found.append((start, min(start + size + padding, self._end)))
        return joined(found, _GAP)

    def read(self, group: int, columns: Sequence[str], pieces: Pieces) -> Table:
        """See `Footer.read`. Checks the pages' checksums, where there are any."""
        try:
            file, opened = self._idle.pop()
        except IndexError:
            file = SparseFile(self._size)
            opened = pq.ParquetFile(
                file.source(), metadata=self._meta, pre_buffer=False, page_checksum_verification=True
            )
        file.hold(pieces)
        table = opened.read_row_group(group, columns=list(columns), use_threads=False)
        file.hold(())
        self._idle.append((file, opened))  # not after an error, whatever state it is in then
        return table

    def open(self, descriptor: int) -> ParquetOpened:
        """See `Footer.open`."""
        return ParquetOpened(descriptor, self._meta)

    def matching(self, where: Expression, known: Expression | None, schema: Schema) -> list[int]:
        """See `Footer.matching`: pyarrow's own judgement."""
        from pyarrow import dataset

        form: Any = dataset.ParquetFileFormat()
        footer = pa.py_buffer(self._bytes)
        try:
            fragment = form.make_fragment(footer, partition_expression=known)
            return [group.id for group in fragment.subset(filter=where, schema=schema).row_groups]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptError(f"its statistics cannot be read: {first_line(error)}") from error


class _Reached(Exception):  # noqa: N818  no error
    """A file was about to be read."""


class _Unread(SparseFile):
    """A file that nobody may read."""

    def read(self, size: int = -1) -> memoryview:
        raise _Reached(size)

    read_buffer = read


class ParquetOpened:
    """See `headrace.formats.tables.table_kind.OpenedTable`.

    pyarrow reads the column chunks itself: with no Python between, others run on.
    """

    def __init__(self, descriptor: int, meta: Any) -> None:
        self._file = pa.OSFile(f"/proc/self/fd/{descriptor}")
        self._opened = pq.ParquetFile(self._file, metadata=meta, pre_buffer=False, page_checksum_verification=True)

    def read(self, group: int, columns: Sequence[str]) -> Table:
        """See `Opened.read`. Checks the pages' checksums, where there are any."""
        return self._opened.read_row_group(group, columns=list(columns), use_threads=False)

    def close(self) -> None:
        """See `Opened.close`."""
        self._file.close()
