"""One row group: where its bytes lie, and what they become."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from headrace.base.arrow import Expression, Schema, Table, first_line, pa
from headrace.base.errors import CorruptError, HeadraceError
from headrace.catalog import Part, Rows
from headrace.formats.index.index_job import Shard
from headrace.formats.tables.partitions import Partitions
from headrace.formats.tables.row_filter import matching
from headrace.formats.tables.table_kind import Footer, OpenedTable, TableKind
from headrace.store.backends.errors import from_os
from headrace.store.protocol import Buffer

_DAMAGE = (pa.ArrowException, OSError, ValueError, TypeError, KeyError, IndexError, OverflowError)
"""What pyarrow raises over bytes that are no Parquet or Arrow, beside running out of memory."""
_NO_DAMAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.EIO})
"""Of an `OSError`: the file may be well."""


_FOOTERS = 32  # parsed footers kept: neighbours are of a few files


class DecodedRows(NamedTuple):
    """The rows of a group. `table`: a sample's columns; `kept`: the rows that match ``where``, rising, None: all."""

    table: Table
    kept: Rows | None


class Parsed:
    """Footers of the files used last: parsing one takes as long as decoding a small row group. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[str, Footer] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return Parsed, ()

    def get(self, kind: TableKind, key: str, footer: Buffer, size: int) -> Footer:
        """Of the file `key`. Raises CorruptError."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
                return found
        found = kind.parse(footer, size)
        with self._lock:
            self._found[key] = found
            while len(self._found) > _FOOTERS:
                self._found.popitem(last=False)
        return found


@dataclass(frozen=True, eq=False)
class Scheme:
    """What the row groups of a set have in common. `schema`: of all columns read, and of those in folders."""

    kind: TableKind
    schema: Schema
    columns: tuple[str, ...]
    read: tuple[str, ...]
    partitions: Partitions
    where: Expression | None
    parsed: Parsed = field(default_factory=Parsed, repr=False)

    @property
    def schema_out(self) -> Schema:
        """Of a sample's columns."""
        return pa.schema([self.schema.field(name) for name in self.columns])


@dataclass(frozen=True, eq=False)
class RowGroup:
    """Row group `number` of a file. `first`: rows of the file before it. Any thread."""

    scheme: Scheme
    file: Shard
    place: int
    """The file's place in the set."""
    name: str
    """The file's, below the root."""
    url: str
    number: int
    rows: int
    first: int
    parts: tuple[Part, ...]
    footer: Buffer = field(repr=False)

    @property
    def key(self) -> tuple[str, str | None, int]:
        """Equal exactly for the same rows of the same set."""
        return self.file.key, self.file.version, self.number

    @property
    def size(self) -> int:
        """Bytes read for it."""
        return sum((part.stop or 0) - part.start for part in self.parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "footer": bytes(self.footer)}  # it may be a view of a mapped file

    def decode(self, pieces: Sequence[Buffer]) -> DecodedRows:
        """The rows, given the bytes of `parts`.

        Raises:
            CorruptError: with the file, the row group and the reason. NoRoomError: too many open files.
            TryAgainError: the disk failed.
        """
        placed = [(part.start, piece) for part, piece in zip(self.parts, pieces, strict=True)]
        with self._translated():
            return self._made(lambda columns: self._parsed().read(self.number, columns, placed))

    def open(self, descriptor: int) -> OpenedTable:
        """The file itself, which the caller has open in the version that was indexed. Raises as `decode`."""
        with self._translated():
            return self._parsed().open(descriptor)

    def decode_file(self, opened: OpenedTable) -> DecodedRows:
        """As `decode`, out of what `open` gave, for this row group or another of the file."""
        with self._translated():
            return self._made(partial(opened.read, self.number))

    def _parsed(self) -> Footer:
        return self.scheme.parsed.get(self.scheme.kind, self.file.key, self.footer, self.file.size)

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except HeadraceError as error:
            raise CorruptError(f"row group {self.number}: {error.reason}", path=self.url, hint=error.hint) from error
        except _DAMAGE as error:
            if isinstance(error, OSError) and error.errno in _NO_DAMAGE:
                raise from_os(self.url, error) from error
            raise CorruptError(
                f"row group {self.number} cannot be read: {first_line(error)}",
                path=self.url,
                hint="is the file damaged? Write it again",
            ) from error

    def _made(self, reader: Callable[[Sequence[str]], Table]) -> DecodedRows:
        scheme = self.scheme
        read: Any = None
        if scheme.read:
            read = reader(scheme.read)
            if read.num_rows != self.rows:
                raise CorruptError(f"{read.num_rows:,} rows came, where the footer says {self.rows:,}")
        columns = [self._column(read, name) for name in scheme.schema.names]
        table = pa.Table.from_arrays(columns, schema=scheme.schema)
        kept = None if scheme.where is None else matching(table, scheme.where)
        return DecodedRows(table.select(list(scheme.columns)), kept)

    def _column(self, read: Table, name: str) -> Any:
        partitions = self.scheme.partitions
        if name in partitions.names:
            return partitions.constant(self.place, name, self.rows)
        return read[name]
