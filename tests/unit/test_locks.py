"""Who holds a lock is told without taking it; runs of this machine and their claims are found by that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.base.locks import holders, try_lock
from headrace.jobs.claims import Claimed, claimed
from headrace.jobs.folder import RunFolder, every
from headrace.jobs.resources import Allotment, Machine
from headrace.jobs.spec_parts import ResourceSpec

HOLD = """
import sys
from headrace.base.locks import try_lock
try_lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_the_holder_of_a_lock_is_told(tmp_path: Path) -> None:
    paths = [str(tmp_path / name) for name in ("mine", "free", "other", "none")]
    mine = try_lock(paths[0])
    os.close(try_lock(paths[1]) or 0)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, paths[2]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert holders(paths) == {paths[0]: os.getpid(), paths[2]: other.pid}
        other.communicate("")
    assert holders(paths) == {paths[0]: os.getpid()}
    assert mine is not None
    os.close(mine)
    assert holders(paths) == {}


def test_claims_are_told_while_they_last(tmp_path: Path) -> None:
    folder = str(tmp_path / "claims")
    assert claimed(folder) == []
    allotment = Allotment(ResourceSpec(gpus=1), Machine((0, 1), ("0", "1")), folder)
    assert claimed(folder) == [Claimed("gpu-0", os.getpid())]
    allotment.close()
    assert claimed(folder) == []


def test_runs_of_this_machine_are_told_with_their_runners(tmp_path: Path) -> None:
    assert every(str(tmp_path / "none")) == []
    live, dead = (RunFolder(str(tmp_path), name, f"s3://bucket/home/runs/{name}") for name in ("live", "dead"))
    dead.close()
    (tmp_path / "other").mkdir()
    assert [(one.id, one.url, one.pid) for one in every(str(tmp_path))] == [
        ("dead", "s3://bucket/home/runs/dead", None), ("live", "s3://bucket/home/runs/live", os.getpid()),
    ]  # fmt: skip
    with pytest.raises(Exception, match="at work here"):
        RunFolder(str(tmp_path), "live", live.path)
    live.close()
