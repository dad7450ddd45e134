"""Parquet, Arrow and CSV: columns with their types, and the first rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from headrace.base.errors import CorruptError, HeadraceError, NoRoomError
from headrace.base.units import format_bytes
from headrace.web.previews.preview import Heading, Kind, Made, Preview, cell, cut, facts, some_of
from headrace.web.previews.source import Source
from headrace.web.previews.text import decoded

_ROWS: Final = 20  # rows shown
_COLUMNS: Final = 30  # columns shown
_LEAVES: Final = 100
"""Columns of a file that the columns shown may be made of: a struct has one for each of its fields."""
_NAMED: Final = 500
"""Columns that are named where they are not shown."""
_FOOTER: Final = 16 << 20  # bytes: a larger footer is not read for a preview
_CSV: Final = 256 << 10  # bytes of the beginning that are read
_ARROW: Final = b"ARROW1"
_FEATHER_1: Final = b"FEA1"
_BATCHES: Final = 100  # record batches without a row, after which no more are looked at
_NAME: Final = 100  # characters of a name or type


def _parquet(source: Source) -> Made:
    tail = bytes(source.read(source.size - 8, source.size))
    if len(tail) < 8 or tail[4:] != b"PAR1":
        raise CorruptError("does not end as Parquet does: it is cut off, encrypted, or none", path=source.path)
    if (footer := int.from_bytes(tail[:4], "little")) > _FOOTER:
        raise NoRoomError(f"its footer alone has {format_bytes(footer)}; read are {format_bytes(_FOOTER)} at most")
    try:
        opened = pq.ParquetFile(
            pa.PythonFile(source.file(), mode="r"), pre_buffer=False, buffer_size=64 << 10,
            thrift_string_size_limit=_FOOTER, thrift_container_size_limit=1 << 20,
        )  # fmt: skip
        return _of_parquet(opened)
    except HeadraceError:
        raise
    except Exception as error:  # what damaged files make Arrow raise is of many kinds
        raise CorruptError(f"is no Parquet that can be read: {_first_line(error)}", path=source.path) from error


def _of_parquet(opened: Any) -> Made:
    meta, schema = opened.metadata, opened.schema_arrow
    fields = [schema.field(at) for at in range(min(len(schema), _NAMED + _COLUMNS))]
    told = facts(
        rows=meta.num_rows, columns=len(schema), row_groups=meta.num_row_groups, written_by=meta.created_by or None
    )
    shown = _shown(fields)
    rows: list[list[str]] = []
    notes: tuple[str, ...] = ()
    try:
        rows = _rows(opened, [field.name for field in shown])
    except (HeadraceError, pa.ArrowException, OSError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else _first_line(error)
        notes = (f"Its rows cannot be shown: {reason}.",)
    notes += some_of(len(rows), meta.num_rows, "rows") if rows else ()
    rest = fields[len(shown) :]
    if rest:
        notes += (f"The first {len(shown)} of {len(schema):,} columns; below them the names of {len(rest):,} more.",)
    text = "\n".join(f"{cut(field.name, _NAME)}: {_type(field.type)}" for field in rest)
    return Made(Preview("Parquet", told, notes, _headings(shown), tuple(map(tuple, rows)), text))


def _shown(fields: Sequence[Any]) -> list[Any]:
    leaves = 0
    for at, field in enumerate(fields):
        leaves += _leaves(field.type)
        if at == _COLUMNS or leaves > _LEAVES:
            return list(fields[:at])
    return list(fields)


def _leaves(kind: Any) -> int:
    return sum(_leaves(kind.field(at).type) for at in range(kind.num_fields)) if kind.num_fields else 1


def _rows(opened: Any, columns: list[str]) -> list[list[str]]:
    for group in range(min(opened.num_row_groups, 100)):
        if opened.metadata.row_group(group).num_rows:
            batches = opened.iter_batches(_ROWS, row_groups=[group], columns=columns, use_threads=False)
            return _cells(next(batches))
    return []


def _arrow(source: Source) -> Made:
    """A file (Feather version 2 is the same), or a stream, of record batches: the first that has rows."""
    head = bytes(source.read(0, len(_ARROW)))
    if head[: len(_FEATHER_1)] == _FEATHER_1:
        reason = "is Feather of version 1, which is out of use: write it again with pyarrow"
        raise CorruptError(reason, path=source.path)
    file = pa.PythonFile(source.file(), mode="r")
    try:
        opened = pa.ipc.open_file(file) if head == _ARROW else pa.ipc.open_stream(file)
        return _of_arrow(opened, opened.num_record_batches if head == _ARROW else None)
    except HeadraceError:
        raise
    except Exception as error:  # what damaged files make Arrow raise is of many kinds
        raise CorruptError(f"is no Arrow that can be read: {_first_line(error)}", path=source.path) from error


def _of_arrow(opened: Any, batches: int | None) -> Made:
    schema = opened.schema
    fields = [schema.field(at) for at in range(min(len(schema), _NAMED + _COLUMNS))]
    told = facts(columns=len(schema), record_batches=batches)
    shown, notes, rows = _shown(fields), tuple[str, ...](), list[list[str]]()
    try:
        batch = _first_batch(opened, batches)
        rows = _cells(batch.select(range(len(shown))).slice(0, _ROWS)) if batch is not None else []
        notes = some_of(len(rows), batch.num_rows, "rows of the first batch") if batch is not None else ()
    except (HeadraceError, pa.ArrowException, OSError) as error:
        reason = error.reason if isinstance(error, HeadraceError) else _first_line(error)
        notes = (f"Its rows cannot be shown: {reason}.",)
    notes += some_of(len(shown), len(schema), "columns")
    return Made(Preview("Arrow", told, notes, _headings(shown), tuple(map(tuple, rows))))


def _first_batch(opened: Any, batches: int | None) -> Any:
    """None: none has rows, among the first hundred."""
    for at in range(_BATCHES if batches is None else min(batches, _BATCHES)):
        try:
            batch = opened.read_next_batch() if batches is None else opened.get_batch(at)
        except StopIteration:
            return None
        if batch.num_rows:
            batch.slice(0, _ROWS).validate(full=True)
            return pa.Table.from_batches([batch])
    return None


def _delimited(source: Source) -> Made:
    raw = bytes(source.read(0, _CSV))
    cut_off = len(raw) < source.size
    text = decoded(raw, whole=not cut_off)
    if text is None:
        raise CorruptError("is no text", path=source.path)
    data = text.encode()
    if cut_off and not (data := data[: data.rfind(b"\n") + 1]):
        raise NoRoomError(f"a line has more than {format_bytes(_CSV)}")
    left_out: list[int] = []

    def skip(row: Any) -> str:
        left_out.append(row.actual_columns)
        return "skip"

    try:
        read = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=2 * _CSV),
            parse_options=csv.ParseOptions(
                delimiter=_delimiter(source.name, data), newlines_in_values=True, invalid_row_handler=skip
            ),
        )
    except pa.ArrowException as error:
        raise CorruptError(f"is no CSV that can be read: {_first_line(error)}", path=source.path) from error
    shown = [read.schema.field(at) for at in range(min(read.num_columns, _COLUMNS))]
    rows = _cells(read.select(range(len(shown))).slice(0, _ROWS))
    notes = (f"The first {len(rows):,} rows.",) if cut_off else some_of(len(rows), read.num_rows, "rows")
    notes += some_of(len(shown), read.num_columns, "columns")
    if left_out:
        notes += (f"{len(left_out):,} rows that do not have {read.num_columns:,} fields are left out.",)
    told = facts(columns=read.num_columns, rows=None if cut_off else read.num_rows)
    return Made(Preview("CSV", told, notes, _headings(shown), tuple(map(tuple, rows))))


def _delimiter(name: str, data: bytes) -> str:
    if name.endswith((".tsv", ".tab")):
        return "\t"
    line = data.partition(b"\n")[0]
    return max(",;\t|", key=lambda one: line.count(one.encode()))


def _cells(table: Any) -> list[list[str]]:
    """Rows, each column turned into text by itself: names may come twice."""
    columns = [[cell(one.as_py()) for one in column] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def _headings(fields: Iterable[Any]) -> tuple[Heading, ...]:
    return tuple(Heading(cut(field.name, _NAME), _type(field.type)) for field in fields)


def _type(kind: Any) -> str:
    return cut(str(kind), _NAME)


def _first_line(error: Exception) -> str:
    return cut(str(error).partition("\n")[0], 200)


PARQUET = Kind("Parquet", (".parquet", ".pq"), ((0, b"PAR1"),), _parquet)
ARROW = Kind("Arrow", (".arrow", ".feather", ".ipc", ".arrows"), ((0, _ARROW), (0, _FEATHER_1)), _arrow)
DELIMITED = Kind("CSV", (".csv", ".tsv", ".tab"), (), _delimited)
