"""One point of one metric, and the table that many of them make: in the spool, in segments, and when they are read.

=========  ============================  ==============================================================
column     type                          what it is
=========  ============================  ==============================================================
``time``   timestamp[us, UTC]            the clock of the machine that logged it
``step``   int64, nullable               as the caller counts; null where none was given
``rank``   int32                         torchrun's ``RANK``, 0 without
``name``   dictionary<int32, string>     ``loss``, ``train/accuracy`` …
``value``  float64                       NaN and infinities are values like others
=========  ============================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.tracking.arrow import Column, Table, numbers, pa, texts
from headrace.tracking.spool import Points

SCHEMA: Final = pa.schema([
    pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("step", pa.int64()),
    pa.field("rank", pa.int32(), nullable=False),
    pa.field("name", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("value", pa.float64(), nullable=False),
])  # fmt: skip


class Point(NamedTuple):
    """One value of one metric. `time_us`: microseconds since the epoch."""

    time_us: int
    name: str
    value: float
    step: int | None = None
    rank: int = 0


def table(points: Iterable[Point]) -> Table:
    """These points, in their order, as a table of `SCHEMA`. Any thread."""
    rows = list(points)
    if not rows:
        return pa.Table.from_batches([], schema=SCHEMA)
    times, names, values, steps, ranks = zip(*rows, strict=True)
    return columns(np.array(times, np.int64), names, np.array(values, np.float64), steps, np.array(ranks, np.int32))


def columns(
    times_us: NDArray[np.int64],
    names: Sequence[str],
    values: NDArray[np.float64],
    steps: Sequence[int | None],
    ranks: NDArray[np.int32],
) -> Table:
    """The same from columns of equal length. A step that is no int64 is left out."""
    arrays = [
        numbers(times_us, SCHEMA.field("time").type),
        _steps(steps),
        numbers(ranks, pa.int32()),
        _names(names),
        numbers(values, pa.float64()),
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def of_process(points: Points) -> Table:
    """What a process logged, as such a table over the same memory. Raises ArrowException: an index leads nowhere."""
    steps, valid = np.frombuffer(points.steps, np.int64), np.frombuffer(points.stepped, np.bool_)
    arrays = [
        numbers(np.frombuffer(points.times_us, np.int64), SCHEMA.field("time").type),
        numbers(steps, pa.int64(), None if valid.all() else valid),
        numbers(np.full(points.rows, points.rank, np.int32), pa.int32()),
        pa.DictionaryArray.from_arrays(numbers(np.frombuffer(points.codes, np.int32), pa.int32()), texts(points.names)),
        numbers(np.frombuffer(points.values, np.float64), pa.float64()),
    ]
    made = pa.Table.from_arrays(arrays, schema=SCHEMA)
    made.validate(full=True)
    return made


def _names(names: Sequence[str]) -> Column:
    known: dict[str, int] = {}
    codes = [known.setdefault(name, len(known)) for name in names]
    indices = numbers(np.array(codes, np.int32), pa.int32())
    return pa.DictionaryArray.from_arrays(indices, texts([str(name) for name in known]))


def _steps(steps: Sequence[int | None]) -> Column:
    if None not in steps:
        try:
            return numbers(np.array(steps, np.int64), pa.int64())
        except OverflowError:
            pass
    valid = np.array([step is not None and -(1 << 63) <= step < 1 << 63 for step in steps], np.bool_)
    fitting = [step if good else 0 for step, good in zip(steps, valid.tolist(), strict=True)]
    return numbers(np.array(fitting, np.int64), pa.int64(), valid)
