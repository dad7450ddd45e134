"""What the page knows of a run against all of its points: with rollups and without, read at once or as it grows."""

from __future__ import annotations

import io
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.store import open_store
from headrace.tracking import measured as module
from headrace.tracking.curves import curve
from headrace.tracking.figures import figures_of
from headrace.tracking.measured import Measured
from headrace.tracking.points import Point, table
from headrace.tracking.reading import read_metrics, series
from headrace.tracking.rollups import write_rollup

OURS = ("headrace/loader.wait_s", "headrace/loader.own_s", "headrace/process.seconds")
NAMES = ("loss", "system/cpus", "job/cpu", *OURS)


def put(folder: Path, number: int, points: list[Point]) -> None:
    data = io.BytesIO()
    pq.write_table(table(points).replace_schema_metadata({b"headrace.format": b"1"}), data)
    (folder / "metrics").mkdir(exist_ok=True)
    (folder / "metrics" / f"{number:08d}.parquet").write_bytes(data.getvalue())


def segments(rng: np.random.Generator, count: int, rows: int) -> list[list[Point]]:
    """As runs write them: time goes on, steps too, but for a restart in the middle; two ranks."""
    made: list[list[Point]] = []
    time_us, step = 1_700_000_000_000_000, 0
    for number in range(count):
        if number == count // 2:
            step = max(0, step - rows * 3)
        points: list[Point] = []
        for _ in range(rows):
            time_us += int(rng.integers(1, 3_000_000))
            step += 1
            name = NAMES[int(rng.integers(len(NAMES)))]
            value = float(rng.choice([rng.normal(), rng.normal() * 100, math.nan if name == "loss" else 1.0]))
            if name == "system/cpus":  # it lasts: of a block the last one stands for all
                value = 4.0 if number < count // 3 else 8.0
            points.append(Point(time_us, name, value, step if name == "loss" else None, int(rng.integers(2))))
        made.append(points)
    return made


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 30), count=st.integers(1, 14), rows=st.integers(1, 60),
    rolled=st.lists(st.integers(0, 13)),
    polls=st.integers(1, 3), most=st.integers(1, 300), own=st.sampled_from([1, 100, 200_000]),
)  # fmt: skip
def test_what_is_known_is_what_the_points_say(
    tmp_path_factory: pytest.TempPathFactory, seed: int, count: int, rows: int, rolled: list[int], polls: int,
    most: int, own: int,
) -> None:  # fmt: skip
    folder = tmp_path_factory.mktemp("run")
    store = open_store(f"file://{folder}")
    every = segments(np.random.default_rng(seed), count, rows)
    ends = sorted({one for one in rolled if one < count})
    found = Measured(store, "metrics/", str(folder / "kept"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MOST_ROWS", own)  # this node rolls up too, now and then
        patch.setattr(module, "_LOOKED_EVERY", 2)
        for poll in range(polls):
            for number in range(count * poll // polls, count * (poll + 1) // polls):
                put(folder, number, every[number])
            for first, last in zip([0, *(one + 1 for one in ends)], ends, strict=False):
                if last < count * (poll + 1) // polls:
                    points = [point for one in every[first : last + 1] for point in one]
                    write_rollup(str(folder / "metrics" / "rollup"), first, last, table(points))
            found.refresh()
        found.refresh()
        again = Measured(store, "metrics/", str(folder / "kept"))
        again.refresh()
    whole = read_metrics(store, "metrics/").table
    assert whole.num_rows == count * rows
    for one in (found, again):
        exact = series(whole)
        assert one.metrics.keys() == exact.keys()
        for name, own_series in exact.items():
            total = one.metrics[name]
            assert total.points == len(own_series.values)
            assert total.odd == int((~np.isfinite(own_series.values)).sum())
            drawn, told = one.curve(name, most=most), curve(own_series, most=most)
            assert (drawn.total, drawn.points, sum(drawn.odd)) == (told.total, told.points, sum(told.odd))
            for side, least in ((drawn.low, min), (drawn.high, max)):
                mine = [value for value in side if value is not None]
                finite = own_series.values[np.isfinite(own_series.values)].tolist()
                assert least(mine, default=None) == least(finite, default=None)
            assert list(drawn.x) == sorted(drawn.x)
        figures, expected = one.figures(), figures_of(whole)
        assert figures.sums == pytest.approx(expected.sums)
        assert figures.means == pytest.approx(expected.means)
        assert figures.seconds == pytest.approx(expected.seconds)
        assert one.figures(1).sums == pytest.approx(figures_of(whole, rank=1).sums)
        assert one.span is not None
        edges = np.linspace(one.span[0], one.span[1] + 1, 6).astype(np.int64)
        parts = one.stretches(edges)
        assert parts.figures.sums == pytest.approx(expected.sums)
        for (first, last), own_figures in zip(pairwise(edges.tolist()), parts.each(), strict=True):
            assert own_figures.sums == pytest.approx(figures_of(whole, span=(first, last)).sums)


def test_a_closer_look_reads_the_points(tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=50_000)
    points = [Point(at * 1000, "loss", float(value), at) for at, value in enumerate(values)]
    write_rollup(str(tmp_path / "metrics" / "rollup"), 0, 0, table(points))
    one = Measured(open_store(f"file://{tmp_path}"), "metrics/", str(tmp_path / "kept"))
    one.refresh()
    far, close = one.curve("loss"), one.curve("loss", start=20_000, stop=20_300)
    assert (far.points, len(far.x) < 1000, far.is_whole) == (50_000, True, False)
    assert close.x == tuple(map(float, range(20_000, 20_301)))
    assert close.last == tuple(values[20_000:20_301].tolist())
    assert close.is_whole
