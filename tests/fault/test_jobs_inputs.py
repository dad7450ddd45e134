"""Inputs of runs whose runner dies, where nothing can be mounted, or where the disk is full."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import need_fuse
from tests.runs_rig import COMMAND, RunsRig
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server

WAITS = """
    import os, time
    number = os.environ["NUMBER"]
    with open(f"new-{number}", "w") as file:
        file.write(os.environ["HEADRACE_INPUT_TRAIN"])
    os.rename(f"new-{number}", f"ready-{number}")  # who sees it finds it whole
    while not os.path.exists("go"):
        time.sleep(0.02)
    print(len(os.listdir(os.environ["HEADRACE_INPUT_TRAIN"])))
"""
HIDE_DEVICE = """
    set -e
    mount --bind /dev "$0"
    mount -t tmpfs none /dev
    for one in null zero full random urandom tty; do touch /dev/$one; mount --bind "$0/$one" /dev/$one; done
    ln -s /proc/self/fd /dev/fd
    exec "$@"
"""


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    folders = {"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_MOUNT_RUN_DIR": str(tmp_path / "live")}
    made = RunsRig(seaweedfs, tmp_path, folders)
    made.script(WAITS)
    for number in range(3):
        made.store().put(f"data/{number}.txt", b"sample")
    yield made
    made.close()


def arguments(rig: RunsRig, how: str, number: int = 0) -> list[str]:
    given = ["--set", f"inputs.train=s3://{rig.bucket}/data", "--set", f"inputs.train.as={how}"]
    return ["run", *given, "--env", f"NUMBER={number}", "--", sys.executable, "train.py"]


def mounts(rig: RunsRig) -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(str(rig.scratch))]


def serving(pid: int) -> list[psutil.Process]:
    """The processes that serve mounts for a runner."""
    return [one for one in psutil.Process(pid).children() if any("inputs.serving" in word for word in one.cmdline())]


def test_a_killed_runner_leaves_no_mount_and_no_process(rig: RunsRig):
    need_fuse()
    runner = rig.start(*arguments(rig, "mount"))
    assert wait_for((rig.work / "ready-0").exists)
    (server,) = serving(runner.pid)
    assert server.memory_info().rss < 200 << 20
    assert psutil.Process(runner.pid).memory_info().rss < 200 << 20
    assert len(mounts(rig)) == 1
    runner.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    assert mounts(rig) == []


def test_a_mount_whose_process_was_killed_too_is_cleared_by_recovery(rig: RunsRig):
    need_fuse()
    runner = rig.start(*arguments(rig, "mount"))
    assert wait_for((rig.work / "ready-0").exists)
    (server,) = serving(runner.pid)
    server.kill()
    runner.send_signal(signal.SIGKILL)
    runner.communicate(timeout=30)
    assert len(mounts(rig)) == 1, "dead, and there"
    rig.headrace("sync", "--recover")
    assert mounts(rig) == []
    assert wait_for(lambda: not list(rig.state.iterdir()))


def test_a_mount_that_died_is_there_again_for_the_next_attempt(rig: RunsRig):
    need_fuse()
    given = ("--attempts", "2", "--set", "retry.backoff=10ms")
    command, *words = arguments(rig, "mount")
    runner = rig.start(command, *given, *words)
    assert wait_for((rig.work / "ready-0").exists)
    (server,) = serving(runner.pid)
    server.kill()
    assert wait_for(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    (rig.work / "go").touch()
    out, err = runner.communicate(timeout=60)
    assert (runner.returncode, out) == (0, "3\n"), err
    assert "attempt 2 of 2" in err
    assert mounts(rig) == []


def test_ctrl_c_before_the_command_leaves_nothing(rig: RunsRig):
    (rig.work / "go").touch()
    rig.headrace(*arguments(rig, "copy"))
    (lock,) = (rig.scratch / "kept" / "inputs").glob("*.lock")
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a run that is copying
        waiting = rig.start(*arguments(rig, "copy"))
        assert waiting.stderr is not None
        assert any("waits for another run" in line for line in waiting.stderr)
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=30)
    assert waiting.returncode == 130
    assert len(rig.ids()) == 1
    assert not list(rig.state.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide a device")
def test_without_a_device_it_is_copied_and_said_so(rig: RunsRig):
    (rig.scratch / "dev").mkdir()
    (rig.work / "go").touch()
    hidden = ["unshare", "--mount", "sh", "-c", HIDE_DEVICE, str(rig.scratch / "dev")]
    ended = subprocess.run(
        [*hidden, *COMMAND, *arguments(rig, "mount")], env=rig.environment, cwd=rig.work, capture_output=True,
        text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "3\n"
    assert "input train: copied, because it cannot be mounted here: " in ended.stderr
    assert "/dev/fuse" in ended.stderr
    told = json.loads(rig.read(rig.only(), "run.json") or b"")["inputs"]["train"]
    assert (told["as"], told["given"]) == ("mount", "copy")


def test_two_runs_at_once_share_one_copy_that_stays_while_it_is_used(rig: RunsRig):
    rig.variables = {**rig.variables, "HEADRACE_RUN_COPIES": "0"}
    running = [rig.start(*arguments(rig, "copy", number)) for number in range(2)]
    assert wait_for(lambda: (rig.work / "ready-0").exists() and (rig.work / "ready-1").exists())
    first, second = ((rig.work / f"ready-{number}").read_text() for number in range(2))
    assert first == second
    given = ["--set", f"inputs.other=s3://{rig.bucket}/data/1.txt", "--set", "inputs.other.as=copy"]
    rig.headrace("run", "-q", *given, "--", "true")  # prunes what nobody uses
    (rig.work / "go").touch()
    assert [one.communicate(timeout=60)[0] for one in running] == ["3\n", "3\n"]


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=80m", "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_copy_that_does_not_fit_is_refused_with_what_it_needs(rig: RunsRig):
    (rig.work / "go").touch()
    with small_disk(rig.scratch / "kept"):
        rig.store().put("data/large.bin", bytes(12 << 20))
        rig.headrace(*arguments(rig, "copy"))
        copies = rig.scratch / "kept" / "inputs"
        assert len([one for one in copies.iterdir() if one.is_dir()]) == 1
        rig.store().put("data/other.bin", bytes(1 << 20))
        rig.headrace(*arguments(rig, "copy"))
        assert len([one for one in copies.iterdir() if one.is_dir()]) == 1, "the one that nobody uses gave way"
        rig.store().put("data/huge.bin", bytes(20 << 20))
        told = rig.headrace(*arguments(rig, "copy"), code=7).stderr
        assert "inputs.train" in told
        assert "a copy needs" in told
        assert not [one for one in copies.iterdir() if one.name.startswith(".new-")]
    assert len(rig.ids()) == 2, "refused before it was recorded"
