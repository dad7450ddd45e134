"""Arrow columns as the values of samples: NumPy where types allow, Python's own otherwise.

One rule for single rows and for batches: a batch is what `formats.columns.stacking.collate_field` makes of its rows'
values; `Values.cut` gets there without making them, where it can.

| Arrow | a row's value |
|---|---|
| numbers, booleans, dates, timestamps, durations | NumPy scalar; null: NaN for floats, NaT for times, else None |
| lists of whole numbers or floats, of fixed size or not | 1-D array; a list where a null is among them |
| strings, binary, decimals, times of day, structs, maps, other lists | what ``to_pylist`` makes |
| dictionary-encoded | as its values |
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Column, from_flags, pa, to_flags
from headrace.base.errors import CorruptError
from headrace.formats.columns.stacking import collate_field, own_arrays

Array = npt.NDArray[Any]
_NUMBERS: dict[Any, str] = {
    pa.int8(): "i1", pa.int16(): "<i2", pa.int32(): "<i4", pa.int64(): "<i8",
    pa.uint8(): "u1", pa.uint16(): "<u2", pa.uint32(): "<u4", pa.uint64(): "<u8",
    pa.float16(): "<f2", pa.float32(): "<f4", pa.float64(): "<f8",
}  # fmt: skip


class Values(Protocol):
    """One column of a row group. Any thread."""

    def at(self, row: int) -> Any:
        """One row's value."""
        ...

    def cut(self, start: int, stop: int) -> Any:
        """The batch of some rows, at least one. Arrays are views, read-only."""
        ...


def _fixed(values: Array) -> Array:
    """The same memory, read-only: rows of it come again in another epoch."""
    view = values.view()
    view.flags.writeable = False
    return view


class _Dense:
    """Values that are an array: nothing is missing, all of one shape."""

    def __init__(self, values: Array) -> None:
        self._values = _fixed(values)

    def at(self, row: int) -> Any:
        return self._values[row]

    def cut(self, start: int, stop: int) -> Any:
        return self._values[start:stop]


class _Gaps:
    """Values of which some are missing."""

    def __init__(self, values: Array, valid: npt.NDArray[np.bool_]) -> None:
        self._values, self._valid = _fixed(values), valid

    def at(self, row: int) -> Any:
        return self._values[row] if self._valid[row] else None

    def cut(self, start: int, stop: int) -> Any:
        if self._valid[start:stop].all():
            return self._values[start:stop]
        return [self.at(row) for row in range(start, stop)]


class _Ragged:
    """Lists of numbers, none missing. `offsets`: int64 [rows+1]."""

    def __init__(self, values: Array, offsets: npt.NDArray[np.int64]) -> None:
        self._values, self._offsets = _fixed(values), offsets

    def at(self, row: int) -> Any:
        return self._values[self._offsets[row] : self._offsets[row + 1]]

    def cut(self, start: int, stop: int) -> Any:
        offsets = self._offsets[start : stop + 1]
        length = int(offsets[1] - offsets[0])
        if (np.diff(offsets) == length).all():
            return self._values[offsets[0] : offsets[-1]].reshape(stop - start, length)
        return [self.at(row) for row in range(start, stop)]


class _Items:
    """Anything else. `plain`: a batch is simply the list."""

    def __init__(self, items: list[Any], *, plain: bool) -> None:
        self._items, self._plain = items, plain

    def at(self, row: int) -> Any:
        return self._items[row]

    def cut(self, start: int, stop: int) -> Any:
        found = self._items[start:stop]
        return found if self._plain else own_arrays(collate_field(found))


def values_of(column: Column) -> Values:
    """A column, chunked or not, as values.

    Raises:
        CorruptError: text that is no UTF-8.
    """
    column = _one(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        return values_of(column.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        return values_of(column.storage)
    lists = _lists(column)
    if lists is not None:
        return lists
    numbers = _numbers(column)
    if numbers is None:
        return _Items(_items(column), plain=_is_plain(kind))
    if not column.null_count:
        return _Dense(numbers)
    valid = to_flags(column.is_valid())
    if numbers.dtype.kind in "fmM":
        missing = np.array("NaT" if numbers.dtype.kind in "mM" else np.nan, numbers.dtype)
        return _Dense(np.where(valid, numbers, missing))
    return _Gaps(numbers, valid)


def is_text(kind: Any) -> bool:
    """Whether values of an Arrow type may name rows (`headrace.catalog.record_keys`): text, or bytes."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    test = pa.types
    checks = (test.is_string, test.is_large_string, test.is_string_view)
    return any(check(kind) for check in (*checks, test.is_binary, test.is_large_binary, test.is_binary_view))


def names_in(column: Column) -> Column:
    """A column of rows' own keys, chunked or not, as bytes: text that is no UTF-8 names nothing, and ends nothing."""
    column = _one(column)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.large_binary())


def join(cuts: list[tuple[Values, int, int]]) -> Any:
    """The batch of rows of several row groups."""
    if len(cuts) == 1:
        values, start, stop = cuts[0]
        return values.cut(start, stop)
    parts = [values.cut(start, stop) for values, start, stop in cuts]
    first = parts[0]
    if isinstance(first, np.ndarray):
        shapes = {(one.dtype, one.shape[1:]) if isinstance(one, np.ndarray) else None for one in parts}
        if len(shapes) == 1:
            return np.concatenate(cast("list[Array]", parts))
    return collate_field([values.at(row) for values, start, stop in cuts for row in range(start, stop)])


def _one(column: Column) -> Column:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _numbers(column: Column) -> Array | None:
    """The column's own memory, whatever stands in the places of nulls; None for types that have no such array."""
    kind = column.type
    if kind in _NUMBERS:
        return _memory(column, _NUMBERS[kind])
    if pa.types.is_boolean(kind):
        return to_flags(column.fill_null(from_flags(np.zeros(1, np.bool_))[0]) if column.null_count else column)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return _memory(column, "<i8").view(f"{'M' if pa.types.is_timestamp(kind) else 'm'}8[{kind.unit}]")
    if pa.types.is_date32(kind):
        return _memory(column, "<i4").astype("M8[D]")
    if pa.types.is_date64(kind):
        return _memory(column, "<i8").view("M8[ms]")
    return None


def _memory(column: Column, kind: str) -> Array:
    data, dtype = column.buffers()[1], np.dtype(kind)
    if data is None or not len(column):
        return np.zeros(len(column), dtype)
    return np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize)


def _lists(column: Column) -> Values | None:
    """Lists of numbers without nulls, neither among the rows nor within them; None for anything else."""
    kind = column.type
    fixed = pa.types.is_fixed_size_list(kind)
    if not fixed and not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return None
    if kind.value_type not in _NUMBERS:
        return None
    if column.null_count:
        return _some_lists(column)
    inner = column.flatten()
    if inner.null_count:
        return _some_lists(column)
    values = _memory(inner, _NUMBERS[kind.value_type])
    if fixed:
        return _Dense(values.reshape(len(column), kind.list_size))
    offsets = _memory(column.offsets, "<i8" if pa.types.is_large_list(kind) else "<i4").astype(np.int64)
    return _Ragged(values, offsets - offsets[0])


def _some_lists(column: Column) -> Values:
    """Lists of numbers with nulls somewhere: arrays where there are none."""
    dtype = np.dtype(_NUMBERS[column.type.value_type])
    items = column.to_pylist()
    return _Items([_array(item, dtype) for item in items], plain=False)


def _array(item: list[Any] | None, dtype: np.dtype[Any]) -> Any:
    return item if item is None or None in item else np.array(item, dtype)


def _items(column: Column) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError as error:
        raise CorruptError(f"text that is no UTF-8: {error.reason}") from None


def _is_plain(kind: Any) -> bool:
    """Whether `collate_field` leaves a list of such values as it is."""
    test = pa.types
    checks = (test.is_string, test.is_large_string, test.is_binary, test.is_large_binary, test.is_decimal, test.is_time)
    return any(check(kind) for check in checks)
