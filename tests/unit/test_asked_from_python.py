"""What commands put together, called from Python, with all of it in folders: a run asked for, a folder sent, a cache
that is damaged.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.errors import CorruptError, InputError, SettingError
from headrace.base.units import parse_moment
from headrace.cache import BadEntry, VerifyReport
from headrace.cluster import Checked
from headrace.jobs import Here, RunRequest
from headrace.namespace import Home
from headrace.sync import Report, statuses, sync_folder
from headrace.tracking import Runs
from headrace.tracking.record import RunRecord, Status

OLD, NEW = "20260101-000000-digits-0001", "20260201-000000-digits-0002"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a home, in which two runs of one name are recorded: the older failed, the newer did not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_HOME", f"file://{tmp_path}/home")
    monkeypatch.setenv("HEADRACE_SYNC_STATE", str(tmp_path / "syncs"))
    for name, state in ((OLD, "failed"), (NEW, "finished")):
        begun = f"{name[:4]}-{name[4:6]}-01T00:00:00.000Z"
        run = Runs(Home.of()).run(name)
        spec = {"format": 1, "name": "digits", "command": ["python", "train.py"]}
        run.create(RunRecord(name, "digits", begun, ("python", "train.py"), "/", "host", "ann", "0", spec=spec))
        run.put_status(Status(0, "starting", begun))
        run.put_status(Status(1, state, begun))
    return tmp_path


def test_a_run_is_asked_for_by_a_file_or_a_command_with_fields_that_are_otherwise(here: Path) -> None:
    (here / "jobs").mkdir()
    (here / "jobs/job.toml").write_text('name = "from-a-file"\ncommand = ["true"]\ngrace = "5s"\n')
    of_a_file = RunRequest.of("jobs/job.toml", {"grace": "1min", "command": ["python", "other.py"]}, run_id="one")
    assert (of_a_file.spec.title, of_a_file.spec.argv) == ("from-a-file", ("python", "other.py"))
    assert (of_a_file.spec.grace, of_a_file.run_id) == (60.0, "one")
    assert of_a_file.source == Here(str(here / "jobs")), "its code is beside it"
    of_a_command = RunRequest.of(["python", "train.py"])
    assert (of_a_command.spec.argv, of_a_command.source) == (("python", "train.py"), Here(str(here)))
    assert (of_a_command.parent, of_a_command.resumes) == (None, None)
    swept = RunRequest.of(["python", "{lr}"], sweeps=[("lr", "0.1,0.2")])
    assert [dict(task.parameters) for task in swept.spec.task] == [{"lr": ("0.1", "0.2")}]


def test_a_run_goes_on_from_one_that_is_named_or_is_not_over_well(here: Path) -> None:
    resumed = RunRequest.of(["true"], resume=OLD)
    assert resumed.resumes is not None
    assert (resumed.parent, resumed.resumes.id) == ({"run": OLD, "as": "resume"}, OLD)
    assert RunRequest.of(None, resume=hr.run("latest")).spec.argv == ("python", "train.py"), "its own job, again"
    assert RunRequest.of(["true"], {"name": "digits"}, go_on=True).resumes is None, "the newest has finished"
    hr.run(NEW).delete()
    gone_on = RunRequest.of(["true"], {"name": "digits"}, go_on=True)
    assert gone_on.parent == {"run": OLD, "as": "resume"}
    assert RunRequest.again(hr.run(OLD), {"grace": "1s"}).spec.grace == 1.0


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({}, "nothing to run"),
        ({"resume": OLD, "go_on": True}, "exclude each other"),
        ({"job": ["x", "{lr}"], "sweeps": [("lr", "1,2")], "resume": OLD}, "goes on from no checkpoint"),
        ({"job": ["x", "{lr}"], "sweeps": [("lr", "1,2")], "go_on": True}, "goes on from no checkpoint"),
    ],
)
def test_a_run_that_cannot_be_is_refused(here: Path, how: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        RunRequest.of(**{"job": None, **how})  # type: ignore[arg-type]


def test_runs_are_found_by_when_they_began_and_say_what_came_of_them(here: Path) -> None:
    assert [run.id for run in hr.runs()] == [NEW, OLD]
    assert [run.id for run in hr.runs(since="2026-01-15")] == [NEW]
    assert hr.runs(since="1s") == []
    with pytest.raises(InputError, match="since 2026-13-01: is no time"):
        hr.runs(since="2026-13-01")
    run = hr.run(OLD)
    assert run.tag(best="yes") == {"best": "yes"}
    assert run.set_note(" worse ") == "worse"
    assert (run.look().tags, run.look(notes=True).tags, run.look(notes=True).note) == ({}, {"best": "yes"}, "worse")
    assert [one.state for one in run.statuses()] == ["starting", "failed"]
    found = {one.name: (one.a, one.b) for one in hr.jobs.diff(OLD, hr.run(NEW), metrics=False) if not one.same}
    assert found["state"] == ("failed", "finished")


def test_a_moment_is_so_long_ago_or_a_time() -> None:
    now = datetime.now(UTC).timestamp()
    assert now - 7201 < parse_moment("2h") <= datetime.now(UTC).timestamp() - 7200
    assert parse_moment("2026-01-31T12:00+01:00") == datetime(2026, 1, 31, 11, tzinfo=UTC).timestamp()
    assert parse_moment(17.5) == 17.5
    with pytest.raises(InputError, match="--since 31-01-2026: is no time"):
        parse_moment("31-01-2026", name="--since")
    with pytest.raises(SettingError, match="--since: 'soon' is not a duration"):
        parse_moment("soon", name="--since")


def test_a_folder_is_sent_once_or_followed_until_that_is_ended(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out/a.txt").write_text("a")
    assert sync_folder("out", "there").files == 1
    assert (here / "there/a.txt").read_text() == "a"
    over = threading.Event()

    def begun() -> None:
        (here / "out/b.txt").write_text("bb")
        over.set()

    report = sync_folder("out", "there", until=over, begun=begun)
    report.check("out")
    assert (report.bytes, (here / "there/b.txt").read_text()) == (2, "bb"), "what is left is sent at the end"
    assert [one.state for one in statuses(folder="out")] == ["finished"]
    assert list(statuses(folder="there")) == []


def test_who_interrupts_a_sync_hears_what_is_left(here: Path) -> None:
    (here / "out").mkdir()
    (here / "out/a.txt").write_text("a")
    told: list[Report] = []

    class Interrupting(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sync_folder("out", "there", until=Interrupting(), left=told.append)
    assert len(told) == 1
    (one,) = hr.sync.recover_syncs()
    assert (one.folder, one.state, (here / "there/a.txt").read_text()) == (str(here / "out"), "finished", "a")


def test_a_damaged_cache_is_an_error_once_it_is_asked_for() -> None:
    VerifyReport(checked=3).check("/cache")
    bad = VerifyReport(bad=[BadEntry("x", None, "its bytes do not match their checksum")])
    for found, where in ((bad, "/cache"), (Checked({"node-1": VerifyReport(), "node-2": bad}), "ray://head:10001")):
        with pytest.raises(CorruptError, match="1 damaged entries were removed") as caught:
            found.check(where)
        assert caught.value.path == where
