"""Runs whose job, runner or store dies: nothing that was told to be sent is missing, and the state shown is true."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.namespace.home import Home
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import free_port
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
    open("pid", "w").write(str(os.getpid()))
    os.makedirs(f"{out}/checkpoints/1")
    open(f"{out}/checkpoints/1/model.pt", "w").write("whole")
    open(f"{out}/checkpoints/1/COMMITTED", "w").close()
    for number in range(10_000):
        print("line", number, flush=True)
        headrace.log({"number": number}, step=number)
        open(f"{out}/{number:05d}.txt", "w").write(str(number))
        time.sleep(0.02)
"""


def started(rig: RunsRig) -> tuple[str, int, int]:
    """A run in the background that writes and writes; its id, its runner's and its job's process."""
    import sys

    rig.script(WRITES)
    run = rig.headrace("run", "-d", "--", sys.executable, "train.py").stdout.strip()
    runner = json.loads((rig.state / run / "runner.json").read_text())["pid"]
    assert wait_for(lambda: (rig.work / "pid").is_file() and (rig.work / "pid").read_text())
    return run, runner, int((rig.work / "pid").read_text())


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def check_what_is_there(rig: RunsRig, run: str) -> int:
    """No object is torn; how many files of the job's are there."""
    names = [name for name in rig.names(run) if name.startswith("outputs/")]
    for name in names:
        assert rig.read(run, name) == str(int(Path(name).stem)).encode()
    assert rig.read(run, "checkpoints/1/model.pt") == b"whole"
    return len(names)


def test_a_killed_job_is_told_from_one_that_failed(rig: RunsRig):
    run, _, job = started(rig)
    assert wait_for(lambda: len(rig.names(run)) > 200, 60)
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


@pytest.mark.parametrize("both", [False, True], ids=["runner", "both"])
def test_a_killed_runner_takes_its_job_along_and_the_rest_is_sent_later(rig: RunsRig, both: bool):
    run, runner, job = started(rig)
    assert wait_for(lambda: rig.read(run, "checkpoints/1/COMMITTED") and len(rig.names(run)) > 200, 60)
    logs = rig.state / run / "record/logs/stdout"
    assert wait_for(lambda: any(one.stat().st_size > 200 for one in logs.glob("*.zst.tmp")))
    os.kill(runner, signal.SIGKILL)
    if both:
        os.kill(job, signal.SIGKILL)
    assert wait_for(lambda: gone(runner) and gone(job))
    there = {name: rig.read(run, name) for name in rig.names(run)}
    assert check_what_is_there(rig, run) > 0
    written = len(list((rig.state / run / "record/outputs").glob("*.txt")))
    opened = [one.name.removesuffix(".tmp") for one in logs.glob("*.zst.tmp")]
    (row,) = json.loads(rig.headrace("sync", "--recover", "--json").stdout)
    assert row["state"] == "lost"
    assert check_what_is_there(rig, run) == written
    changed = {name for name, body in there.items() if rig.read(run, name) != body and "COMMITTED" not in name}
    assert changed == {"lease.json"}, "which tells that it is lost"
    (row,) = rig.json("runs")
    assert row["state"] == "lost"
    assert rig.states(run)[-1] == "lost"
    assert list(rig.state.iterdir()) == []
    points = rig.json("metrics", run)[0]["values"]
    assert points == list(range(len(points)))
    assert len(points) > written - 150
    assert all(rig.read(run, f"logs/stdout/{name}") for name in opened), "what it was still writing"
    lines = rig.headrace("logs", run).stdout.splitlines()
    assert lines == [f"line {number}" for number in range(len(lines))]
    assert len(lines) > written - 150
    assert json.loads(rig.headrace("sync", "--recover", "--json").stdout) == []


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
    rig.script("echo first; sleep 4; echo first > $HEADRACE_OUTPUTS/x", "first.sh")
    process = rig.start("run", "--id", "mine", "--", "sh", "first.sh")
    assert wait_for(lambda: rig.read("mine", "status/00001-running.json"))
    assert "at work" in rig.headrace("run", "--id", "mine", "--", "true", code=6).stderr
    rig.variables = {"HEADRACE_RUN_STATE": str(rig.scratch / "another-machine")}
    assert "there is a run of this id" in rig.headrace("run", "--id", "mine", "--", "true", code=5).stderr
    assert list((rig.scratch / "another-machine").iterdir()) == []
    out, said = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "first\n"), said
    assert rig.read("mine", "outputs/x") == b"first\n"
    assert rig.states("mine") == ["starting", "running", "finishing", "finished"]


def test_the_store_is_away_for_a_while(tmp_path: Path):
    """The job knows nothing of it, and all of it is there in the end."""
    with EmbeddedS3(str(tmp_path / "server"), port=free_port()) as server:
        rig = RunsRig(server, tmp_path)
        try:
            count = "for n in $(seq 1 200); do echo line $n; echo $n > $HEADRACE_OUTPUTS/$n; sleep 0.1; done"
            process = rig.start("run", "--id", "away", "--", "sh", "-c", count)
            assert wait_for(lambda: rig.read("away", "outputs/5"))
            server.stop()
            time.sleep(8)
            server.start()
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
            assert rig.headrace("logs", "away").stdout == "".join(f"line {n}\n" for n in range(1, 201))
            assert all(rig.read("away", f"outputs/{n}") == f"{n}\n".encode() for n in range(1, 201))
            assert rig.states("away") == ["starting", "running", "finishing", "finished"]
        finally:
            rig.close()


def test_the_store_stays_away_until_after_the_end(tmp_path: Path):
    """What could not be said is kept, named, and said later: the run has finished, and is not lost."""
    with EmbeddedS3(str(tmp_path / "server"), port=free_port()) as server:
        rig = RunsRig(server, tmp_path)
        try:
            options = ("--id", "away", "--set", "outputs.drain=3s")
            late = "while [ ! -e go ]; do sleep 0.1; done; echo late > $HEADRACE_OUTPUTS/late"
            process = rig.start("run", *options, "--", "sh", "-c", late)
            assert wait_for(lambda: rig.read("away", "status/00001-running.json"))
            server.stop()
            (rig.work / "go").touch()
            _, said = process.communicate(timeout=120)
            assert process.returncode == 6, said
            assert "sync --recover" in said
            server.start()
            (row,) = json.loads(rig.headrace("sync", "--recover", "--json").stdout)
            assert row["state"] == "finished"
            assert rig.read("away", "outputs/late") == b"late\n"
            (row,) = rig.json("runs")
            assert (row["state"], row["exit_code"]) == ("finished", 0)
            assert list(rig.state.iterdir()) == []
        finally:
            rig.close()


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
    assert wait_for(lambda: rig.read("full", "logs/stdout/00000000.zst"))
    with open(small_disk / "filler", "wb", buffering=0) as file:
        file.write(bytes(shutil.disk_usage(small_disk).free - 4096))
        file.write(bytes(shutil.disk_usage(small_disk).free))
    (rig.work / "go").touch()
    out, said = process.communicate(timeout=120)
    assert process.returncode == 9, said
    assert out == "before\n" + "".join(f"{n}\n" for n in range(1, 20001)) + "after\n"
    assert "cannot be recorded" in said
    (row,) = rig.json("runs")
    assert (row["state"], row["exit_code"]) == ("failed", 9)


def test_stopped_while_a_checkpoint_is_on_its_way(rig: RunsRig):
    """What is half sent at the end never counts; a drain that ends early names what is left, and that is sent later."""
    rig.script("""
        cd $HEADRACE_OUTPUTS/checkpoints
        mkdir 7
        head -c 60000000 /dev/urandom > 7/m.pt
        touch $OLDPWD/written
        sleep 60
    """, "train.sh")  # fmt: skip
    options = ("--set", "outputs.bandwidth=5MB", "--set", "outputs.drain=1s", "--set", "grace=1s")
    run = rig.headrace("run", "-d", *options, "--", "sh", "train.sh").stdout.strip()
    assert wait_for(lambda: (rig.work / "written").exists())
    rig.headrace("stop", run, "--wait", "60s")
    assert rig.read(run, "checkpoints/7/COMMITTED") is None
    shown = rig.json("runs", "show", run)
    assert (shown["state"], shown["files_left"]) == ("stopped", 1)
    assert shown["statuses"][-1]["left"] == ["checkpoints/7/m.pt"]
    rig.headrace("sync", "--recover")
    assert [(row["state"], row["files_left"]) for row in rig.json("runs")] == [("stopped", 0)]
    assert len(rig.read(run, "checkpoints/7/m.pt") or b"") == 60_000_000
    assert rig.read(run, "checkpoints/7/COMMITTED") is None, "nobody knows whether its writer was done"


def test_many_small_files(rig: RunsRig):
    rig.script("for n in $(seq 1 2000); do echo $n > $HEADRACE_OUTPUTS/$n; done", "train.sh")
    rig.headrace("run", "--id", "many", "--", "sh", "train.sh", timeout=150)
    assert len([name for name in rig.names("many") if name.startswith("outputs/")]) == 2000
    assert rig.json("runs")[0]["files_left"] == 0
