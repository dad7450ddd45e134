"""Notes of runs, as the first version that had them wrote them. The fixture is never regenerated."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.tracking.runs import Runs
from headrace.tracking.watching import Wanted, Watch

FIXTURE = Path(__file__).parent / "notes-1"


def test_tags_and_a_note(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE, tmp_path / "home")
    runs = Runs(Home(open_store(f"file://{tmp_path}"), "home/"))
    (view,) = Watch(runs, None, Wanted(tags={"lr": "0.*"})).look()
    assert view.tags == {"team": "vision", "best": "", "lr": "0.1"}
    assert view.note == "Züge\nsecond line"
    assert (view.kept.notes.by, view.kept.notes.time) == ("ann@node-9", "2026-11-28T09:00:00.000Z")


def test_a_home_without_any_reads_on(tmp_path: Path) -> None:
    shutil.copytree(FIXTURE.parent / "run-1", tmp_path / "home")
    runs = Runs(Home(open_store(f"file://{tmp_path}"), "home/"))
    assert [(view.tags, view.note) for view in Watch(runs, None).look()] == [({"team": "vision"}, "")] * 2
