"""Arrow under one roof. pyarrow ships no types, so here its modules and what this room takes from them are named once.

`Batch`: a record batch; `Column`: an array, one buffer of it unless said otherwise; `Table`: chunked columns.

Wherever pyarrow is handed a Python or NumPy value (``pa.array``, ``pa.scalar``, ``pc.equal(column, "")``), and wherever
it hands out a NumPy array (``to_numpy``) or opens a data set (``pq.read_table``), it first imports pandas, if that is
installed: a second and 50 MB that a trainer never asked for. So this room makes its columns of buffers, and looks at
buffers, with the functions below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

pa: Any = pyarrow
csv: Any = pyarrow.csv
pc: Any = pyarrow.compute
pq: Any = pyarrow.parquet

Batch: TypeAlias = Any
Column: TypeAlias = Any
Table: TypeAlias = Any
Scalar: TypeAlias = Any
Schema: TypeAlias = Any
Expression: TypeAlias = Any
Source: TypeAlias = Any

_NUMBERS = {
    np.dtype(kind): arrow
    for kind, arrow in {
        "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(),
        "u1": pa.uint8(), "u2": pa.uint16(), "u4": pa.uint32(), "u8": pa.uint64(),
    }.items()
}  # fmt: skip
_KINDS = {arrow: kind for kind, arrow in _NUMBERS.items()}


def from_numbers(values: npt.NDArray[Any]) -> Column:
    """A column of integers over the array's own memory (a copy only where that is not contiguous)."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(_NUMBERS[values.dtype], len(values), [None, pa.py_buffer(values)])


def to_numbers(column: Column) -> npt.NDArray[Any]:
    """The column's own memory as an array, not to be written to. Integers without nulls."""
    assert column.null_count == 0, column.type
    data = column.buffers()[1]
    kind = _KINDS[column.type]
    if not len(column):
        return np.zeros(0, kind)
    return np.frombuffer(data, kind, len(column), column.offset * kind.itemsize)


def from_flags(values: npt.NDArray[np.bool_]) -> Column:
    """A column of booleans."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def to_flags(column: Column) -> npt.NDArray[np.bool_]:
    """A column of booleans without nulls as an array."""
    assert column.null_count == 0
    if not len(column):
        return np.zeros(0, np.bool_)
    first, start = divmod(column.offset, 8)
    packed = np.frombuffer(column.buffers()[1], np.uint8)[first:]
    return np.unpackbits(packed, count=start + len(column), bitorder="little")[start:].view(np.bool_)


def from_texts(values: Sequence[str | None]) -> Column:
    """A ``large_string`` column. Raises UnicodeEncodeError for text that is no valid UTF-8."""
    valid = None
    texts = cast("Sequence[str]", values)
    try:
        whole = "".join(texts)
    except TypeError:  # quicker than to look for None first, of which there mostly is none
        valid = _bits(np.fromiter((value is not None for value in values), np.bool_, len(values)))
        texts = [value or "" for value in values]
        whole = "".join(texts)
    data = whole.encode()
    sizes: Iterable[int] = map(len, texts if len(data) == len(whole) else map(str.encode, texts))
    return from_lengths(data, np.fromiter(sizes, np.int64, len(values)), valid)


def from_lengths(data: Any, lengths: npt.NDArray[np.int64], valid: Any = None) -> Column:
    """A ``large_string`` column of UTF-8 bytes that lie one after the other. `valid`: bits of the values not null."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.large_string(), len(lengths), [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def scalar(value: str) -> Scalar:
    """One ``large_string``, for kernels that take a column and a value."""
    return from_texts([value])[0]


def null(kind: Any) -> Scalar:
    """No value, of that type."""
    return pa.nulls(1, kind)[0]


def first_line(error: BaseException) -> str:
    """What an error of Arrow's says, without the rest of its page."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _bits(values: npt.NDArray[np.bool_]) -> Any:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


__all__ = [
    "Batch",
    "Column",
    "Expression",
    "Scalar",
    "Schema",
    "Source",
    "Table",
    "csv",
    "first_line",
    "from_flags",
    "from_lengths",
    "from_numbers",
    "from_texts",
    "null",
    "pa",
    "pc",
    "pq",
    "scalar",
    "to_flags",
    "to_numbers",
]
