"""One value of a sample, or of a row of text, as the type of its column: the slow and exact way, which says why not.

Columns of many rows of text are parsed at once in `rows`; this module names what is wrong with one row, and turns
samples that are no text (parts of objects, what a function returned) into rows.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from headrace.base.arrow import pa
from headrace.base.errors import BadSampleError
from headrace.pack.schema import KINDS, Field, Schema

_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
_INT = re.compile(r"[+-]?\d+|0[xX][0-9a-fA-F]+")
_TRUE, _FALSE = ("1", "true", "True", "TRUE"), ("0", "false", "False", "FALSE")


def convert(field: Field, value: Any) -> Any:
    """`value` as the column holds it: a NumPy array for numbers, of shape () or [n]; str, bytes; None where missing.

    Text is read as numbers, bytes as UTF-8 where the column is text.

    Raises:
        BadSampleError: it is none of its type, out of range, or of another length.
    """
    if value is None:
        if field.nullable:
            return None
        raise BadSampleError(f"column {field.name!r} has no value")
    dtype = field.dtype
    if dtype is None:
        return _plain(field, value)
    if field.width is None:
        if isinstance(value, np.ndarray) and cast("Any", value).size == 1:
            value = cast("Any", value).reshape(())[()]
        return _number(field, dtype, value)
    values = _elements(field, value)
    if field.width and len(values) != field.width:
        raise BadSampleError(f"column {field.name!r} has {len(values)} values, not {field.width}")
    if isinstance(values, np.ndarray) and values.dtype == dtype:
        return values
    return np.array([_number(field, dtype, one) for one in values], dtype)


def row_of(schema: Schema, sample: Mapping[str, Any]) -> dict[str, Any]:
    """The sample's values by column. Raises BadSampleError."""
    return {field.name: convert(field, sample.get(field.name)) for field in schema.fields}


def row_of_cells(schema: Schema, cells: Sequence[Any]) -> dict[str, Any]:
    """As `row_of`, from cells in the order of the columns, vectors taking as many as they are long."""
    if len(cells) != schema.cells:
        raise BadSampleError(f"{len(cells)} values, not {schema.cells}")
    row: dict[str, Any] = {}
    at = 0
    for field in schema.fields:
        if field.width is None:
            value = cells[at]
            row[field.name] = convert(field, None if value == "" and field.nullable else value)
            at += 1
        else:
            row[field.name] = convert(field, cells[at : at + field.width])
            at += field.width
    return row


def table_of(schema: Schema, rows: Sequence[Mapping[str, Any]]) -> Any:
    """Rows, as `row_of` made them, as an Arrow table."""
    columns = [_column(field, [row[field.name] for row in rows]) for field in schema.fields]
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def infer(samples: Iterable[Mapping[str, Any]]) -> list[Field]:
    """The columns of samples: the type of each value; what some lack may be missing; lengths that differ are any.

    Raises:
        BadSampleError: a value of no such type, or of two types.
    """
    found: dict[str, Field] = {}
    count = 0
    for sample in samples:
        for name, value in sample.items():
            if value is None:
                continue
            field = _field_of(name, value, nullable=name not in found and count > 0)
            before = found.get(name)
            found[name] = field if before is None else _both(before, field)
        for name, field in found.items():
            if sample.get(name) is None and not field.nullable:
                found[name] = Field(name, field.kind, field.width, nullable=True)
        count += 1
    return list(found.values())


def _field_of(name: str, value: Any, *, nullable: bool) -> Field:
    width = None
    if isinstance(value, np.ndarray) and cast("Any", value).ndim == 1:
        kind, width = _kind_of(cast("Any", value).dtype), len(cast("Any", value))
    elif isinstance(value, np.generic):
        kind = _kind_of(value.dtype)
    elif isinstance(value, (list, tuple)):
        items = np.asarray(value)
        kind, width = _kind_of(items.dtype) if items.ndim == 1 else None, len(items)
    else:
        kinds = {bool: "bool", int: "i64", float: "f64", str: "str"}
        is_bytes = isinstance(value, (bytes, bytearray, memoryview))
        kind = "bytes" if is_bytes else kinds.get(cast("type[Any]", type(value)))
    if kind is None:
        raise BadSampleError(
            f"part {name!r} is {type(value).__name__}, which no column holds",
            hint="bytes, text, numbers and one-dimensional arrays of numbers; --map can turn anything into these",
        )
    return Field(name, kind, width, nullable)


def _kind_of(dtype: np.dtype[Any]) -> str | None:
    name = "bool" if dtype.kind == "b" else f"{dtype.kind}{8 * dtype.itemsize}"
    return name if name in KINDS else None


def _both(one: Field, other: Field) -> Field:
    same = (one.width is None) == (other.width is None)
    if one.kind != other.kind or not same:
        kinds = {one.kind, other.kind}
        if same and one.width is None and kinds == {"i64", "f64"}:
            return Field(one.name, "f64", None, one.nullable)
        raise BadSampleError(
            f"part {one.name!r} is now {one.type}, now {other.type}",
            hint="say which by --columns, or make it so by --map",
        )
    width = one.width if one.width == other.width else 0
    return Field(one.name, one.kind, width, one.nullable)


def _plain(field: Field, value: Any) -> str | bytes:
    if field.kind == "bytes":
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, str):
            return value.encode("utf-8", "surrogatepass")
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadSampleError(f"column {field.name!r} is no valid text") from None
        return value
    elif isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError:
            raise BadSampleError(f"column {field.name!r} is no UTF-8") from None
    raise BadSampleError(f"column {field.name!r} is {type(value).__name__}, not {field.kind}")


def _elements(field: Field, value: Any) -> Any:
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        if array.ndim == 1:
            return array
    elif isinstance(value, (list, tuple)):
        return cast("Any", value)
    raise BadSampleError(f"column {field.name!r} is {type(value).__name__}, not {field.type}")


def _number(field: Field, dtype: np.dtype[Any], value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = str(value, "utf-8", "replace")
    if isinstance(value, np.generic):
        value = value.item()
    found: Any = _spelt(dtype, value.strip(" \t")) if isinstance(value, str) else _given(dtype, value)
    if found is None:
        raise BadSampleError(f"column {field.name!r}: {_short(value)} is no {field.kind}")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= found <= limits.max:
            raise BadSampleError(f"column {field.name!r}: {_short(value)} is out of the range of {field.kind}")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            made = np.array(found, dtype)
        if np.isinf(made) and not _is_infinite(value):
            raise BadSampleError(f"column {field.name!r}: {_short(value)} is out of the range of {field.kind}")
        return made[()]
    return np.array(found, dtype)[()]


def _spelt(dtype: np.dtype[Any], text: str) -> Any:
    if dtype.kind == "f":
        return float(text) if _FLOAT.fullmatch(text) else None
    if dtype.kind == "b":
        return True if text in _TRUE else False if text in _FALSE else None
    if not _INT.fullmatch(text) or len(text) > 64:
        return None
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


def _given(dtype: np.dtype[Any], value: Any) -> Any:
    if dtype.kind == "b":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if dtype.kind == "f" and isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return float("inf")
    return value if isinstance(value, int) else None


def _is_infinite(value: Any) -> bool:
    if isinstance(value, float):
        return value in (float("inf"), float("-inf"))
    return isinstance(value, str) and "inf" in value.lower()


def _short(value: Any) -> str:
    return repr(value)[:60]


def _column(field: Field, values: list[Any]) -> Any:
    count = len(values)
    valid = None
    if field.nullable and any(value is None for value in values):
        there = np.fromiter((value is not None for value in values), np.bool_, count)
        valid = pa.py_buffer(np.packbits(there, bitorder="little"))
    dtype = field.dtype
    if dtype is None:
        empty = "" if field.kind == "str" else b""
        encoded = [(empty if value is None else value) for value in values]
        data = [one.encode() if isinstance(one, str) else one for one in encoded]
        bounds = _bounds([len(one) for one in data])
        buffers = [valid, pa.py_buffer(bounds), pa.py_buffer(b"".join(data))]
        return pa.Array.from_buffers(field.arrow, count, buffers)
    if field.width is None:
        numbers = np.array([0 if value is None else value for value in values], dtype)
        return pa.Array.from_buffers(field.arrow, count, [valid, _numbers(numbers)])
    blank = np.zeros(field.width, dtype)
    arrays = [blank if value is None else value for value in values]
    flat = np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.zeros(0, dtype)
    child = pa.Array.from_buffers(KINDS[field.kind], len(flat), [None, _numbers(flat)])
    if field.width:
        return pa.Array.from_buffers(field.arrow, count, [valid], children=[child])
    bounds = _bounds([len(one) for one in arrays])
    return pa.Array.from_buffers(field.arrow, count, [valid, pa.py_buffer(bounds)], children=[child])


def _bounds(lengths: list[int]) -> Any:
    bounds = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def _numbers(values: Any) -> Any:
    if values.dtype == np.bool_:
        return pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.py_buffer(np.ascontiguousarray(values))


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of a ``.npy`` file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()
