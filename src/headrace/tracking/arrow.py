"""Arrow for this room, built from buffers.

Wherever pyarrow is handed Python or NumPy values (``pa.array``), hands out NumPy arrays (``to_numpy``), or opens a data
set (``pq.read_table``), it first imports pandas if that is installed: a second, and 50 MB, inside somebody's training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

pa: Any = pyarrow  # it ships no types
pq: Any = pyarrow.parquet

Table: TypeAlias = Any
Column: TypeAlias = Any


def numbers(values: NDArray[Any], kind: Any, valid: NDArray[np.bool_] | None = None) -> Column:
    """A column over the array's own memory, whose items are as wide as those of `kind`. `valid`: which are not null."""
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(np.ascontiguousarray(values))])


def texts(values: Sequence[str]) -> Column:
    """A column of strings; what is no valid Unicode is replaced."""
    encoded = [value.encode("utf-8", "replace") for value in values]
    offsets = np.zeros(len(encoded) + 1, np.int32)
    np.cumsum([len(one) for one in encoded], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def as_schema(read: Table, schema: Any) -> Table:
    """A table with columns of these names and types, without what its file says of itself."""
    read = read.select(schema.names).replace_schema_metadata()
    return read if read.schema.equals(schema) else read.cast(schema)  # imports pyarrow.compute: a tenth of a second


def to_array(column: Column, kind: Any) -> NDArray[Any]:
    """One chunk of a column of fixed width, as an array of the dtype `kind`. Nulls hold anything."""
    if not len(column):
        return np.zeros(0, kind)
    dtype = np.dtype(kind)
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * dtype.itemsize)


def to_valid(column: Column) -> NDArray[np.bool_]:
    """Which values of one chunk are not null."""
    bits = column.buffers()[0]
    if bits is None or not len(column):
        return np.ones(len(column), np.bool_)
    packed = np.frombuffer(bits, np.uint8)
    start = column.offset
    return np.unpackbits(packed, count=start + len(column), bitorder="little")[start:].view(np.bool_)
