"""Runs that wait for GPUs which others have: real commands, and GPUs that are there by name only."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

SHOW = ("sh", "-c", "echo $HEADRACE_RUN_ID $CUDA_VISIBLE_DEVICES >> order; cat order")


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path, {"CUDA_VISIBLE_DEVICES": "0,1"})
    yield made
    made.close()


def waiting(rig: RunsRig) -> dict[str, str]:
    """Runs that wait, and why."""
    return {one["id"]: one["reason"] for one in rig.json("runs", "--state", "waiting")}


@pytest.mark.server
def test_runs_wait_for_gpus_in_the_order_of_asking(rig: RunsRig):
    holder = rig.start("run", "--id", "holder", "--set", "resources.gpus=1", "--", "sh", "-c", "echo up; sleep 300")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    two, one = ("--wait", "--set", "resources.gpus=2"), ("--wait", "--set", "resources.gpus=1")
    told = rig.headrace("run", "-d", "--id", "big", "--time-limit", "5s", *two, "--", *SHOW)
    assert told.stdout == "big\n", "at once, though it waits"
    small = rig.start("run", "--id", "small", *one, "--", *SHOW)
    assert wait_for(lambda: set(waiting(rig)) == {"big", "small"})
    stopped = {name: rig.start("run", "--id", name, *one, "--", *SHOW) for name in ("int", "term", "order")}
    assert wait_for(lambda: set(waiting(rig)) == {"big", "small", "int", "term", "order"})
    why = waiting(rig)
    assert why["big"] in rig.headrace("runs", "--state", "waiting").stdout
    has = f"holder (pid {holder.pid}) has gpu-0"
    assert why["big"] == f"asks for 2 of 2 GPUs (1 free for it); {has}"
    assert why["small"].startswith(f"asks for 1 of 2 GPUs (0 free for it); {has}; big (pid ")
    assert wait_for(lambda: f"waits: {why['big']}" in rig.headrace("logs", "big", "--stream", "headrace").stdout)
    refused = rig.headrace("run", "--id", "refused", "--set", "resources.gpus=1", "--", *SHOW, code=6)
    assert "other runs have 2 or wait for them" in refused.stderr
    assert rig.names("refused") == []

    stopped["int"].send_signal(signal.SIGINT)
    stopped["term"].send_signal(signal.SIGTERM)
    rig.headrace("stop", "order")
    ends = {name: process.wait(60) for name, process in stopped.items()}
    assert ends == {"int": -signal.SIGINT, "term": -signal.SIGTERM, "order": -signal.SIGTERM}
    for name in stopped:
        assert set(rig.states(name)) == {"starting", "waiting", "finishing", "stopped"}

    holder.send_signal(signal.SIGTERM)
    assert holder.wait(60) == -signal.SIGTERM
    assert small.communicate(timeout=60)[0] == "big 0,1\nsmall 0\n"
    assert rig.states("small")[-1] == "finished"
    assert wait_for(lambda: rig.states("big")[-1] == "finished"), "its time limit is none of the wait"
    assert waiting(rig) == {}
