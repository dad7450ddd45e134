"""Pictures of curves as SVG, made by the server: shown without a script, in notebooks, and in a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final

from headrace.base.words import number, plain
from headrace.tracking.curves import Axis, Curve

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 10, 8, 22
"""Margins, pixels: room for the labels of axes."""
_TICKS: Final = 5
"""Of an axis, about."""
COLOURS: Final = 8
"""That eyes tell apart."""
_COLOURS: Final = ("#2a7bd1", "#d9622b", "#2f9e59", "#8a63e8", "#d24a88", "#1f9c90", "#a5803a", "#7a8798")
_STYLE: Final = (
    ".tick{fill:#808080;font:11px sans-serif}.end{text-anchor:end}.middle{text-anchor:middle}"
    ".grid{stroke:#808080;stroke-opacity:.3;fill:none}.line{fill:none;stroke-width:1.6}.band{fill-opacity:.2}"
    ".odd{fill:#c33}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    left: float
    right: float
    low: float
    high: float
    width: int
    height: int

    def x(self, value: float) -> float:
        return _LEFT + (value - self.left) / (self.right - self.left) * (self.width - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return self.height - _BOTTOM - (value - self.low) / (self.high - self.low) * (self.height - _TOP - _BOTTOM)


def chart(
    curves: Sequence[Curve], *, title: str, axis: Axis = "step", log: bool = False, width: int = 640, height: int = 220
) -> str:
    """One picture of all `curves`, the first eight in colours of their own (classes ``c0`` to ``c7``). `title`: for who
    does not see it. `log`: values on a logarithmic scale, without those that are not positive.
    """
    drawn = [_logged(one) if log else one for one in curves]
    box = _box(drawn, width, height)
    head = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(plain(title))}">'
    if box is None:
        return f'{head}<text x="{width // 2}" y="{height // 2}" class="tick middle">no values to draw</text></svg>'
    parts = [head, *_grid(box, axis, log=log)]
    for at, one in enumerate(drawn):
        parts += _drawn(one, box, f"c{at % COLOURS}")
    return "".join([*parts, "</svg>"])


def alone(drawn: str) -> bytes:
    """A picture that `chart` made, as a file of its own: with its colours in it, on white or on dark."""
    lines = "".join(
        f".line.c{at}{{stroke:{one}}}.band.c{at},.dot-of.c{at}{{fill:{one}}}" for at, one in enumerate(_COLOURS)
    )
    style = f"<style>{_STYLE}{lines}</style>"
    head, closing, rest = drawn.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg"{closing}{style}{rest}'.encode()


def _drawn(one: Curve, box: _Box, colour: str) -> list[str]:
    parts: list[str] = []
    if not one.is_whole:
        upper = [(box.x(x), box.y(value)) for x, value in zip(one.x, one.high, strict=True) if value is not None]
        lower = [(box.x(x), box.y(value)) for x, value in zip(one.x, one.low, strict=True) if value is not None]
        parts.append(f'<polygon class="band {colour}" points="{_points([*upper, *reversed(lower)])}"/>')
    for stretch in _stretches(one):
        points = [(box.x(x), box.y(value)) for x, value in stretch]
        if len(points) == 1:
            parts.append(f'<circle class="dot-of {colour}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2.5"/>')
        else:
            parts.append(f'<polyline class="line {colour}" points="{_points(points)}"/>')
    for x, count in zip(one.x, one.odd, strict=True):
        if count:
            told = f"{count} not a number"
            at = box.x(x)
            parts.append(f'<path class="odd" d="M{at - 4:.1f} {_TOP}h8l-4 7z"><title>{told}</title></path>')
    return parts


def _stretches(one: Curve) -> list[list[tuple[float, float]]]:
    """What is joined by lines: a stretch without a finite value parts it."""
    found: list[list[tuple[float, float]]] = [[]]
    for x, value in zip(one.x, one.last, strict=True):
        if value is None:
            found.append([])
        else:
            found[-1].append((x, value))
    return [each for each in found if each]


def _points(pairs: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in pairs)


def _box(curves: Sequence[Curve], width: int, height: int) -> _Box | None:
    xs = [x for one in curves for x in one.x]
    values = [value for one in curves for value in (*one.low, *one.high) if value is not None]
    if not xs or not values:
        return None
    left, right, low, high = min(xs), max(xs), min(values), max(values)
    if left == right:
        left, right = left - 0.5, right + 0.5
    if low == high:
        low, high = low - (abs(low) / 10 or 1), high + (abs(high) / 10 or 1)
    room = (high - low) * 0.04
    return _Box(left, right, low - room, high + room, width, height)


def _grid(box: _Box, axis: Axis, *, log: bool) -> list[str]:
    parts: list[str] = []
    for value in ticks(box.low, box.high):
        y = box.y(value)
        label = number(10**value if log else value)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{box.width - _RIGHT}"/>')
        parts.append(f'<text class="tick end" x="{_LEFT - 6}" y="{y + 4:.1f}">{label}</text>')
    is_time = axis == "time" or box.left > 1e9
    for value in ticks(box.left, box.right):
        label = _clock(value, box.right - box.left) if is_time else number(value)
        parts.append(f'<text class="tick middle" x="{box.x(value):.1f}" y="{box.height - 6}">{label}</text>')
    return parts


def _clock(value: float, span: float) -> str:
    moment = datetime.fromtimestamp(value, UTC)
    return f"{moment:%m-%d %H:%M}" if span > 86_400 else f"{moment:%H:%M:%S}"


def ticks(low: float, high: float) -> list[float]:
    """Round numbers between the two, about five."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [(first + at) * step for at in range(math.floor(high / step) - first + 1)]


def _logged(one: Curve) -> Curve:
    def told(values: tuple[float | None, ...]) -> tuple[float | None, ...]:
        return tuple(math.log10(value) if value is not None and value > 0 else None for value in values)

    low, high, last = told(one.low), told(one.high), told(one.last)
    low = tuple(top if bottom is None else bottom for bottom, top in zip(low, high, strict=True))
    return Curve(one.name, one.x, low, high, last, one.odd, one.points, one.total)
