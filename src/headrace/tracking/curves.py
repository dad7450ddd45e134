"""Metrics as they are drawn: of many points the least, the largest and the last of each stretch, none of them guessed.

A picture a thousand dots wide shows no more than that of a million points, and no extreme is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.tracking.reading import Series

Axis: TypeAlias = Literal["step", "time"]
Floats: TypeAlias = NDArray[np.float64]
MOST: Final = 500
"""Stretches of a curve."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric as it is drawn: one entry a stretch that has points. `x`: its last step, or seconds since the epoch;
    `low`, `high`, `last`: of its finite values, None where it has none; `odd`: how many values were NaN or infinite.

    `points`: of the metric in what is shown; `total`: of all of it.
    """

    name: str
    x: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    last: tuple[float | None, ...]
    odd: tuple[int, ...]
    points: int
    total: int

    @property
    def is_whole(self) -> bool:
        """Whether each point has a stretch of its own."""
        return len(self.x) == self.points


def curve(
    one: Series, axis: Axis = "step", *, start: float | None = None, stop: float | None = None, most: int = MOST
) -> Curve:
    """`one` from `start` to `stop` (steps, or seconds since the epoch; None: all) in `most` stretches at most.

    Where no step was given the axis is time.
    """
    x = axis_of(one, axis)
    wanted = np.isfinite(x)
    if start is not None:
        wanted &= x >= start
    if stop is not None:
        wanted &= x <= stop
    xs, values = x[wanted], one.values[wanted]
    if not len(xs):
        return Curve(one.name, (), (), (), (), (), 0, len(one.values))
    bounds = _bounds(xs, most)
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), bounds)
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), bounds)
    places = np.where(finite, np.arange(len(values)), -1)
    last = np.maximum.reduceat(places, bounds)
    there = np.isfinite(low)
    ends = np.append(bounds[1:], len(xs)) - 1
    odd = np.add.reduceat((~finite).astype(np.int64), bounds)

    def told(numbers: Floats) -> tuple[float | None, ...]:
        return tuple(number if yes else None for number, yes in zip(numbers.tolist(), there.tolist(), strict=True))

    return Curve(
        one.name, tuple(xs[ends].tolist()), told(low), told(high), told(values[last]), tuple(odd.tolist()), len(xs),
        len(one.values),
    )  # fmt: skip


def axis_of(one: Series, axis: Axis) -> Floats:
    """Where each point stands, in the order of `one`."""
    if axis == "step" and np.isfinite(one.steps).any():
        return one.steps
    return one.times.astype("datetime64[us]").astype(np.int64) / 1e6


def _bounds(xs: Floats, most: int) -> NDArray[np.int64]:
    """Where each stretch begins. Stretches are of one length; those without points go."""
    if len(xs) <= most:
        return np.arange(len(xs))
    if np.any(np.diff(xs) < 0):  # times that a clock set back: in their order, then
        return np.linspace(0, len(xs), most, endpoint=False).astype(np.int64)
    edges = np.linspace(xs[0], xs[-1], most, endpoint=False)
    return np.unique(np.searchsorted(xs, edges))
