"""Which checkpoint is the newest: the one whose marker was committed last, whatever it is called."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import CorruptError
from headrace.jobs.bring import bring_checkpoint
from headrace.jobs.resuming import resume
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.tracking.newest import newest_checkpoint
from headrace.tracking.runs import Run
from headrace.upload import MARKER, commit, retract

BEGUN_S = 1_800_000_000


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(Home(open_store(f"file://{tmp_path}/store"), "home/"), "a")


def save(run: Run, name: str, content: bytes = b"1", **note: str) -> None:
    folder = f"{run.prefix}checkpoints/{name}"
    retract(run.store, folder)
    commit(run.store, folder, [run.store.put(f"{folder}/state", content)], note=note)


def marker(tmp_path: Path, name: str) -> Path:
    return tmp_path / "store/home/runs/a/checkpoints" / name / MARKER


def told(tmp_path: Path, name: str, written: str, stored: float, **note: str) -> None:
    """A marker as others have written it, or an earlier version: `stored` is when, by the store's clock."""
    path = marker(tmp_path, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    said: dict[str, Any] = {"format": 1, "written": written, "objects": [], "note": note}
    path.write_text(json.dumps(said))
    os.utime(path, (stored, stored))


def at(seconds: int) -> str:
    return f"2027-01-15T08:{seconds // 60:02}:{seconds % 60:02}Z"  # BEGUN_S and so much


def name_of(run: Run) -> str | None:
    found = newest_checkpoint(run)
    return found and found.name


@pytest.mark.parametrize(
    "names",
    [
        ("epoch=02-val_loss=0.90", "epoch=10-val_loss=0.25"),
        ("iter-900-of-1000", "iter-1000-of-1000"),
        ("epoch=3", "epoch=3-v1"),
        ("epoch=3-v9", "epoch=4"),
        ("2026-11-26T23-59-58", "2026-11-27T00-00-01"),
        ("500.5", "2000.0"),
        ("1e3", "5"),
        ("step-100", "best"),
        ("999", "²"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_one_committed_last(run: Run, names: tuple[str, ...], turned: bool):
    for name in reversed(names) if turned else names:
        save(run, name)
    assert name_of(run) == names[0 if turned else -1]


def test_one_that_is_written_again_is_the_newest(run: Run):
    for name in ("1", "2", "1"):
        save(run, name)
    assert name_of(run) == "1"
    retract(run.store, f"{run.prefix}checkpoints/1")
    assert name_of(run) == "2"


def test_there_is_none(run: Run):
    assert newest_checkpoint(run) is None
    run.store.put(f"{run.prefix}checkpoints/5/state", b"half")
    assert newest_checkpoint(run) is None


def test_by_a_copy_of_the_bucket(run: Run, tmp_path: Path):
    """Another tool gives markers its own times, in an order of its own."""
    for name in ("3", "1", "2"):
        save(run, name)
    for number, name in enumerate(("2", "3", "1")):
        copy = shutil.copyfile(marker(tmp_path, name), tmp_path / "copy")
        os.utime(copy, (BEGUN_S + number, BEGUN_S + number))
        os.replace(copy, marker(tmp_path, name))
    assert name_of(run) == "2"


def test_a_copy_of_one_of_them_is_as_old_as_it(run: Run, tmp_path: Path):
    for name in ("7", "8"):
        save(run, name)
    folder = marker(tmp_path, "7").parent
    shutil.copytree(folder, folder.parent / "7-kept-9")
    assert name_of(run) == "8"


@pytest.mark.parametrize(
    ("told_of", "newest", "alike"),
    [
        # markers of earlier versions, by the second: the store's times are finer
        ({"2": (at(0), 0.2), "1": (at(0), 0.7)}, "1", ()),
        # of a store that has whole seconds as well: nothing else is known
        ({"9": (at(0), 0), "10": (at(0), 0)}, "10", ("9",)),
        ({"iter-900-of-1000": (at(0), 0), "iter-1000-of-1000": (at(0), 0)}, "iter-1000-of-1000", ("iter-900-of-1000",)),
        ({"epoch=02-val_loss=0.90": (at(0), 0), "epoch=10-val_loss=0.25": (at(0), 0)}, "epoch=10-val_loss=0.25", None),
        ({"epoch=3": (at(0), 0), "epoch=3-v1": (at(0), 0)}, "epoch=3-v1", ("epoch=3",)),
        ({"a": (at(0), 0), "b": (at(0), 0), "c": (at(1), 1), "best": (at(1), 1)}, "c", ("best",)),
        # of later versions, by the microsecond
        ({"2": ("2027-01-15T08:00:00.000001Z", 0), "1": ("2027-01-15T08:00:00.000002Z", 0)}, "1", ()),
        # the writer's clock was years ahead, and was set right
        ({"1": ("2038-01-19T03:14:07Z", 0), "2": (at(60), 60)}, "2", ()),
        # no time that can be read: the store's
        ({"1": ("yesterday", 5), "2": (at(0), 0)}, "1", ()),
    ],
)
def test_what_decides(
    run: Run, tmp_path: Path, told_of: dict[str, tuple[str, float]], newest: str, alike: tuple[str, ...] | None
):
    for name, (written, stored) in told_of.items():
        told(tmp_path, name, written, BEGUN_S + stored)
    found = newest_checkpoint(run)
    assert found is not None
    assert found.name == newest
    assert found.alike == alike or alike is None


def test_the_order_in_which_they_were_finished_comes_before_all_times(run: Run, tmp_path: Path):
    """As sync says it: it may send a small one before a large one, and the clock may have been set back."""
    told(tmp_path, "1", at(59), BEGUN_S + 59, finished="2027-01-15T08:00:10.000000Z")
    told(tmp_path, "2", at(20), BEGUN_S + 20, finished="2027-01-15T08:00:10.000001Z")
    assert name_of(run) == "2"
    told(tmp_path, "3", at(40), BEGUN_S + 40, finished="by hand")
    assert name_of(run) == "3"


def test_that_names_decided_is_said(run: Run, tmp_path: Path):
    for name in ("epoch=02", "epoch=10", "epoch=9"):
        told(tmp_path, name, at(1), BEGUN_S + 1)
    told(tmp_path, "epoch=11", at(0), BEGUN_S)
    said: list[str] = []
    assert resume([run], str(tmp_path / "resume"), said.append) is not None
    how = "by its name: committed at the same time as epoch=9, epoch=02"
    assert said == [f"goes on from checkpoint epoch=10 of a ({how})"]


def test_a_marker_of_others_is_not_passed_over(run: Run, tmp_path: Path):
    """Something was committed last, and nobody knows what belongs to it: an older one is not taken without a word."""
    save(run, "1")
    marker(tmp_path, "2").parent.mkdir()
    marker(tmp_path, "2").touch()
    later = marker(tmp_path, "1").stat().st_mtime + 10
    os.utime(marker(tmp_path, "2"), (later, later))
    assert name_of(run) == "2"
    with pytest.raises(CorruptError):
        bring_checkpoint(run, "2", str(tmp_path / "resume"))
