"""Rows of text to typed columns, many at once: the lines are joined and parsed by Arrow, never a Python float a cell.

Where Arrow refuses a chunk it is halved until the bad row stands alone; `values` then says what is wrong with it. So a
bad row costs some parsing again, and good ones nothing. What Arrow would let pass in silence is looked for afterwards:
nulls where none may be, numbers that became infinite, vectors of another length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow.json

from headrace.base.arrow import csv, pa, pc
from headrace.base.errors import BadSampleError, CorruptError, InputError
from headrace.formats import CSV, JSONL
from headrace.pack.schema import KINDS, Field, Schema
from headrace.pack.values import row_of, row_of_cells, table_of

_json: Any = pyarrow.json
_FLOATS = ("f16", "f32", "f64")


class Bad(NamedTuple):
    """A row that is none: its place in the chunk, and why."""

    place: int
    reason: str


class CsvRows:
    """Parses CSV records of one header. Any thread.

    Where every column is a single value whose name the header has, values go by name; else by place, and every cell
    is used.

    Raises:
        InputError: the header does not go with the columns, or looks like data.
    """

    def __init__(self, schema: Schema, header: Sequence[str], path: str) -> None:
        self.schema = schema
        self._names = [f"{place}" for place in range(len(header))]
        self.by_name = all(field.named and field.width is None and field.name in header for field in schema.fields)
        if self.by_name:
            self._cells = {self._names[header.index(field.name)]: field for field in schema.fields}
            return
        if schema.cells is None:
            raise InputError("a list of any length cannot be told apart in CSV", hint="give its length: f32[39]")
        if len(header) != schema.cells:
            raise InputError(
                f"the header names {len(header)} columns, --columns speaks of {schema.cells}",
                path=path,
                hint="one type for each, f32[39] for 39 of them; or names that the header has",
            )
        if _is_data(schema, header):
            raise InputError(
                "the first line, which should name the columns, holds values", path=path, hint="put a header line there"
            )
        widths = [(field, 1 if field.width is None else field.width) for field in schema.fields]
        fields = [field for field, width in widths for _ in range(width)]
        self._cells = dict(zip(self._names, fields, strict=True))

    def parse(self, lines: Sequence[memoryview]) -> tuple[Any, list[Bad]]:
        """(table of the good rows, the bad ones)."""
        return _halving(self, lines)

    def fast(self, lines: Sequence[memoryview]) -> Any:
        """All rows, or an error of Arrow's."""
        data = _joined(lines)
        types = {name: _parsed(field) for name, field in self._cells.items()}
        nullable = any(field.nullable for field in self._cells.values())
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(column_names=self._names, use_threads=False, block_size=len(data) + 1),
            parse_options=csv.ParseOptions(newlines_in_values=b'"' in data, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(
                column_types=types, include_columns=list(types), null_values=[""] if nullable else [],
                strings_can_be_null=nullable, quoted_strings_can_be_null=False,
            ),
        )  # fmt: skip
        if table.num_rows != len(lines):
            raise pa.ArrowInvalid(f"{len(lines)} rows became {table.num_rows}")
        return _assembled(self.schema, self._columns(table))

    def exact(self, line: memoryview) -> Any:
        """One row. Raises BadSampleError, CorruptError."""
        cells = CSV.decode(line)
        if len(cells) != len(self._names):
            raise BadSampleError(f"{len(cells)} values, not {len(self._names)}")
        if not self.by_name:
            return row_of_cells(self.schema, cells)
        chosen = [cells[int(name)] for name in self._cells]
        return row_of_cells(self.schema, chosen)

    def _columns(self, table: Any) -> list[tuple[Field, list[Any]]]:
        columns: list[tuple[Field, list[Any]]] = []
        at = 0
        for field in self.schema.fields:
            width = 1 if field.width is None else field.width
            columns.append((field, [table.column(at + place).combine_chunks() for place in range(width)]))
            at += width
        return columns


class JsonRows:
    """Parses JSON lines: objects with a member for each column, or arrays with a cell for each. Any thread."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._named = all(field.named for field in schema.fields)
        types = [pa.field(one.name, _read_as(one)) for one in schema.fields]
        self._types = pa.schema(types)
        # f16 is no type of Arrow's JSON, and neither it nor text tells whole numbers from others as we do.
        self._slow = any(field.kind == "bytes" for field in schema.fields)

    def parse(self, lines: Sequence[memoryview]) -> tuple[Any, list[Bad]]:
        """See `CsvRows.parse`."""
        return _halving(self, lines)

    def fast(self, lines: Sequence[memoryview]) -> Any:
        """See `CsvRows.fast`."""
        if self._slow or not self._named:
            return table_of(self.schema, [self.exact(line) for line in lines])
        data = _joined(lines)
        table = _json.read_json(
            pa.BufferReader(data),
            read_options=_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=_json.ParseOptions(explicit_schema=self._types, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(lines):
            raise pa.ArrowInvalid(f"{len(lines)} rows became {table.num_rows}")
        columns = [(field, [table.column(field.name).combine_chunks()]) for field in self.schema.fields]
        return _assembled(self.schema, columns)

    def exact(self, line: memoryview) -> Any:
        """See `CsvRows.exact`."""
        value = JSONL.decode(line)
        if isinstance(value, list) and not self._named:
            return row_of_cells(self.schema, value)
        if not isinstance(value, dict):
            raise BadSampleError(f"the line is {type(value).__name__}, not an object")
        if not self._named:
            raise BadSampleError("the line is an object, and the columns have no names")
        return row_of(self.schema, value)


TextRows = CsvRows | JsonRows


def _halving(rows: TextRows, lines: Sequence[memoryview]) -> tuple[Any, list[Bad]]:
    tables: list[Any] = []
    bad: list[Bad] = []
    waiting = [(0, len(lines))] if lines else []
    while waiting:
        start, stop = waiting.pop()
        try:
            tables.append(rows.fast(lines[start:stop]))
        except (pa.ArrowException, BadSampleError, CorruptError, ValueError) as error:
            if stop - start == 1:
                _alone(rows, lines[start], start, error, tables, bad)
            else:
                middle = (start + stop) // 2
                waiting += [(middle, stop), (start, middle)]
    table = pa.concat_tables(tables) if tables else rows.schema.arrow.empty_table()
    return table, bad


def _alone(rows: TextRows, line: memoryview, place: int, error: Exception, tables: list[Any], bad: list[Bad]) -> None:
    """A row that Arrow refuses: bad, or only beyond Arrow (the word ``inf``)."""
    try:
        tables.append(table_of(rows.schema, [rows.exact(line)]))
    except (BadSampleError, CorruptError) as why:
        bad.append(Bad(place, why.reason))
    except (pa.ArrowException, ValueError):
        bad.append(Bad(place, str(error).partition("\n")[0][:200]))


def _joined(lines: Sequence[memoryview]) -> bytes:
    return b"\n".join(lines) + b"\n"


def _parsed(field: Field) -> Any:
    return pa.float32() if field.kind == "f16" else KINDS[field.kind]


def _read_as(field: Field) -> Any:
    item = _parsed(field)
    item = pa.string() if field.kind == "str" else item
    return item if field.width is None else pa.list_(item)


def _assembled(schema: Schema, columns: list[tuple[Field, list[Any]]]) -> Any:
    """The table of columns, each made of one or several as they were read. Raises ArrowInvalid for what must not be."""
    made = [_checked(field, parts) for field, parts in columns]
    return pa.Table.from_arrays(made, schema=schema.arrow)


def _checked(field: Field, parts: list[Any]) -> Any:
    nulls = sum(part.null_count for part in parts)
    if nulls and not (field.nullable and len(parts) == 1):
        raise pa.ArrowInvalid(f"{field.name}: a value is missing")
    if field.width is None:
        return _sound(field, parts[0])
    if len(parts) == 1 and pa.types.is_list(parts[0].type):
        return _lists(field, parts[0])
    count = len(parts[0])
    if field.kind == "bool":
        matrix = np.column_stack([np.asarray(part.to_pylist(), np.bool_) for part in parts])
        child = pa.array(matrix.reshape(-1))
    else:
        dtype = field.dtype
        matrix = np.empty((count, len(parts)), dtype)
        for place, part in enumerate(parts):
            matrix[:, place] = _array(_sound(field, part), dtype)
        child = pa.Array.from_buffers(KINDS[field.kind], matrix.size, [None, pa.py_buffer(matrix)])
    return pa.Array.from_buffers(field.arrow, count, [None], children=[child])


def _lists(field: Field, column: Any) -> Any:
    if column.values.null_count and column.flatten().null_count:
        raise pa.ArrowInvalid(f"{field.name}: a value is missing")
    lengths = pc.list_value_length(column)
    if field.width and pc.any(pc.not_equal(lengths, pa.scalar(field.width, lengths.type))).as_py():
        raise pa.ArrowInvalid(f"{field.name}: not {field.width} values")
    if field.width and column.null_count:
        raise pa.ArrowInvalid(f"{field.name}: read one by one")  # a gap in a fixed-size list; rare, so the slow way
    _sound(field, column.flatten())
    return column.cast(pa.list_(KINDS[field.kind])).cast(field.arrow)


def _sound(field: Field, column: Any) -> Any:
    """The column in its own type, with no number that became infinite on the way."""
    column = column.cast(KINDS[field.kind])
    if field.kind in _FLOATS and pc.any(pc.is_inf(column.cast(pa.float32()))).as_py():
        # Rare; whether the text says so is looked up row by row.
        raise _InfiniteError(f"{field.name}: infinite")
    return column


class _InfiniteError(ValueError):
    """Some number is infinite."""


def _array(column: Any, dtype: Any) -> Any:
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def _is_data(schema: Schema, header: Sequence[str]) -> bool:
    if all(field.kind in ("str", "bytes") for field in schema.fields):
        return False
    try:
        row_of_cells(schema, header)
    except BadSampleError:
        return False
    return True
