"""Runs whose job, runner or store dies: nothing that was told to be sent is missing, and the state shown is true."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from headrace.tracking.logs import LogReader, LogWriter
from headrace.tracking.record import Lease, RunRecord, Status, now
from headrace.tracking.runs import Run, Runs
from tests.mount_rig import detach
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path)
    yield made
    made.close()


WRITES = """
    import headrace, os, sys, time
    out = os.environ["HEADRACE_OUTPUTS"]
    open(sys.argv[1], "w").write(str(os.getpid()))
    os.makedirs(f"{out}/checkpoints/1")
    open(f"{out}/checkpoints/1/model.pt", "w").write("whole")
    open(f"{out}/checkpoints/1/COMMITTED", "w").close()
    for number in range(10_000):
        print("line", number, flush=True)
        headrace.log({"number": number}, step=number)
        open(f"half-{sys.argv[1]}", "w").write(str(number))
        os.replace(f"half-{sys.argv[1]}", f"{out}/{number:05d}.txt")
        time.sleep(0.02)
"""
"""Its files are renamed into place: one that is half would be the job's own doing, who may be killed at any time."""


def started(rig: RunsRig, name: str) -> tuple[str, int, int]:
    """A run in the background that writes and writes; its id, its runner's and its job's process."""
    rig.script(WRITES)
    told = rig.work / name
    run = rig.headrace("run", "-d", "--id", name, "--", sys.executable, "train.py", name).stdout.strip()
    runner = json.loads((rig.state / run / "runner.json").read_text())["pid"]
    assert wait_for(lambda: told.is_file() and told.read_text())
    return run, runner, int(told.read_text())


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def is_writing(logs: Path) -> bool:
    """Whether there is something in a segment that is not closed yet."""
    with suppress(FileNotFoundError):  # it has just been closed
        return any(one.stat().st_size > 200 for one in logs.glob("*.zst.tmp"))
    return False


def test_a_signal_is_heard_whichever_thread_it_meets(rig: RunsRig) -> None:
    """As one that comes just before the main thread waits: nothing interrupts that wait."""
    run = rig.headrace("run", "-d", "--", "sleep", "100").stdout.strip()
    assert wait_for(lambda: rig.json("runs")[0]["state"] == "running")
    runner = json.loads((rig.state / run / "runner.json").read_text())["pid"]
    other = next(int(name) for name in os.listdir(f"/proc/{runner}/task") if int(name) != runner)
    assert ctypes.CDLL(None).tgkill(runner, other, signal.SIGTERM) == 0
    assert wait_for(lambda: gone(runner), 60)
    assert rig.json("runs")[0]["reason"] == "SIGTERM"



def check_what_is_there(rig: RunsRig, run: str) -> int:
    """No object is torn; how many files of the job's are there."""
    names = [name for name in rig.names(run) if name.startswith("outputs/")]
    for name in names:
        assert rig.read(run, name) == str(int(Path(name).stem)).encode()
    assert rig.read(run, "checkpoints/1/model.pt") == b"whole"
    return len(names)


def test_a_killed_job_is_told_from_one_that_failed(rig: RunsRig):
    run, _, job = started(rig, "one")
    assert wait_for(lambda: len(rig.names(run)) > 200, 60, 0.2)
    os.kill(job, signal.SIGKILL)
    assert wait_for(lambda: rig.json("runs")[0]["state"] == "failed", 60)
    (row,) = rig.json("runs")
    assert (row["signal"], row["reason"], row["files_left"]) == (signal.SIGKILL, "SIGKILL", 0)
    files = check_what_is_there(rig, run)
    lines = rig.headrace("logs", run).stdout.splitlines()
    assert lines == [f"line {number}" for number in range(len(lines))]
    assert files <= len(lines) <= files + 1
    points = rig.json("metrics", run)[0]["values"]
    assert points == list(range(len(points)))
    assert len(points) > files - 150, "a killed job loses what it logged in its last second or so"


def test_a_killed_runner_takes_its_job_along_and_the_rest_is_sent_later(rig: RunsRig):
    """The runner alone is killed, and another with its job at once."""
    alone, both = started(rig, "alone"), started(rig, "both")
    opened, there, written = {}, {}, {}
    for run, runner, job in (alone, both):
        assert wait_for(lambda run=run: rig.read(run, "checkpoints/1/COMMITTED") and len(rig.names(run)) > 200, 60, 0.2)
        logs = rig.state / run / "record/logs/stdout"
        assert wait_for(lambda logs=logs: is_writing(logs))
        os.kill(runner, signal.SIGKILL)
        if run == "both":
            os.kill(job, signal.SIGKILL)
        assert wait_for(lambda runner=runner, job=job: gone(runner) and gone(job))
        there[run] = {name: rig.read(run, name) for name in rig.names(run)}
        assert check_what_is_there(rig, run) > 0
        written[run] = len(list((rig.state / run / "record/outputs").glob("*.txt")))
        opened[run] = [one.name.removesuffix(".tmp") for one in logs.glob("*.zst.tmp")]
    rows = json.loads(rig.headrace("sync", "--recover", "--json").stdout)
    assert [row["state"] for row in rows] == ["lost", "lost"]
    assert [row["state"] for row in rig.json("runs")] == ["lost", "lost"]
    assert list(rig.state.iterdir()) == []
    for run in ("alone", "both"):
        assert check_what_is_there(rig, run) == written[run]
        before = there[run].items()
        changed = {name for name, body in before if rig.read(run, name) != body and "COMMITTED" not in name}
        assert changed == {"lease.json"}, "which tells that it is lost"
        assert rig.states(run)[-1] == "lost"
        points = rig.json("metrics", run)[0]["values"]
        assert points == list(range(len(points)))
        assert len(points) > written[run] - 150
        assert all(rig.read(run, f"logs/stdout/{name}") for name in opened[run]), "what it was still writing"
        lines = rig.headrace("logs", run).stdout.splitlines()
        assert lines == [f"line {number}" for number in range(len(lines))]
        assert len(lines) > written[run] - 150
    assert json.loads(rig.headrace("sync", "--recover", "--json").stdout) == []


def test_what_is_left_of_a_run_that_was_deleted_keeps_no_other_from_being_recovered(rig: RunsRig):
    for run in ("deleted", "lost"):
        runner = rig.start("run", "--id", run, "--", "sh", "-c", "echo x > $HEADRACE_OUTPUTS/x; exec sleep 100")
        assert wait_for(lambda run=run: rig.read(run, "outputs/x"), 60)
        runner.kill()
        runner.communicate(timeout=30)
    rig.headrace("runs", "rm", "--force", "deleted")
    rows = json.loads(rig.headrace("sync", "--recover", "--json").stdout)
    assert [row["state"] for row in rows] == ["record gone, left as it is", "lost"]
    assert [path.name for path in rig.state.iterdir()] == ["deleted"]
    assert (rig.state / "deleted/record/outputs/x").exists()


def test_a_runner_that_dies_before_its_run_is_recorded_leaves_nothing(rig: RunsRig):
    with open(rig.work / "large", "wb") as file:  # to be captured, which takes a while
        file.truncate(900_000_000)
    process = rig.start("run", "--id", "early", "--set", "code.limit=1GB", "--", "true")
    assert wait_for(lambda: (rig.state / "early/record/code").is_dir())
    process.kill()
    process.communicate(timeout=30)
    assert not rig.read("early", "run.json"), "it was recorded already: this proves nothing"
    (row,) = json.loads(rig.headrace("sync", "--recover", "--json").stdout)
    assert row["state"] == "never started"
    assert list(rig.state.iterdir()) == []


def test_a_runner_that_is_gone_is_told_from_one_that_is_slow(tmp_path: Path):
    """By the age of its lease, which a file's own time tells here."""
    home = Home(open_store(f"file://{tmp_path}"), "home/")
    run = Run(home, "20260101-000000-a-0000")
    run.create(RunRecord(run.id, "a", now(), ("true",), "/", "host", "me", "0"))
    run.put_status(Status(0, "running", now(), 1))
    run.put_lease(Lease(0, "running", now(), 1, "host", 1))
    lease = tmp_path / "home/runs" / run.id / "lease.json"
    (view,) = Runs(home).views()
    assert (view.state, view.over) == ("running", False)
    os.utime(lease, (time.time() - 50, time.time() - 50))
    assert run.look().state == "running"
    os.utime(lease, (time.time() - 70, time.time() - 70))
    assert (run.look().state, run.look().over) == ("lost", True)
    run.put_lease(Lease(0, "running", now(), 1, "host", 1))
    assert run.look().state == "running", "it was only slow"


def test_who_reads_with_a_wrong_clock_is_not_fooled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The lease's age is told by the store's clock where that here says too much."""
    home = Home(open_store(f"file://{tmp_path}"), "home/")
    run = Run(home, "20260101-000000-a-0000")
    run.create(RunRecord(run.id, "a", now(), ("true",), "/", "host", "me", "0"))
    run.put_status(Status(0, "running", now(), 1))
    run.put_lease(Lease(0, "running", now(), 1, "host", 1))
    honest = time.time
    runs = Runs(home)
    for shift in (100_000, -100_000, 0, 300, 200_000):
        monkeypatch.setattr(time, "time", lambda shift=shift: honest() + shift)
        assert run.look().state == "running"
        assert [view.state for view in runs.views()] == ["running"], "who goes on looking, while the clock is set"


def test_lines_keep_their_order_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """However they are read: each stream in its own order."""
    writer = LogWriter(str(tmp_path / "logs"), "stdout")
    honest = time.time_ns
    for number, shift in enumerate((0, -3600, 3600, -3600)):
        monkeypatch.setattr(time, "time_ns", lambda shift=shift: honest() + shift * 10**9)
        writer.feed(f"{number}\n".encode())
        if number == 1:
            writer.close_segment()
    writer.close_segment(last=True)
    store = open_store(f"file://{tmp_path}")
    for read in (LogReader.poll, LogReader.read):
        assert [line.text for line in read(LogReader(store, "logs/"))] == ["0", "1", "2", "3"]
    assert [line.text for line in LogReader(store, "logs/").tail(2)] == ["2", "3"]


def test_the_second_runner_of_one_id_is_refused_and_the_first_untouched(rig: RunsRig):
    rig.script("echo first; until [ -e go ]; do sleep 0.05; done; echo first > $HEADRACE_OUTPUTS/x", "first.sh")
    process = rig.start("run", "--id", "mine", "--", "sh", "first.sh")
    assert wait_for(lambda: rig.read("mine", "status/00001-running.json"))
    assert "at work" in rig.headrace("run", "--id", "mine", "--", "true", code=6).stderr
    rig.variables = {"HEADRACE_RUN_STATE": str(rig.scratch / "another-machine")}
    assert "there is a run of this id" in rig.headrace("run", "--id", "mine", "--", "true", code=5).stderr
    assert list((rig.scratch / "another-machine").iterdir()) == []
    (rig.work / "go").touch()
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "first\n"), said
    assert rig.read("mine", "outputs/x") == b"first\n"
    assert rig.states("mine") == ["starting", "running", "finishing", "finished"]


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    folder = tmp_path_factory.mktemp("headrace-small-disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "headrace-test", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        detach(str(folder))


def test_a_full_disk_does_not_stop_the_job(rig: RunsRig, small_disk: Path):
    """What cannot be kept is lost and told; the command, its output here and its exit code are as ever."""
    rig.variables = {"HEADRACE_RUN_STATE": str(small_disk / "runs")}
    late = "echo before; while [ ! -e go ]; do sleep 0.1; done; seq 1 20000; echo after; exit 9"
    process = rig.start("run", "--id", "full", "--", "sh", "-c", late)
    assert wait_for(lambda: rig.read("full", "status/00001-running.json"))
    assert process.stdout is not None
    assert process.stdout.readline() == "before\n"
    with open(small_disk / "filler", "wb", buffering=0) as file:
        file.write(bytes(shutil.disk_usage(small_disk).free - 4096))
        file.write(bytes(shutil.disk_usage(small_disk).free))
    (rig.work / "go").touch()
    out, said = process.communicate(timeout=120)
    assert process.returncode == 9, said
    assert out == "".join(f"{n}\n" for n in range(1, 20001)) + "after\n"
    assert "cannot be recorded" in said
    (row,) = rig.json("runs")
    assert (row["state"], row["exit_code"]) == ("failed", 9)


def test_stopped_while_a_checkpoint_is_on_its_way(rig: RunsRig):
    """What is half sent at the end never counts; a drain that ends early names what is left, and that is sent later."""
    rig.script("""
        cd $HEADRACE_OUTPUTS/checkpoints
        mkdir 7
        head -c 40000000 /dev/urandom > 7/m.pt
        touch $OLDPWD/written
        sleep 60
    """, "train.sh")  # fmt: skip
    options = ("--set", "outputs.bandwidth=3MB", "--set", "outputs.drain=1s", "--set", "grace=1s")
    process, run = rig.start("run", "--id", "cut", *options, "--", "sh", "train.sh"), "cut"
    assert wait_for(lambda: (rig.work / "written").exists())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert rig.read(run, "checkpoints/7/COMMITTED") is None
    shown = rig.json("runs", "show", run)
    assert (shown["state"], shown["files_left"]) == ("stopped", 1)
    assert shown["statuses"][-1]["left"] == ["checkpoints/7/m.pt"]
    rig.headrace("sync", "--recover")
    assert [(row["state"], row["files_left"]) for row in rig.json("runs")] == [("stopped", 0)]
    assert len(rig.read(run, "checkpoints/7/m.pt") or b"") == 40_000_000
    assert rig.read(run, "checkpoints/7/COMMITTED") is None, "nobody knows whether its writer was done"
