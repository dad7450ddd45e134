"""Rollups against the points they were made of: whatever was logged, the same comes back, and what is told in short is
what the points say.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store import open_store
from headrace.tracking.blocks import blocks_of
from headrace.tracking.curves import curve, curve_of
from headrace.tracking.points import Point, table
from headrace.tracking.reading import series
from headrace.tracking.rollups import rollups, write_rollup
from headrace.tracking.totals import Totals

NAMES = st.sampled_from(["loss", "train/acc", "a*b", "system/cpu", "ü", "loss2"])
VALUES = st.one_of(
    st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf, -math.inf]), st.integers(-9, 9).map(float)
)
POINTS = st.lists(
    st.builds(
        Point, st.integers(0, 10**15), NAMES, VALUES, st.one_of(st.none(), st.integers(0, 400)), st.integers(0, 2)
    ),
    max_size=300,
)


def _sorted(points: list[Point]) -> list[tuple[object, ...]]:
    return [
        (one.name, one.rank, one.time_us, one.step, repr(one.value))
        for one in sorted(points, key=lambda one: (one.name, one.rank, one.time_us))
    ]


def _rows(found: object) -> list[tuple[object, ...]]:
    return [
        (row["name"], row["rank"], round(row["time"].timestamp() * 1e6), row["step"], repr(row["value"]))
        for row in found.to_pylist()  # type: ignore[attr-defined]
    ]


@settings(max_examples=60, deadline=None)
@given(points=POINTS, wanted=NAMES, cut=st.tuples(st.integers(0, 300), st.integers(0, 300)))
def test_what_was_rolled_up_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, points: list[Point], wanted: str, cut: tuple[int, int]
) -> None:
    folder = tmp_path_factory.mktemp("rollup")
    write_rollup(str(folder / "metrics" / "rollup"), 0, 7, table(points))
    (one,) = rollups(open_store(f"file://{folder}"), "metrics/")
    assert (one.first, one.last) == (0, 7)
    assert sorted(_rows(one.read()), key=repr) == sorted(_sorted(points), key=repr)
    assert [row[:3] for row in _rows(one.read())] == [row[:3] for row in _sorted(points)]
    assert {row[0] for row in _rows(one.read([wanted]))} <= {wanted, *([] if "*" not in wanted else ["a*b"])}
    assert len(_rows(one.read([wanted]))) == sum(point.name == wanted for point in points)
    first, last = min(cut), min(max(cut), len(points))
    assert _rows(one.rows(first, last)) == _rows(one.read())[first:last]
    assert one.blocks().array.tobytes() == blocks_of(table(points))[1].array.tobytes()


@settings(max_examples=150, deadline=None)
@given(points=POINTS)
def test_what_is_told_in_short_is_what_the_points_say(points: list[Point]) -> None:
    blocks = blocks_of(table(points))[1]
    assert int(blocks.array["points"].sum()) == len(points)
    totals = Totals()
    totals.add(blocks)
    for (name, rank), total in totals.all.items():
        own = sorted((one for one in points if (one.name, one.rank) == (name, rank)), key=lambda one: one.time_us)
        finite = [one.value for one in own if math.isfinite(one.value)]
        assert (total.points, total.odd) == (len(own), len(own) - len(finite))
        if finite:
            assert (total.low, total.high) == (min(finite), max(finite))
        else:
            assert math.isnan(total.low)
            assert math.isnan(total.high)
        assert total.time_us == own[-1].time_us
    for name, rank, array in blocks.groups():
        steps = array["step0"], array["step"]
        assert not np.any(steps[0] > steps[1]), "a block does not go back"
        assert np.all(np.diff(array["time"]) >= 0)
        assert int(array["points"].sum()) == sum((one.name, one.rank) == (name, rank) for one in points)


@settings(max_examples=100, deadline=None)
@given(values=st.lists(VALUES, min_size=1, max_size=2000), most=st.integers(1, 40), again=st.booleans())
def test_a_curve_of_blocks_has_every_extreme(values: list[float], most: int, again: bool) -> None:
    half = len(values) // 2
    steps = [number - half if again and number >= half else number for number in range(len(values))]
    points = table([Point(at, "loss", value, step) for at, (value, step) in enumerate(zip(values, steps, strict=True))])
    exact = curve(series(points)["loss"], most=most)
    told = curve_of("loss", [next(blocks_of(points)[1].groups())[2]], most=most)
    finite = [value for value in values if math.isfinite(value)]
    for one in (exact, told):
        assert one.points == one.total == len(values)
        assert sum(one.odd) == len(values) - len(finite)
        lows, highs = ([value for value in side if value is not None] for side in (one.low, one.high))
        assert (min(lows, default=None), max(highs, default=None)) == (
            min(finite, default=None), max(finite, default=None)
        )  # fmt: skip
        assert list(one.x) == sorted(one.x)


def test_a_gap_is_left_to_its_segments(tmp_path: Path) -> None:
    folder = str(tmp_path / "metrics" / "rollup")
    for first, last in ((0, 3), (4, 9), (12, 20)):
        write_rollup(folder, first, last, table([Point(first, "loss", 1.0)]))
    assert [one.last for one in rollups(open_store(f"file://{tmp_path}"), "metrics/")] == [3, 9]
