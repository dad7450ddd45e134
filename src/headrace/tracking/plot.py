"""Lines on a terminal: one metric of one run in braille dots, or of several runs, each with a mark of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.tracking.reading import Series

Floats = NDArray[np.float64]

_MARKS: Final = "●▲■◆○△□◇"
_PLAIN: Final = "*o+x#@%&"
_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint16)
"""The bits of a braille character, U+2800: Unicode's chart of the block."""
_SMALLEST = (24, 3)
"""Columns and rows below which no curve is seen."""


@dataclass(frozen=True, slots=True)
class _Box:
    """What the picture spans; no side has length 0."""

    left: float
    right: float
    low: float
    high: float


def draw(
    series: Mapping[str, Series],
    *,
    width: int = 80,
    height: int = 20,
    x: Literal["step", "time"] = "step",
    log: bool = False,
    encoding: str = "utf-8",
) -> str:
    """A picture of `width` columns and `height` lines, and below it a line for each series. Ends without a newline.

    `series`: by what the legend calls them. `x`: the step, or seconds since each one's first point. `log`: of the
    values; those that are not positive are left out, as are NaN and infinities: the line has a gap there. `encoding`:
    of the terminal; one that knows no braille gets ASCII.
    """
    width, height = max(width, _SMALLEST[0]), max(height, _SMALLEST[1])
    plain = not _knows(encoding)
    marks = _PLAIN if plain else _MARKS
    curves = [_curve(one, x, log=log) for one in series.values()]
    legend = [_legend(marks[at % len(marks)], *named) for at, named in enumerate(series.items())]
    box = _box(curves)
    if box is None:
        return "\n".join(["(no values to draw)", *legend])
    labels = [_label(value, log=log) for value in (box.high, box.high / 2 + box.low / 2, box.low)]
    margin = max(map(len, labels))
    shape = (height, width - margin - 2)
    picture = _one(curves[0], box, shape) if len(curves) == 1 and not plain else _several(curves, box, shape, marks)
    return "\n".join([*_framed(picture, labels, margin, plain=plain), _axis(box, margin, shape[1], x), *legend])


def _knows(encoding: str) -> bool:
    try:
        f"\u28ff│{_MARKS}".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _curve(series: Series, x: str, *, log: bool) -> tuple[Floats, Floats]:
    """Where its points are; NaN where there is nothing to draw."""
    if x == "time":
        across: Floats = (series.times - series.times.min()) / np.timedelta64(1, "s")
        order = np.argsort(across, kind="stable")
    else:
        across = series.steps
        if np.isnan(across).all():
            across = np.arange(len(across), dtype=np.float64)
        order = np.flatnonzero(~np.isnan(across))
    values = series.values[order]
    if log:
        values = np.log10(values, out=np.full(len(values), np.nan), where=values > 0)
    return across[order], np.where(np.isfinite(values), values, np.nan)


def _box(curves: list[tuple[Floats, Floats]]) -> _Box | None:
    seen = [(x[good], y[good]) for x, y in curves if (good := ~np.isnan(y)).any()]
    if not seen:
        return None
    left, right = min(float(x.min()) for x, _ in seen), max(float(x.max()) for x, _ in seen)
    low, high = min(float(y.min()) for _, y in seen), max(float(y.max()) for _, y in seen)
    if low == high:
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    return _Box(left, right if right > left else left + 1.0, low, high)


def _dots(curve: tuple[Floats, Floats], box: _Box, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The curve on a grid [lines, columns], line 0 on top: in each column all that it spans, and lines between."""
    grid = np.zeros(shape, np.bool_)
    good = np.flatnonzero(~np.isnan(curve[1]))
    across, values = curve[0][good], curve[1][good]
    columns = np.rint((across - box.left) / (box.right - box.left) * (shape[1] - 1)).astype(np.int64)
    share = values / 2 / (box.high / 2 - box.low / 2) - box.low / 2 / (box.high / 2 - box.low / 2)
    lines = shape[0] - 1 - np.rint(np.clip(share, 0, 1) * (shape[0] - 1)).astype(np.int64)
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    tops, bottoms = np.minimum.reduceat(lines, starts), np.maximum.reduceat(lines, starts)
    for at, (column, top, bottom) in enumerate(zip(columns[starts], tops, bottoms, strict=True)):
        grid[top : bottom + 1, column] = True
        before = starts[at] - 1
        if at and good[starts[at]] == good[before] + 1:  # nothing was left out in between
            ends = (columns[before], column), (lines[before], lines[starts[at]])
            count = max(abs(int(one[1] - one[0])) for one in ends) + 1
            to, down = (np.rint(np.linspace(*one, count)).astype(np.int64) for one in ends)
            grid[down, to] = True
    return grid


def _one(curve: tuple[Floats, Floats], box: _Box, shape: tuple[int, int]) -> list[str]:
    """Eight dots a character."""
    dots = _dots(curve, box, (shape[0] * 4, shape[1] * 2)).reshape(shape[0], 4, shape[1], 2)
    codes: NDArray[Any] = (dots * _DOTS[None, :, None, :]).sum(axis=(1, 3)) + 0x2800
    return ["".join(map(chr, line)).replace("\u2800", " ") for line in codes.tolist()]


def _several(curves: list[tuple[Floats, Floats]], box: _Box, shape: tuple[int, int], marks: str) -> list[str]:
    """A mark a character; where lines meet, the later one's."""
    cells = np.full(shape, " ")
    for at, curve in enumerate(curves):
        if not np.isnan(curve[1]).all():
            cells[_dots(curve, box, shape)] = marks[at % len(marks)]
    return ["".join(line) for line in cells.tolist()]


def _framed(picture: list[str], labels: list[str], margin: int, *, plain: bool) -> list[str]:
    at = {0: labels[0], (len(picture) - 1) // 2: labels[1], len(picture) - 1: labels[2]}
    edge = "|" if plain else "│"
    return [f"{at.get(row, ''):>{margin}} {edge}{line}".rstrip() for row, line in enumerate(picture)]


def _axis(box: _Box, margin: int, width: int, x: str) -> str:
    first, last = f"{box.left:.6g}", f"{box.right:.6g}"
    middle = "step" if x == "step" else "seconds"
    return " " * (margin + 2) + first + middle.center(width - len(first) - len(last)) + last


def _label(value: float, *, log: bool) -> str:
    with np.errstate(over="ignore"):
        return f"{np.power(10.0, value) if log else value:.4g}"


def _legend(mark: str, name: str, series: Series) -> str:
    shown = "".join(one if one.isprintable() else "?" for one in name)  # a name may hold a terminal's commands
    return f"{mark} {shown}: last {series.last():.6g}, min {series.min:.6g}, max {series.max:.6g}"
