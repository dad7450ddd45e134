"""Rollups, summaries and what loaders said, as earlier versions wrote them, are still read; and without them the same
run, as versions before that wrote it. The fixture is never regenerated; a new format adds a folder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.tracking.handed import handed, handings
from headrace.tracking.measured import Measured
from headrace.tracking.reading import read_metrics, series
from headrace.tracking.runs import Run, Runs

FIXTURES = Path(__file__).parent
ID = "20261128-090000-rolled-0004"


@pytest.fixture(params=["as it is", "without rollups"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    shutil.copytree(FIXTURES / "run-2", tmp_path / "home")
    if request.param == "without rollups":
        shutil.rmtree(tmp_path / "home/runs" / ID / "metrics/rollup")
        (tmp_path / "home/runs" / ID / "summary.json").unlink()
    return Runs(Home(open_store(f"file://{tmp_path}"), "home/")).find("rolled")


def test_its_points(run: Run) -> None:
    found = series(read_metrics(run.store, f"{run.prefix}metrics/").table)
    assert len(found["loss"].values) == 40
    assert (found["loss"].last(), found["loss"].max) == (1 / 40, 1.0)
    assert series(read_metrics(run.store, f"{run.prefix}metrics/", names=["ac*"]).table).keys() == {"acc"}


def test_in_short(run: Run, tmp_path: Path) -> None:
    measured = Measured(run.store, f"{run.prefix}metrics/", str(tmp_path / "kept"))
    measured.refresh()
    loss = measured.metrics["loss"]
    assert (loss.points, loss.odd, loss.last, loss.high) == (40, 1, 1 / 40, 1.0)
    assert measured.figures().sums["loader.wait_s"] == 10.0
    curve = measured.curve("loss")
    assert (curve.is_whole, len(curve.x), sum(curve.odd)) == (True, 40, 1)


def test_where_its_loader_stood(run: Run, tmp_path: Path) -> None:
    measured = Measured(run.store, f"{run.prefix}metrics/", str(tmp_path / "kept"))
    measured.refresh()
    (one,) = handed(measured, handings(run.store, run.prefix), 12, 0)
    assert (one.epoch, one.first, one.stop, one.exact) == (0, 48, 52, True)


def test_its_summary(run: Run) -> None:
    summary = run.summary()
    if summary is None:
        return
    assert (summary.segment, summary.waited, summary.loss) == (3, 0.25, 1 / 40)
    assert summary.metrics["acc"] == {"last": 0.975, "min": 0.0, "max": 0.975, "step": 39.0, "points": 40}
