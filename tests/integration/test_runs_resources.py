"""Several processes of one run, and its share of the machine: real torchrun, real processes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from headrace.base.errors import InputError, TryAgainError
from headrace.jobs.resources import Allotment, Machine
from headrace.jobs.spec import ResourceSpec
from headrace.testing.servers import EmbeddedS3
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[RunsRig]:
    made = RunsRig(seaweedfs, tmp_path)
    yield made
    made.close()


@pytest.mark.server
def test_several_processes_see_each_other_and_log_as_ranks(rig: RunsRig):
    rig.script("""
        import os, torch, torch.distributed as dist
        import headrace as hr
        dist.init_process_group("gloo")
        total = torch.tensor(float(dist.get_rank() + 1))
        dist.all_reduce(total)
        hr.log({"loss": float(dist.get_rank())}, step=1)
        line = f"rank {dist.get_rank()} of {os.environ['WORLD_SIZE']}: {total.item()}\\n"
        os.write(1, line.encode())  # print would be two writes, and another rank's between them
        dist.destroy_process_group()
    """)
    ended = rig.headrace("run", "--set", "processes=2", "--id", "1", "--", "python3", "train.py")
    assert sorted(ended.stdout.splitlines()) == ["rank 0 of 2: 3.0", "rank 1 of 2: 3.0"]
    assert rig.states("1")[-1] == "finished"
    (loss,) = rig.json("metrics", "1")
    assert (loss["points"], loss["last"]) == (1, 0.0), "the lowest rank's"
    (loss,) = rig.json("metrics", "1", "--rank", "1")
    assert (loss["points"], loss["last"]) == (1, 1.0)


@pytest.mark.server
def test_a_rank_that_fails_ends_all_and_the_run_fails(rig: RunsRig):
    rig.script("""
        import os, sys, time
        os.write(1, f"{os.getpid()}\\n".encode())
        if os.environ["RANK"] == "1":
            sys.exit(5)
        time.sleep(300)
    """)
    ended = rig.headrace("run", "--set", "processes=2", "--id", "1", "--", "python3", "train.py", code=1)
    assert rig.states("1")[-1] == "failed"
    assert "exitcode  : 5" in ended.stderr
    assert not any(psutil.pid_exists(int(pid)) for pid in ended.stdout.split())


@pytest.mark.server
def test_no_rank_outlives_a_launcher_or_runner_that_is_killed(rig: RunsRig):
    rig.script("""
        import os, pathlib, sys, time
        pathlib.Path(f"{sys.argv[1]}-{os.environ['RANK']}").write_text(str(os.getpid()))
        time.sleep(300)
    """)
    options = ("--set", "processes=2", "--set", "grace=1s")
    started = {
        victim: rig.start("run", *options, "--", "python3", "train.py", victim) for victim in ("launcher", "runner")
    }
    for victim, process in started.items():
        marks = [rig.work / f"{victim}-{rank}" for rank in range(2)]
        assert wait_for(lambda marks=marks: all(one.exists() and one.read_text() for one in marks))
        ranks = [psutil.Process(int(one.read_text())) for one in marks]
        (launcher,) = {one.ppid() for one in ranks}
        os.kill(launcher if victim == "launcher" else process.pid, signal.SIGKILL)
        _, alive = psutil.wait_procs(ranks, timeout=30)
        assert not alive
        assert process.wait(60) == (137 if victim == "launcher" else -signal.SIGKILL)


@pytest.mark.server
def test_cpus_that_are_asked_for_are_the_runs_own(rig: RunsRig):
    shown = ["python3", "-c", "import os; print(*sorted(os.sched_getaffinity(0)))"]
    here = sorted(os.sched_getaffinity(0))
    assert rig.headrace("run", "-q", "--", *shown).stdout.split() == [str(one) for one in here]
    alone = rig.headrace("run", "-q", "--set", "resources.cpus=1", "--", *shown)
    assert alone.stdout.split() == [str(here[0])]
    holder = rig.start("run", "--id", "holder", "--set", "resources.cpus=1", "--", "sh", "-c", "echo up; sleep 300")
    assert holder.stdout is not None
    assert holder.stdout.readline() == "up\n"
    if len(here) > 1:
        beside = rig.headrace("run", "-q", "--set", "resources.cpus=1", "--", *shown)
        assert beside.stdout.split() == [str(here[1])], "another's are left alone"
    every = rig.headrace("run", "--set", f"resources.cpus={len(here)}", "--", *shown)
    assert "CPUs are other runs' too" in every.stderr
    holder.send_signal(signal.SIGTERM)
    assert holder.wait(60) == -signal.SIGTERM
    refused = rig.headrace("run", "--id", "much", "--set", "resources.cpus=4096", "--", *shown, code=2)
    assert f"resources.cpus: asks for 4096 CPUs; here are {len(here)}" in refused.stderr
    assert rig.names("much") == []


@pytest.mark.server
def test_a_run_that_takes_more_memory_than_it_may_is_ended_and_says_so(rig: RunsRig):
    """What its processes share counts once: they may hold as much as one of them does."""
    rig.script("""
        import os, sys, time
        held = bytearray(os.urandom(1 << 20)) * int(sys.argv[1])  # never twice at once
        for _ in range(3):
            if os.fork() == 0:
                time.sleep(300 if sys.argv[1] == "600" else 2.5)
                os._exit(0)
        for _ in range(3):
            os.wait()
        print("done")
    """)
    shared = rig.start("run", "-q", "--set", "resources.memory=500MB", "--", "python3", "train.py", "250")
    much = rig.headrace("run", "--id", "much", "--set", "resources.memory=500MB", "--", "python3", "train.py", "600",
                        code=137)  # fmt: skip
    assert re.search(r"out of memory: [\d.]+ [MG]B of 500 MB: SIGKILL", much.stderr)
    shown = rig.json("runs", "show", "much")
    assert shown["state"] == "failed"
    assert "out of memory" in shown["reason"]
    assert shared.communicate(timeout=60)[0] == "done\n"


GPUS = Machine((0, 1), ("0", "1", "3"))


def test_gpus_are_given_to_one_run_each(tmp_path: Path):
    claims = str(tmp_path / "claims")
    first = Allotment(ResourceSpec(gpus=2), GPUS, claims)
    assert first.variables() == {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    second = Allotment(ResourceSpec(gpus=1), GPUS, claims)
    assert second.gpus == ("3",)
    with pytest.raises(TryAgainError, match=r"asks for 1 of 3 GPUs, and other runs have 3"):
        Allotment(ResourceSpec(gpus=1), GPUS, claims)
    named = Allotment(ResourceSpec(gpus=(3, 0)), GPUS, claims)
    assert (named.gpus, named.notes) == (("3", "0"), ("2 of its 2 GPUs are other runs' too",))
    second.close()
    assert Allotment(ResourceSpec(gpus=1), GPUS, claims).gpus == ("3",)
    for wanted, said in ((4, "asks for 4 GPUs; here are 3"), ((2,), "names GPU 2, which is not there")):
        with pytest.raises(InputError, match=said):
            Allotment(ResourceSpec(gpus=wanted), GPUS, claims)
    assert Allotment(ResourceSpec(gpus=0), GPUS, claims).variables()["CUDA_VISIBLE_DEVICES"] == ""
    every = Allotment(ResourceSpec(), GPUS, claims)
    assert (every.variables(), every.cpus) == ({}, None)
    assert [every.processes("auto", GPUS), first.processes("auto", GPUS), first.processes(5, GPUS)] == [3, 2, 5]
    assert every.processes("auto", Machine((0,), ())) == 1


def test_what_the_caller_sees_is_what_there_is_to_give():
    assert Machine.here({"CUDA_VISIBLE_DEVICES": "2, 5"}).gpus == ("2", "5")
    assert Machine.here({"CUDA_VISIBLE_DEVICES": ""}).gpus == ()
    assert Machine.here({}).cpus == tuple(sorted(os.sched_getaffinity(0)))
