"""Event files written, and brought from a home into a folder: byte for byte, whatever becomes of the object."""

from __future__ import annotations

import math
import time
from pathlib import Path

import pytest

from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.store.protocol import Blob, Store
from headrace.store.wrappers import ForwardingStore
from headrace.tracking import boards
from headrace.tracking.boards import Board
from headrace.tracking.event_writer import EventWriter
from headrace.tracking.events import EventFiles
from headrace.tracking.points import Point
from headrace.tracking.record import Lease, RunRecord, Status, now
from headrace.tracking.runs import Run
from headrace.tracking.segments import Merger, table

POINTS = [
    Point(1_800_000_000_000_000 + step, "train/loss", value, step)
    for step, value in enumerate([0.5, -2.0, 0.0, 1e30, -1.5e-20, 0.0])
]


class Counting(ForwardingStore):
    """Bytes of event files read."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.read = 0

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        blob = super().get(key, start, stop, if_match=if_match)
        self.read += len(blob.data) if "tfevents" in key else 0
        return blob


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    (tmp_path / "home").mkdir()
    return Counting(open_store(f"file://{tmp_path}/home"))


@pytest.fixture
def run(store: Counting, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(boards, "LOOK_S", 0.0)
    made = Run(Home(store), "20260101-000000-digits-0001")
    made.create(RunRecord(made.id, "digits", now(), ("true",), "/", "host", "user", "0"))
    made.put_lease(Lease(0, "running", now(), 1, "host"))
    return made


def put(run: Run, name: str, data: bytes) -> None:
    run.store.put(f"{run.prefix}outputs/{name}", data)


def board(run: Run, folder: Path) -> Board:
    return Board([run], str(folder), lambda text: pytest.fail(text))


def test_what_is_written_is_read(tmp_path: Path):
    odd = [Point(1, "é", math.nan, -7), Point(2, "inf", math.inf, 1 << 40), Point(3, "large", 1e300, None)]
    writer = EventWriter(str(tmp_path / "events.out.tfevents.1"))
    assert writer.add(POINTS) == len(POINTS)
    assert writer.add([]) == 0
    writer.add(odd)
    *found, nan, infinite, large = EventFiles(str(tmp_path)).new()
    assert [(one.name, one.step, one.time_us // 10) for one in found] == [
        (one.name, one.step, one.time_us // 10) for one in POINTS
    ]
    assert [one.value for one in found] == pytest.approx([one.value for one in POINTS], rel=1e-6)
    assert (nan.name, nan.step) == ("é", -7)
    assert math.isnan(nan.value)
    assert (infinite.value, infinite.step) == (math.inf, 1 << 40)
    assert (large.value, large.step) == (pytest.approx(3.4028e38, rel=1e-3), 0)


def test_only_what_has_grown_is_read(run: Run, store: Counting, tmp_path: Path):
    here = board(run, tmp_path / "m")
    name, data = "deep/events.out.tfevents.1.host", bytes(range(256)) * 400
    local = tmp_path / "m" / run.id / name
    put(run, name, data[:90_000])
    put(run, "model.bin", b"not this")
    here.look()
    assert local.read_bytes() == data[:90_000]
    store.read = 0
    here.look()
    assert store.read == 0
    put(run, name, data)
    here.look()
    assert local.read_bytes() == data
    assert store.read <= len(data) - 90_000 + 64
    assert not (tmp_path / "m" / run.id / "model.bin").exists()


@pytest.mark.parametrize("size", [50_000, 90_000, 140_000])
def test_an_object_that_became_another_is_read_anew(run: Run, tmp_path: Path, size: int):
    here = board(run, tmp_path / "m")
    put(run, "events.out.tfevents.1", b"a" * 90_000)
    here.look()
    time.sleep(0.01)  # a file's version is its time and size
    put(run, "events.out.tfevents.1", b"b" * size)
    here.look()
    assert (tmp_path / "m" / run.id / "events.out.tfevents.1").read_bytes() == b"b" * size


def test_no_name_leads_out_of_the_folder():
    names = ["../events.out.tfevents", "a/../../tfevents", "/etc/tfevents", "a//tfevents", "./tfevents"]
    assert [name for name in names if boards._inside(name)] == []
    assert boards._inside("a/b/events.out.tfevents.1")


def test_what_was_logged_is_shown_where_the_job_wrote_no_event_files(run: Run, store: Counting, tmp_path: Path):
    merger = Merger(str(tmp_path / "spool"), str(tmp_path / "home/runs" / run.id / "metrics"))
    began = time.time_ns() // 1000
    merger.collect(table([
        Point(began, "loss", 0.5, 3), Point(began, "loss", 0.25, 3, 1), Point(began + 9_000_000, "job/cpu", 50.0),
        Point(began, "headrace/loader.wait_s", 0.5),
    ]))  # fmt: skip
    here = board(run, tmp_path / "m")
    here.look()
    found = EventFiles(str(tmp_path / "m")).new()
    told = [(one.name.removeprefix(f"{run.id}/"), one.step, one.value) for one in found]
    assert told == [("loss", 3, 0.5), ("rank_1/loss", 3, 0.25), ("job/cpu", 9, 50.0)]
    put(run, "events.out.tfevents.1", b"")
    here.look()
    merger.collect(table([Point(began, "loss", 0.1, 4), Point(began, "job/cpu", 60.0, 1)]))
    here.look()
    ours = EventFiles(str(tmp_path / "m"))
    assert [one.value for one in ours.new()] == [0.5, 0.25, 50.0, 60.0], "event files hold its scalars themselves"


def test_a_run_that_is_over_is_read_once_more_and_then_no_more(run: Run, store: Counting, tmp_path: Path):
    here = board(run, tmp_path / "m")
    here.look()
    assert not here.runs[0].over
    put(run, "events.out.tfevents.1", b"last words")
    run.put_status(Status(1, "finished", now()))
    run.put_lease(Lease(1, "finished", now(), 1, "host"))
    here.look()
    assert here.runs[0].over
    assert here.runs[0].files == 1
