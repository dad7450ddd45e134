"""``headrace runs``: which are listed, in which order, what two do not have alike, and what looking costs."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from headrace.base.metrics import Metrics
from headrace.namespace.home import Home
from headrace.store.wrappers import metered
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.arrow import pq
from headrace.tracking.reading import MetricsReader, series
from headrace.tracking.record import Lease, RunRecord, Status, now
from headrace.tracking.runs import Run, Runs
from headrace.tracking.segments import Point, table
from headrace.tracking.watching import Wanted, Watch
from tests.runs_rig import COMMAND, RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path)
    yield made
    made.close()


class Counted:
    """The home of a rig, and how often it was asked since the last time one looked."""

    def __init__(self, rig: RunsRig) -> None:
        self._metrics = Metrics()
        self.home = Home(metered(rig.store(), self._metrics), "home/")
        self._seen = (0, 0)

    def asked(self) -> tuple[int, int]:
        """GET and HEAD, LIST."""
        told = self._metrics.get
        total = int(told("store.get.calls") + told("store.head.calls")), int(told("store.list.calls"))
        before, self._seen = self._seen, total
        return total[0] - before[0], total[1] - before[1]


def made(home: Home, number: int, state: str, tags: dict[str, str] | None = None) -> Run:
    """A run, as its runner would have recorded it up to `state`."""
    run = Run(home, f"20260101-0000{number:02d}-job-{secrets.token_hex(2)}")
    run.create(RunRecord(run.id, "job", now(), ("true",), "/", "host", "me", "0", {"tags": tags or {}}))
    said(run, 0, "starting")
    said(run, 1, state)
    return run


def said(run: Run, seq: int, state: str) -> None:
    status = Status(seq, state, now(), 1, exit_code=3 if state == "failed" else None)
    run.put_status(status)
    run.put_lease(Lease(seq, state, now(), 1, "host", 1, last=asdict(status)))


def test_a_look_costs_one_get_a_live_run_and_nothing_for_those_that_are_over(rig: RunsRig):
    """Twenty of each, every 5 s: 720 LIST and 14,400 GET an hour; it was 38,000 and 108,000 for the live ones alone."""
    counted = Counted(rig)
    for number in range(20):
        made(counted.home, number, "finished")
    live = [made(counted.home, 20 + number, "running") for number in range(20)]
    watch = Watch(Runs(counted.home), 40)
    counted.asked()
    assert [view.state for view in watch.look()] == ["running"] * 20 + ["finished"] * 20
    assert counted.asked() == (2 * 40, 2), "the record and the lease; all ids, and which have notes"
    assert len(watch.look()) == 40
    gets, lists = counted.asked()
    assert gets == 20
    assert lists <= 2, "a last, empty page counts where a store gives one"
    said(live[3], 2, "failed")
    (failed,) = [view for view in watch.look() if view.state == "failed"]
    assert (failed.record.id, failed.status.exit_code) == (live[3].id, 3)
    counted.asked()
    watch.look()
    assert counted.asked()[0] == 19
    new = made(counted.home, 45, "running", {"team": "vision"})
    counted.asked()
    assert watch.look()[0].record.id == new.id
    gets, lists = counted.asked()
    assert gets == 19 + 2
    assert lists <= 4


def test_a_lease_without_the_last_transition_still_tells(rig: RunsRig):
    """As versions before this one wrote it; and one that is behind what a recovery has put."""
    counted = Counted(rig)
    run = made(counted.home, 1, "running")
    run.put_status(Status(2, "failed", now(), 1, 7))
    run.put_lease(Lease(2, "failed", now(), 1, "host", 1))
    view = run.look()
    assert (view.state, view.status.exit_code) == ("failed", 7)


def test_what_is_asked_for_is_searched_beyond_the_newest(rig: RunsRig):
    counted = Counted(rig)
    vision = [made(counted.home, number, "failed", {"team": "vision", "lr": str(number)}) for number in range(2)]
    for number in range(2, 30):
        made(counted.home, number, "finished", {"team": "text"})
    rows = rig.json("runs", "--tag", "team=vis*", "--limit", "5")
    assert [row["id"] for row in rows] == [vision[1].id, vision[0].id]
    assert rows[0]["tags"] == {"team": "vision", "lr": "1"}
    assert [row["id"] for row in rig.json("runs", "--state", "failed", "--tag", "lr=0")] == [vision[0].id]
    assert "team=vision lr=1" in rig.headrace("runs", "--tag", "lr").stdout
    assert len(rig.json("runs", "--limit", "7")) == 7
    assert rig.json("runs", "--name", "other") == []
    assert len(rig.json("runs", "--since", "1h", "--limit", "0")) == 30
    assert rig.json("runs", "--since", "2999-01-01") == []
    assert "is no time" in rig.headrace("runs", "--since", "2026-13-01", code=2).stderr
    assert "is not a duration" in rig.headrace("runs", "--since", "soon", code=2).stderr
    states = [row["state"] for row in rig.json("runs", "--limit", "0", "--sort", "state")]
    assert states == ["failed"] * 2 + ["finished"] * 28
    counted.asked()
    watch = Watch(Runs(counted.home), 5, Wanted(tags={"team": "vision"}))
    assert len(watch.look()) == 2
    watch.look()
    counted.asked()
    watch.look()
    assert counted.asked()[0] == 0, "what is not wanted was read once"


def test_the_latest_is_the_newest_also_where_ids_were_given(rig: RunsRig):
    rig.headrace("run", "-q", "--id", "zz", "--name", "one", "--", "true")
    rig.headrace("run", "-q", "--id", "aa", "--name", "two", "--", "true")
    assert rig.json("runs", "show", "latest")["id"] == "aa"
    assert [row["id"] for row in rig.json("runs")] == ["aa", "zz"]
    assert rig.json("runs", "show", "one")["id"] == "zz", "by the name in its record"
    rig.headrace("run", "-q", "--name", "three", "--", "true")
    assert [row["name"] for row in rig.json("runs")] == ["three", "two", "one"]


@pytest.mark.parametrize("digits", ["0001", "fff1"])
def test_of_runs_of_one_second_the_newest_is_the_one_that_came_last(rig: RunsRig, digits: str):
    """Whatever the last four digits of its id are."""
    home = Counted(rig).home
    states = ("failed", "finished", "stopped", "failed")
    for number, state in enumerate(states):
        run = Run(home, f"20260101-000000-job-{digits if number == 3 else f'8{number}00'}")
        created = f"2026-01-01T00:00:00.{number}00Z"
        run.create(RunRecord(run.id, "job", created, ("true",), "/", "host", "me", "0"))
        said(run, 0, state)
        runs = Runs(home)
        assert runs.find("latest").id == runs.find("job").id == run.id
        unfinished = runs.unfinished("job")
        assert (unfinished and unfinished.id) == (None if state == "finished" else run.id)


def test_a_watch_shows_what_comes_and_how_it_ends(rig: RunsRig):
    rig.headrace("run", "-q", "--name", "first", "--", "true")
    seen = rig.scratch / "seen"
    with open(seen, "w") as out:
        watching = subprocess.Popen([*COMMAND, "runs", "--watch"], env=rig.environment, stdout=out, text=True)
    rig.processes.append(watching)
    assert wait_for(lambda: "-first-" in seen.read_text())
    rig.headrace("run", "-q", "--name", "second", "--", "sh", "-c", "exit 9", code=9)
    assert wait_for(lambda: "-second-" in seen.read_text())
    assert wait_for(lambda: "failed" in seen.read_text())


def test_following_metrics_reads_each_segment_once(rig: RunsRig, tmp_path: Path):
    counted = Counted(rig)
    reader = MetricsReader(counted.home.store, "home/runs/r/metrics/")

    def put(number: int) -> None:
        points = table([Point(1_000_000 * number, "loss", float(number), number)])
        path = tmp_path / "segment"
        pq.write_table(points.replace_schema_metadata({b"headrace.format": b"1"}), path)
        counted.home.store.put(f"home/runs/r/metrics/{number:08d}.parquet", path.read_bytes())

    def steps() -> list[float]:
        return series(reader.poll())["loss"].steps.tolist()

    for number in range(30):
        put(number)
    assert steps() == list(range(30))
    assert counted.asked()[0] == 30
    for _ in range(2):
        reader.poll()
        assert counted.asked() == (1, 0), "the next number is not there"
    put(30)
    put(32)
    assert steps() == list(range(31))
    assert counted.asked() == (2, 0)
    for _ in range(12):
        reader.poll()
    assert steps() == [*range(31), 32], "a number that is left out hides the rest for a minute, not for ever"
    put(31)
    assert steps() == list(range(33))
    counted.asked()
    reader.poll()
    assert counted.asked() == (1, 0)


def test_what_two_runs_do_not_have_alike(rig: RunsRig):
    rig.script("""
        import headrace as hr, sys
        hr.log({"loss": float(sys.argv[1])}, step=1)
        print("first")
    """)
    rig.script("old\n", "gone.txt")
    (rig.work / "odd").symlink_to("/nowhere/1")
    tags = ["--set", "tags.team=vision"]
    rig.headrace("run", "-q", "--name", "a", *tags, "--", sys.executable, "train.py", "0.5")
    rig.headrace("run", "-q", "--name", "same", *tags, "--", sys.executable, "train.py", "0.5")
    (rig.work / "train.py").write_text((rig.work / "train.py").read_text().replace("first", "second"))
    (rig.work / "gone.txt").unlink()
    (rig.work / "new.bin").write_bytes(bytes(100))
    (rig.work / "odd").unlink()
    (rig.work / "odd").symlink_to("/nowhere/2")
    changed = ["--set", "retry.attempts=2", "--set", "tags.team=text", "--env", "LR=1"]
    rig.headrace("run", "-q", "--name", "b", *changed, "--", sys.executable, "train.py", "0.25")
    rows = {row["id"]: row for row in rig.json("runs", "diff", "a", "b", "--patch")}
    pairs = {name: (row["a"], row["b"]) for name, row in rows.items()}
    assert pairs["job:tags.team"] == ("vision", "text")
    assert pairs["job:retry.attempts"] == (1, 2)
    assert pairs["variable:LR"] == (None, "set")
    assert pairs["metric:loss"] == (0.5, 0.25)
    assert pairs["result:state"] == ("finished", "finished")
    files = {name: pair for name, pair in pairs.items() if name.startswith("file:")}
    assert files == {
        "file:train.py": ("before", "after"),
        "file:gone.txt": ("there", None),
        "file:new.bin": (None, "there"),
        "file:odd": ("before", "after"),
    }
    patch = rows["file:train.py"]["patch"]
    assert '-print("first")\n+print("second")\n' in patch
    assert patch.startswith("--- a/train.py\n+++ b/train.py\n")
    assert rows["file:new.bin"]["patch"] is None
    assert "+link to /nowhere/2\n" in rows["file:odd"]["patch"], "links are not followed"
    assert "gone.txt" in rig.headrace("runs", "diff", "a", "b").stdout
    alike = [row for row in rig.json("runs", "diff", "a", "same") if not row["same"]]
    assert {row["id"] for row in alike} <= {"job:name", "result:seconds"}
