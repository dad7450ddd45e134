"""What the page knows of a run, where something fails in between: a disk, a file of this node, an object, another."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import CorruptError
from headrace.store import open_store
from headrace.tracking import measured as module
from headrace.tracking.measured import Measured
from headrace.tracking.points import Point, table
from headrace.tracking.rollups import rollups, write_rollup
from tests.property.test_measured import put

START = 1_700_000_000_000_000


def run(folder: Path, *, segments: int = 6, rows: int = 100, first: int = 0) -> list[Point]:
    """Loss over steps, one a second."""
    every: list[Point] = []
    for number in range(first, segments):
        steps = range(number * rows, (number + 1) * rows)
        points = [Point(START + step * 1_000_000, "loss", float(step % 97), step) for step in steps]
        put(folder, number, points)
        every += points
    return every


def known(folder: Path) -> Measured:
    return Measured(open_store(f"file://{folder}"), "metrics/", str(folder / "kept"))


@pytest.mark.parametrize("left", ["nothing", "half", "other names", "no list"])
def test_a_file_of_this_node_that_a_crash_left_is_made_anew(tmp_path: Path, left: str) -> None:
    write_rollup(str(tmp_path / "metrics/rollup"), 0, 5, table(run(tmp_path)))
    known(tmp_path).refresh()
    (array,), (names,) = (tmp_path / "kept").glob("*.npy"), (tmp_path / "kept").glob("*.json")
    if left in ("nothing", "half"):
        array.write_bytes(array.read_bytes()[: 0 if left == "nothing" else array.stat().st_size // 2])
    else:
        names.write_text("[]" if left == "other names" else "5")
    found = known(tmp_path)
    found.refresh()
    assert found.metrics["loss"].points == 600


def test_no_folder_to_keep_anything_in_is_no_reason_to_show_nothing(tmp_path: Path) -> None:
    write_rollup(str(tmp_path / "metrics/rollup"), 0, 5, table(run(tmp_path)))
    (tmp_path / "kept").write_text("a file")
    found = known(tmp_path)
    found.refresh()
    assert (found.metrics["loss"].points, found.curve("loss", start=100, stop=109).points) == (600, 10)


def test_no_room_to_roll_up_is_told_each_time_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    (tmp_path / "kept").write_text("a file")
    monkeypatch.setattr(module, "_MOST_ROWS", 150)
    found = known(tmp_path)
    for _ in range(3):
        with pytest.raises(OSError):
            found.refresh()
    (tmp_path / "kept").unlink()
    found.refresh()
    assert found.metrics["loss"].points == 600


@pytest.mark.parametrize("object_", ["points", "blocks"])
def test_what_this_node_has_rolled_up_is_made_anew_where_it_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, object_: str
) -> None:
    run(tmp_path)
    monkeypatch.setattr(module, "_MOST_ROWS", 150)
    known(tmp_path).refresh()
    shutil.rmtree(tmp_path / "metrics/rollup", ignore_errors=True)
    for path in (tmp_path / "kept/rollup").iterdir():
        if (".blocks." in path.name) == (object_ == "blocks"):
            path.write_bytes(b"")
    for path in (tmp_path / "kept").glob("*.npy"):
        path.unlink()
    found = known(tmp_path)
    found.refresh()
    found.refresh()
    assert found.metrics["loss"].points == 600


def test_what_was_read_before_a_damaged_segment_is_shown_and_the_rest_once_it_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path)
    monkeypatch.setattr(module, "_AT_ONCE", 1)
    damaged = tmp_path / "metrics/00000003.parquet"
    damaged.write_bytes(b"")
    found = known(tmp_path)
    for _ in range(2):
        with pytest.raises(CorruptError) as raised:
            found.refresh()
        assert "delete it" in str(raised.value)
    assert found.metrics["loss"].points == 300
    damaged.unlink()
    found.refresh()
    assert found.metrics["loss"].points == 500


def test_a_rollup_that_is_deleted_meanwhile_leaves_what_is_known_in_short(tmp_path: Path) -> None:
    write_rollup(str(tmp_path / "metrics/rollup"), 0, 199, table(run(tmp_path, segments=200)))
    found = known(tmp_path)
    found.refresh()
    shutil.rmtree(tmp_path / "metrics/rollup")
    near = found.curve("loss", start=1000, stop=1050)
    assert near.points
    assert not near.is_whole
    points, times = found.around("loss", 0, 1010)
    assert times == 1
    assert points["step"][0] < 1010 <= points["step"][1]
    span = found.span
    assert span is not None
    found.stretches(np.linspace(span[0], span[1] + 1, 61).astype(np.int64))


def test_rollups_that_overlap_hide_none_of_what_comes_after(tmp_path: Path) -> None:
    folder = str(tmp_path / "metrics/rollup")
    parts = [run(tmp_path, segments=stop, first=start) for start, stop in pairwise((0, 2, 4, 6))]
    write_rollup(folder, 0, 1, table(parts[0]))
    write_rollup(folder, 0, 3, table([*parts[0], *parts[1]]))  # two servers looked at it
    write_rollup(folder, 4, 5, table(parts[2]))
    store = open_store(f"file://{tmp_path}")
    assert [(one.first, one.last) for one in rollups(store, "metrics/")] == [(0, 3), (4, 5)]
    assert [(one.first, one.last) for one in rollups(store, "metrics/", after=3)] == [(4, 5)]
    found = known(tmp_path)
    found.refresh()
    assert found.metrics["loss"].points == 600


def test_a_step_that_is_reached_again_is_found_between_neighbours(tmp_path: Path) -> None:
    """Not between the point before it in one pass, and the one after it in another."""
    steps = [*range(10, 400, 20), *range(5, 300, 15)]
    points = [Point(START + at * 1_000_000, "loss", float(at), step) for at, step in enumerate(steps)]
    put(tmp_path, 0, points)
    for rolled in (False, True):
        if rolled:
            write_rollup(str(tmp_path / "metrics/rollup"), 0, 0, table(points))
        found = known(tmp_path)
        found.refresh()
        near, times = found.around("loss", 0, 12)
        assert (near["step"].tolist(), times) == ([5, 20], 2)
        assert found.around("loss", 0, 350)[0]["step"].tolist() == [330, 350]
        assert found.around("loss", 0, 5000)[1] == 0


def test_a_short_span_of_a_long_run_is_judged_by_its_own_points(tmp_path: Path) -> None:
    """Its ends lie amid blocks."""
    waits = [Point(START + at * 5_000_000, "headrace/loader.wait_s", float(at % 7), None) for at in range(2000)]
    put(tmp_path, 0, waits)
    write_rollup(str(tmp_path / "metrics/rollup"), 0, 0, table(waits))
    found = known(tmp_path)
    found.refresh()
    edges = np.array([START + 501 * 5_000_000, START + 508 * 5_000_000, START + 511 * 5_000_000])
    parts = found.stretches(edges)
    exact = [
        sum(one.value for one in waits if since <= one.time_us < until) for since, until in pairwise(edges.tolist())
    ]
    assert [one.sum("loader.wait_s") for one in parts.each()] == exact
