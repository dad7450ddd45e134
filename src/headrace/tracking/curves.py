"""Metrics as they are drawn: of many points the least, the largest and the last of each stretch, none of them guessed.

A picture a thousand dots wide shows no more than that of a million points, and no extreme is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.tracking.blocks import points_of
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
    found = points_of(one.steps, one.times.astype("datetime64[us]").astype(np.int64), one.values)
    return curve_of(one.name, [found], axis_of(found, axis), start=start, stop=stop, most=most)


def curve_of(
    name: str,
    parts: Sequence[NDArray[Any]],
    axis: Axis = "step",
    *,
    start: float | None = None,
    stop: float | None = None,
    most: int = MOST,
    total: int | None = None,
) -> Curve:
    """The same of the blocks of one metric (`headrace.tracking.blocks.BLOCK`), each as a whole. `parts`: one follows
    the other. `total`: points of the metric, if these are not all of its blocks.
    """
    total = sum(int(one["points"].sum()) for one in parts) if total is None else total
    columns = _Columns(parts)
    columns.keep(np.concatenate([inside(one, axis, start, stop) for one in parts]))
    xs = columns["step"] if axis == "step" else columns["time"] / 1e6
    if not len(xs):
        return Curve(name, (), (), (), (), (), 0, total)
    if axis == "step" and np.any(xs[1:] < xs[:-1]):  # begun again from a step before
        columns.keep(np.lexsort((columns["time"], xs)))
        xs = columns["step"]
    bounds = _bounds(xs, most)
    values = columns["last"]
    last = np.maximum.reduceat(np.where(np.isfinite(values), np.arange(len(xs)), -1), bounds)
    ends = np.append(bounds[1:], len(xs)) - 1

    def told(numbers: Floats) -> tuple[float | None, ...]:
        some = (last >= 0).tolist()
        return tuple(number if yes else None for number, yes in zip(numbers.tolist(), some, strict=True))

    return Curve(
        name, tuple(xs[ends].tolist()), told(np.fmin.reduceat(columns["low"], bounds)),
        told(np.fmax.reduceat(columns["high"], bounds)), told(values[last]),
        tuple(np.add.reduceat(columns["odd"], bounds).tolist()), int(columns["points"].sum()), total,
    )  # fmt: skip


class _Columns:
    """Blocks that lie in several arrays, a column at a time: whole ones NumPy copies field by field, which takes ten
    times as long.
    """

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self._parts = parts
        self._kept: list[NDArray[Any]] = []

    def keep(self, which: NDArray[Any]) -> None:
        """Of those kept so far: a mask, or places."""
        if which.dtype != np.bool_ or not which.all():
            self._kept.append(which)

    def __getitem__(self, name: str) -> NDArray[Any]:
        found = np.concatenate([one[name] for one in self._parts])
        for which in self._kept:
            found = found[which]
        return found


def axis_of(blocks: NDArray[Any], axis: Axis) -> Axis:
    """What they can stand over: time, where no step was given."""
    return axis if np.isfinite(blocks["step"]).any() else "time"


def inside(blocks: NDArray[Any], axis: Axis, start: float | None, stop: float | None) -> NDArray[np.bool_]:
    """Which of them reach into a stretch; see `curve`."""
    first, last = _ends(blocks, axis)
    wanted = np.isfinite(last)
    if start is not None:
        wanted &= last >= start
    if stop is not None:
        wanted &= first <= stop
    return wanted


def coarser(one: Curve, most: int) -> Curve:
    """The same in `most` stretches at most, each made of some that lie side by side: no extreme is lost."""
    if len(one.x) <= most:
        return one
    wide = -(-len(one.x) // most)
    spans = [slice(at, at + wide) for at in range(0, len(one.x), wide)]

    def told(values: tuple[float | None, ...], pick: Callable[[list[float]], float]) -> tuple[float | None, ...]:
        groups = ([value for value in values[span] if value is not None] for span in spans)
        return tuple(pick(some) if some else None for some in groups)

    return replace(
        one, x=tuple(one.x[span][-1] for span in spans), low=told(one.low, min), high=told(one.high, max),
        last=told(one.last, lambda some: some[-1]), odd=tuple(sum(one.odd[span]) for span in spans),
    )  # fmt: skip


def _ends(blocks: NDArray[Any], axis: Axis) -> tuple[Floats, Floats]:
    """Where each block begins and ends."""
    if axis == "step":
        return blocks["step0"], blocks["step"]
    return blocks["time0"] / 1e6, blocks["time"] / 1e6


def _bounds(xs: Floats, most: int) -> NDArray[np.int64]:
    """Where each stretch begins. Stretches are of one length; those without points go."""
    if len(xs) <= most:
        return np.arange(len(xs))
    if np.any(xs[1:] < xs[:-1]):  # times that a clock set back: in their order, then
        return np.linspace(0, len(xs), most, endpoint=False).astype(np.int64)
    edges = np.linspace(xs[0], xs[-1], most, endpoint=False)
    found = np.searchsorted(xs, edges)  # they rise
    return found[np.diff(found, prepend=-1) > 0]
