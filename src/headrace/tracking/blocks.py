"""A run's points in short: each metric of each rank in blocks of consecutive points, with what a curve, a list and a
verdict need of each block. What they say is exact; only where in its block a point lies is not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headrace.tracking.arrow import Table, numbers, pa, texts, to_array, to_valid
from headrace.tracking.points import SCHEMA

LONGEST: Final = 256
"""Points of one block, at most."""
_AT_LEAST: Final = 64
"""Blocks that a metric of so many points is cut into at least, so that short ones are told point by point."""

BLOCK: Final = np.dtype([
    ("code", "i4"), ("rank", "i4"), ("row", "i8"), ("points", "i8"), ("odd", "i8"), ("step0", "f8"), ("step", "f8"),
    ("time0", "i8"), ("time", "i8"), ("low", "f8"), ("high", "f8"), ("last", "f8"), ("sum", "f8"),
])  # fmt: skip
"""One block. `code`: its metric's place in `Blocks.names`; `row`: of its first point in the sorted table.

`step0`, `step`, `time0`, `time`: of its first and last point, steps NaN where none was given, times in microseconds
since the epoch. `odd`: values that are NaN or infinite; `low`, `high`, `last`, `sum`: of the others, NaN (0) without.
"""

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Blocks:
    """`array`: of `BLOCK`, by name, then rank, then time; it may be mapped from a file. Frozen; any thread."""

    names: tuple[str, ...]
    array: Array

    def groups(self) -> Iterator[tuple[str, int, Array]]:
        """Name, rank and blocks of each metric of each rank, in their order."""
        codes, ranks = self.array["code"], self.array["rank"]
        new = (np.diff(codes, prepend=-1) != 0) | (np.diff(ranks, prepend=-1) != 0)
        starts = np.flatnonzero(new).tolist()
        for start, stop in pairwise([*starts, len(codes)]):
            yield self.names[codes[start]], int(ranks[start]), self.array[start:stop]


def blocks_of(points: Table, *, longest: int = LONGEST) -> tuple[Table, Blocks]:
    """The same points by name, rank and time, and their blocks. A step that goes back begins a new one."""
    if not points.num_rows:
        return points, Blocks((), np.zeros(0, BLOCK))
    whole = points.unify_dictionaries().combine_chunks()
    time, step, ranked, coded, value = (whole.column(name).chunk(0) for name in SCHEMA.names)
    names: list[str] = coded.dictionary.to_pylist()
    by_name = sorted(range(len(names)), key=names.__getitem__)
    places = np.empty(len(names), np.int32)
    places[by_name] = np.arange(len(names), dtype=np.int32)
    codes, ranks = places[to_array(coded.indices, np.int32)], to_array(ranked, np.int32)
    times, values = to_array(time, "i8"), to_array(value, np.float64)
    valid = to_valid(step)
    order = np.lexsort((times, ranks, codes))
    codes, ranks, times, values, valid = codes[order], ranks[order], times[order], values[order], valid[order]
    counted = to_array(step, np.int64)[order]
    steps = np.where(valid, counted.astype(np.float64), np.nan)
    starts = _starts(codes, ranks, steps, longest)
    known = tuple(names[at] for at in by_name)
    made = Blocks(known, _told(starts, codes, ranks, steps, times, values))
    return _table(known, times, counted, valid, ranks, codes, values), made


def _starts(codes: Array, ranks: Array, steps: Array, longest: int) -> Array:
    """Where each block begins."""
    count = len(codes)
    places = np.arange(count)
    new = (np.diff(codes, prepend=-1) != 0) | (np.diff(ranks, prepend=-1) != 0)
    groups = np.flatnonzero(new)
    sizes = np.diff(groups, append=count)
    lengths = np.repeat(np.clip(-(-sizes // _AT_LEAST), 1, longest), sizes)
    with np.errstate(invalid="ignore"):
        back = np.append(False, steps[1:] < steps[:-1])
    cut = new | back | np.append(False, np.isnan(steps[1:]) != np.isnan(steps[:-1]))
    since = places - np.maximum.accumulate(np.where(cut, places, 0))
    return np.flatnonzero(since % lengths == 0)


def _told(starts: Array, codes: Array, ranks: Array, steps: Array, times: Array, values: Array) -> Array:
    ends = np.append(starts[1:], len(codes)) - 1
    finite = np.isfinite(values)
    places = np.maximum.reduceat(np.where(finite, np.arange(len(values)), -1), starts)
    some = places >= 0
    found = np.empty(len(starts), BLOCK)
    found["code"], found["rank"], found["row"] = codes[starts], ranks[starts], starts
    found["points"] = np.diff(starts, append=len(codes))
    found["odd"] = np.add.reduceat((~finite).astype(np.int64), starts)
    found["step0"], found["step"] = steps[starts], steps[ends]
    found["time0"], found["time"] = times[starts], times[ends]
    found["low"] = np.where(some, np.minimum.reduceat(np.where(finite, values, np.inf), starts), np.nan)
    found["high"] = np.where(some, np.maximum.reduceat(np.where(finite, values, -np.inf), starts), np.nan)
    found["last"] = np.where(some, values[places], np.nan)
    found["sum"] = np.add.reduceat(np.where(finite, values, 0.0), starts)
    return found


def _table(
    names: tuple[str, ...], times: Array, steps: Array, valid: Array, ranks: Array, codes: Array, values: Array
) -> Table:
    arrays = [
        numbers(times, SCHEMA.field("time").type),
        numbers(steps, pa.int64(), None if valid.all() else valid),
        numbers(ranks, pa.int32()),
        pa.DictionaryArray.from_arrays(numbers(codes, pa.int32()), texts(names)),
        numbers(values, pa.float64()),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def points_of(steps: Array, times_us: Array, values: Array) -> Array:
    """Each point of one metric as a block of its own. `steps`: float64, NaN where none was given."""
    found = np.zeros(len(values), BLOCK)
    finite = np.isfinite(values)
    found["row"], found["points"], found["odd"] = np.arange(len(values)), 1, ~finite
    found["step0"] = found["step"] = steps
    found["time0"] = found["time"] = times_us
    found["low"] = found["high"] = found["last"] = np.where(finite, values, np.nan)
    found["sum"] = np.where(finite, values, 0.0)
    return found
