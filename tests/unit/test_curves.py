"""Curves hold every extreme of what they are made of, and pictures of them are well formed."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.tracking.curves import coarser, curve
from headrace.tracking.reading import Series
from headrace.tracking.svg import chart, ticks

VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=300)


def series(values: list[float], steps: list[float] | None = None) -> Series:
    times = np.arange(len(values)).astype("datetime64[s]").astype("datetime64[us]")
    given = np.array(steps if steps is not None else range(len(values)), np.float64)
    return Series("loss", times, given, np.array(values, np.float64))


@given(VALUES, st.integers(1, 50), st.booleans())
def test_no_extreme_is_lost(values: list[float], most: int, again: bool) -> None:
    """At once, or of what was drawn finer."""
    drawn = coarser(curve(series(values)), most) if again else curve(series(values), most=most)
    finite = [value for value in values if math.isfinite(value)]
    lows = [low for low in drawn.low if low is not None]
    highs = [high for high in drawn.high if high is not None]
    assert len(drawn.x) <= max(most, 1)
    assert (drawn.points, drawn.total) == (len(values), len(values))
    assert sum(drawn.odd) == len(values) - len(finite)
    if finite:
        assert (min(lows), max(highs)) == (min(finite), max(finite))
        assert [last for last in drawn.last if last is not None][-1] == finite[-1]
    assert list(drawn.x) == sorted(drawn.x)


@given(VALUES, st.booleans())
def test_a_picture_is_well_formed(values: list[float], log: bool) -> None:
    drawn = chart([curve(series(values), most=20)], title="a & b <c>", log=log)
    root = ElementTree.fromstring(drawn)
    assert root.get("aria-label") == "a & b <c>"
    assert "nan" not in drawn.replace("not a number", "")


def test_where_no_step_was_given_the_axis_is_time() -> None:
    drawn = curve(series([1.0, 2.0], [math.nan, math.nan]))
    assert drawn.x == (0.0, 1.0)


def test_of_a_stretch() -> None:
    drawn = curve(series([float(number) for number in range(1000)]), start=100, stop=199)
    assert (drawn.points, drawn.total, drawn.low[0], drawn.high[-1]) == (100, 1000, 100.0, 199.0)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 17), (1e-9, 3e-9), (1.7e9, 1.7e9 + 60), (-5e12, 8e12)])
def test_ticks_are_few_and_within(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low <= tick <= high * (1 + 1e-9) for tick in found)
