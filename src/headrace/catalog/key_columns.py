"""Arithmetic on whole columns of keys: where folders, stems and suffixes end, without a Python loop over rows.

A column is an Arrow ``large_string`` array: one buffer of UTF-8 bytes and one of int64 offsets. NumPy looks at these
buffers in place. Definitions, for a key below the root such as ``a.d/17.tar.gz``:

* folder: up to and without the last ``/`` (``a.d``); top: up to the first ``/``; name: the rest (``17.tar.gz``)
* suffix: what follows the first dot of the name that is not one of its leading dots (``tar.gz``); none for ``.hidden``,
  ``README`` and ``odd.``
* stem: the key without suffix and without that dot (``a.d/17``)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Column, from_numbers, from_texts, pa

Positions = npt.NDArray[np.int64]
_DOT, _SLASH = ord("."), ord("/")


def strings(values: Sequence[str], what: str = "name") -> Column:
    """A ``large_string`` column. Raises InputError for text that is no valid UTF-8 (a file name with stray bytes)."""
    try:
        return from_texts(values)
    except UnicodeEncodeError as error:
        from headrace.base.errors import InputError

        bad = next(v for v in values if any("\ud800" <= c <= "\udfff" for c in v))
        raise InputError(f"{what} is not valid UTF-8", path=ascii(bad), hint="rename the object") from error


def buffers(column: Column) -> tuple[Positions, npt.NDArray[np.uint8]]:
    """(offsets [n+1], bytes): the column's own memory. offsets[0] need not be 0: the column may be a slice."""
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    at = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    return at, np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)


def lengths(column: Column) -> Positions:
    """Bytes of each value."""
    return np.diff(buffers(column)[0])


def column_pieces(data: Any, starts: Positions, stops: Positions, kind: Any = None) -> Column:
    """Column of ``data[start:stop]`` without copying `data` first. Ranges must be ascending and not overlap.

    An Arrow array needs touching ranges, so one is made whose odd values are the gaps; then the even ones are taken.
    """
    count = len(starts)
    if count == 0:
        return pa.nulls(0, kind or pa.large_string())
    offsets = np.empty(2 * count, dtype=np.int64)
    offsets[0::2], offsets[1::2] = starts, stops
    both = pa.Array.from_buffers(
        kind or pa.large_string(), 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return both.take(from_numbers(np.arange(0, 2 * count - 1, 2)))


def name_starts(column: Column) -> Positions:
    """Where each name starts, relative to its key: one past the last ``/``."""
    at, data = buffers(column)
    slashes = np.flatnonzero(data[at[0] : at[-1]] == _SLASH) + at[0]
    before = np.searchsorted(slashes, at[1:]) - 1
    last = slashes[np.maximum(before, 0)] if len(slashes) else np.full(len(column), -1)
    inside = (before >= 0) & (last >= at[:-1])
    return np.where(inside, last + 1 - at[:-1], 0)


def folders_of(column: Column) -> Column:
    """The folder of each key; empty where there is none."""
    at, data = buffers(column)
    return column_pieces(data, at[:-1], at[:-1] + np.maximum(name_starts(column) - 1, 0))


def top_stops(column: Column) -> Positions:
    """Where each key's first ``/`` is; -1 without one."""
    return _first(column, _SLASH, buffers(column)[0][:-1])


def stem_stops(column: Column) -> Positions:
    """Bytes of each stem; the key's whole length where it has no suffix."""
    at, data = buffers(column)
    start, stop = at[:-1] + name_starts(column), at[1:]
    while len(data):
        leading = start < stop
        leading[leading] = data[start[leading]] == _DOT
        if not leading.any():
            break
        start = start + leading
    dot = _first(column, _DOT, start)
    length = stop - at[:-1]
    return np.where((dot >= 0) & (dot + 1 < length), dot, length)


def _first(column: Column, byte: int, start: Positions) -> Positions:
    """Position, in each key, of the first `byte` at or after the absolute `start`; -1 without one."""
    at, data = buffers(column)
    places = np.flatnonzero(data[at[0] : at[-1]] == byte) + at[0]
    if not len(places):
        return np.full(len(column), -1)
    after = np.searchsorted(places, start)
    found = places[np.minimum(after, len(places) - 1)]
    return np.where((after < len(places)) & (found < at[1:]), found - at[:-1], -1)
