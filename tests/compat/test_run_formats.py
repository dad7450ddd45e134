"""Runs recorded by earlier versions are still read. The fixtures are never regenerated; a new format adds a folder."""

import os
import shutil
from pathlib import Path

import pytest

from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.pins import open_pin
from headrace.jobs.bring import bring_checkpoint
from headrace.jobs.code import Code
from headrace.jobs.restoring import restore
from headrace.jobs.spec import JobSpec
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.tracking.logs import LogReader
from headrace.tracking.newest import Newest, newest_checkpoint
from headrace.tracking.reading import read_metrics, series
from headrace.tracking.runs import Run, Runs

FIXTURES = Path(__file__).parent


@pytest.fixture(params=["run-1"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    """A copy, for the age of a lease is that of its file."""
    shutil.copytree(FIXTURES / request.param, tmp_path / "home")
    return Home(open_store(f"file://{tmp_path}"), "home/")


@pytest.fixture
def run(home: Home) -> Run:
    return Runs(home).find("old")


def test_how_they_stand(home: Home, tmp_path: Path) -> None:
    os.utime(tmp_path / "home/runs/20261122-080000-gone-0002/lease.json", (1e9, 1e9))
    gone, old = Runs(home).views()
    assert old.record.id == "20261122-070000-old-0001"
    assert (old.state, old.over, old.status.exit_code) == ("finished", True, 0)
    assert (old.status.files, old.status.bytes, round(old.seconds, 3)) == (9, 4942, 0.412)
    assert (gone.record.name, gone.state, gone.ended.reason) == ("gone", "lost", "its runner is gone")
    assert gone.lease is not None
    assert (gone.lease.files, gone.lease.bytes, gone.lease.oldest) == (3, 1000, 4.5)
    os.utime(tmp_path / "home/runs/20261122-080000-gone-0002/lease.json")
    run = Runs(home).find("gone")
    assert run.look().state == "running"
    order = run.stop_order()
    assert order is not None
    assert (order.by, order.grace) == ("ann@node-9", 5.0)


def test_what_is_recorded(run: Run) -> None:
    record = run.record()
    assert record.command == ("python", "train.py")
    assert (record.host, record.user, record.headrace) == ("node-7", "ann", "0.1.0")
    assert record.environment["packages"] == ["headrace==0.1.0", "numpy==2.4.6", "torch==2.13.0+cpu"]
    assert record.code is not None
    assert (record.code["kind"], record.code["files"]) == ("folder", 3)
    assert [one.state for one in run.statuses()] == ["starting", "running", "finishing", "finished"]


def test_the_job(run: Run) -> None:
    spec = JobSpec.from_json(run.record().spec)
    assert (spec.name, spec.argv, spec.grace, spec.time_limit) == ("old", ("python", "train.py"), 7.0, 7200.0)
    assert (spec.retry.attempts, spec.retry.exit_codes, dict(spec.tags)) == (3, (75,), {"team": "vision"})
    assert spec.inputs["train"].source == "file:///srv/example/data"


def test_logs(run: Run) -> None:
    reader = LogReader(run.store, f"{run.prefix}logs/")
    lines = [(line.stream, line.text, line.over) for line in reader.read() if line.stream != "headrace"]
    assert sorted(lines) == [
        ("stderr", "a line of standard error", True),
        ("stdout", "ab\udcffcd", True),
        ("stdout", "done", True),
        ("stdout", "hello", True),
    ]
    last = LogReader(run.store, f"{run.prefix}logs/", ("stdout",)).tail(2)
    assert [line.text for line in last] == ["ab\udcffcd", "done"]


def test_metrics(run: Run) -> None:
    found = series(read_metrics(run.store, f"{run.prefix}metrics/", names=["loss", "lr"]).table)
    assert list(found["loss"].values) == [1 / (step + 1) for step in range(5)]
    assert list(found["loss"].steps) == list(range(5))
    assert found["lr"].last() == 0.5


def test_the_checkpoint(run: Run, tmp_path: Path) -> None:
    assert newest_checkpoint(run) == Newest("4")
    folder = bring_checkpoint(run, "4", str(tmp_path / "resume"))
    assert (Path(folder) / "state.pt").read_bytes() == b"state"


def test_the_code(run: Run, tmp_path: Path) -> None:
    code = Code.from_json(run.record().code or {})
    (tmp_path / "code").mkdir()
    (tmp_path / "code/tree.tar.zst").write_bytes(run.store.get(f"{run.prefix}code/tree.tar.zst").data)
    restore(code, str(tmp_path / "code"), str(tmp_path / "tree"))
    assert sorted(one.name for one in (tmp_path / "tree").iterdir()) == ["headrace.toml", "job.toml", "train.py"]


def test_the_inputs(home: Home, tmp_path: Path) -> None:
    settings = Settings(home=f"file://{tmp_path}/home", cache=CacheSettings(dir=str(tmp_path / "cache")))
    pin, objects = open_pin(
        "run:20261122-070000-old-0001/train", namespace=Namespace.load(settings), settings=settings
    )  # fmt: skip
    assert (pin.source, pin.objects, pin.bytes, pin.snapshot) == ("file:///srv/example/data", 2, 8, None)
    rows = [(row["key"], row["size"]) for batch in objects.batches() for row in batch.to_pylist()]
    assert rows == [("1.txt", 4), ("2.txt", 4)]
