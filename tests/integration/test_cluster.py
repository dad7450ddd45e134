"""Jobs on a real Ray cluster, whose nodes are processes of this machine: a gang, its record, and what goes wrong."""

from __future__ import annotations

import json
import shlex
import signal
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headrace.cluster.kubernetes import for_job, manifests
from headrace.cluster.local import LocalCluster
from headrace.jobs import JobSpec
from headrace.testing.servers import EmbeddedS3
from headrace.upload import published
from tests.cluster_rig import PYTHON, TOOLS, ClusterRig, state_below
from tests.sync_rig import wait_for

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

RAYS_OWN = set(range(23000, 24000))
"""Ports, of which each cluster would give its first client the first one."""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRig]:
    """A cluster of two nodes with a CPU each."""
    if not (TOOLS / ".headrace").exists():
        pytest.skip("Ray is not installed: scripts/framework-tools ray")
    scratch = tmp_path_factory.mktemp("cluster")
    with LocalCluster(python=PYTHON, variables=state_below(scratch / "head")) as cluster:
        rig = ClusterRig(seaweedfs, scratch, cluster.variables(), cluster=cluster)
        rig.python = PYTHON
        for number in range(80):
            rig.store().put(f"data/{number:02}.bin", b"headrace")
        rig.script(TRAIN)
        try:
            rig.add(2)
            yield rig
        finally:
            rig.close()


TRAIN = """
import json, os, sys, time
from pathlib import Path
import headrace as hr
from together import barrier, rank, world

outputs, holds = Path(os.environ["HEADRACE_OUTPUTS"]), sys.argv[2] == "holds"
loader = hr.Dataset.open(sys.argv[1]).shuffle(seed=1).shard().batch(4).loader()
seen, step = [], 0
if resume := os.environ.get("HEADRACE_RESUME"):
    parts = [json.loads(path.read_text()) for path in sorted(Path(resume).glob("part-*.json"))]
    seen = [key for part in parts[rank::world] for key in part["seen"]]  # there may have been more ranks
    step, holds = parts[0]["step"], False
    loader.load_state_dict(parts[0]["state"])
print("rank", rank, "of", world, "from step", step, flush=True)
(outputs / f"began-{rank}.txt").write_text(os.environ["HEADRACE_ATTEMPT"])
for batch in loader:
    seen += [str(key) for key in batch["__key__"]]
    step += 1
    hr.log({"loss": 1 / step}, step=step)
    print("step", step, flush=True)
    barrier()
    if step % 4 == 0:
        folder = outputs / "checkpoints" / str(step)
        folder.mkdir(parents=True)
        (folder / f"part-{rank}.json").write_text(
            json.dumps({"seen": seen, "step": step, "state": loader.state_dict()}))
        barrier()
        (folder / "COMMITTED").touch()
    if holds and step == 5:
        time.sleep(600)
(outputs / f"seen-{rank}.json").write_text(json.dumps(seen))
"""
TORCH = """
import atexit
import torch.distributed as dist

dist.init_process_group("gloo")  # env://
atexit.register(dist.destroy_process_group)
rank, world, barrier = dist.get_rank(), dist.get_world_size(), dist.barrier
"""


def test_the_job_that_kubernetes_gets_runs_on_the_clusters_own_head(rig: ClusterRig) -> None:
    """The file of a RayJob, by its entrypoint, as the head starts it."""
    spec = JobSpec.from_command([PYTHON, "-c", "import os; print('rank', os.environ['RANK'])"])
    wanted = for_job(spec.with_flags({"name": "k8s", "cluster.nodes": 2}), home="s3://b/home", code=str(rig.work))
    _, files, ray = manifests(wanted)
    (rig.scratch / "job").mkdir()
    file = rig.scratch / "job/job.toml"
    file.write_text(files["data"]["job.toml"])
    words = [str(file) if one == "/job/job.toml" else one for one in shlex.split(ray["spec"]["entrypoint"])[1:]]
    assert rig.cluster is not None
    before = rig.variables
    rig.variables = {**before, "RAY_ADDRESS": rig.cluster.inside}
    try:
        ended = rig.headrace(*words, timeout=200)
    finally:
        rig.variables = before
    assert sorted(ended.stdout.splitlines()) == ["[0] rank 0", "[1] rank 1"]


def test_a_gang_is_one_run(rig: ClusterRig) -> None:
    """Its processes find each other by what torchrun's would be told."""
    rig.script(TORCH, "by_torch.py")
    rig.script(TRAIN.replace("from together ", "from by_torch "), "gang.py")
    ended = rig.on("--name", "gang", "--", PYTHON, "gang.py", f"s3://{rig.bucket}/data", "runs")
    run = run_of(rig, "gang")
    assert rig.states(run) == ["starting", "running", "finishing", "finished"]
    for rank in (0, 1):
        assert f"[{rank}] rank {rank} of 2 from step 0\n" in ended.stdout, "what they write comes here meanwhile"
    said = rig.headrace("logs", run).stdout
    assert sorted(said.splitlines()) == sorted(ended.stdout.splitlines())
    only = rig.headrace("logs", run, "--rank", "1").stdout.splitlines()
    assert only == ["rank 1 of 2 from step 0", *(f"step {step}" for step in range(1, 11))]
    rows = [json.loads(line) for line in rig.headrace("logs", run, "--json").stdout.splitlines()]
    assert {row["rank"] for row in rows} == {0, 1}
    seen = [json.loads(rig.read(run, f"outputs/seen-{rank}.json") or b"") for rank in (0, 1)]
    assert sorted(seen[0] + seen[1]) == [f"{number:02}" for number in range(80)], "each sample once"
    checkpoint = published(rig.store(), f"home/runs/{run}/checkpoints/8")
    assert checkpoint is not None
    assert [one.name for one in checkpoint.members] == ["part-0.json", "part-1.json"], (
        "what two nodes have written is one checkpoint"
    )
    points = measured(rig, run)
    assert {rank for name, rank in points if name == "loss"} == {0, 1}
    assert {rank for name, rank in points if name == "system/cpus"} == {0, 1}, "the figures of every node"
    record = json.loads(rig.read(run, "run.json") or b"")
    assert record["code"]["files"] >= 1
    secret = rig.environment["AWS_SECRET_ACCESS_KEY"].encode()
    assert not any(secret in (rig.read(run, name) or b"") for name in rig.names(run) if name.endswith(".json"))
    assert not list(rig.scratch.glob("machine*/HEADRACE_RUN_STATE/*")), "nothing stays on the nodes"


def test_one_that_fails_ends_all(rig: ClusterRig) -> None:
    script = rig.script(
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            sys.exit(7)
        time.sleep(600)
        """,
        "fails.py",
    )
    began = time.monotonic()
    ended = rig.on("--name", "fails", "--", PYTHON, script, code=7)
    assert time.monotonic() - began < 60
    assert "rank 1 on node 1" in ended.stderr
    run = run_of(rig, "fails")
    (told,) = [one for one in rig.json("runs") if one["id"] == run]
    assert (told["state"], told["exit_code"]) == ("failed", 7)
    assert "exit code 7" in told["reason"]


def test_it_waits_for_what_it_asks_for_and_can_be_stopped(rig: ClusterRig) -> None:
    waiting = rig.start(*rig.words("--name", "many", "--", "true", nodes=9))
    assert wait_for(lambda: state_of(rig, "many") == "waiting", 60)
    run = run_of(rig, "many")
    assert wait_for(lambda: b"asks for 9 nodes with 1 CPU each" in (rig.read(run, "lease.json") or b""), 30)
    assert rig.json("runs", "--state", "waiting")[0]["name"] == "many"
    assert not set(client_ports(rig)) & RAYS_OWN, "another cluster of this machine would take the same"
    waiting.send_signal(signal.SIGINT)
    _, said = waiting.communicate(timeout=60)
    assert "waits: asks for 9 nodes" in said
    assert state_of(rig, "many") == "stopped", said


def test_it_goes_on_without_who_submitted_it(rig: ClusterRig) -> None:
    script = rig.script("import time\nprint('here', flush=True)\ntime.sleep(600)", "long.py")
    run = rig.on("--detach", "--name", "long", "--", PYTHON, script).stdout.strip()
    assert wait_for(lambda: "here" in rig.headrace("logs", run).stdout, 60)
    assert "there is a run of this id" in rig.on("--id", run, "--", "true", code=5).stderr
    rig.headrace("stop", run)
    assert wait_for(lambda: state_of(rig, "long") == "stopped", 60)


def test_an_id_is_one_run_s(rig: ClusterRig) -> None:
    taken = run_of(rig, "gang")
    ended = rig.headrace(*rig.words("--id", taken, "--", "true"), code=5)
    assert "there is a run of this id" in ended.stderr


def test_a_lost_node_costs_what_came_after_the_last_checkpoint(rig: ClusterRig) -> None:
    data = f"s3://{rig.bucket}/data"
    running = rig.start(*rig.words("--name", "lossy", "--", PYTHON, "train.py", data, "holds"))
    assert wait_for(lambda: state_of(rig, "lossy") == "running", 60)
    run = run_of(rig, "lossy")
    assert wait_for(lambda: rig.read(run, "checkpoints/4/COMMITTED") is not None, 60)
    assert rig.cluster is not None
    killed, machine = time.monotonic(), rig.scratch / f"machine{len(rig.cluster.nodes) - 1}"
    rig.cluster.nodes[-1].kill()
    assert wait_for(lambda: "retrying" in rig.states(run), 30), (rig.states(run), running.poll())
    assert time.monotonic() - killed < 30
    rig.add()
    _, said = running.communicate(timeout=120)
    assert running.returncode == 0, said
    assert "is gone" in said
    assert rig.states(run)[-1] == "finished"
    log = rig.headrace("logs", run, "--rank", "0").stdout
    assert "rank 0 of 2 from step 4" in log
    seen = [json.loads(rig.read(run, f"outputs/seen-{rank}.json") or b"") for rank in (0, 1)]
    assert sorted(seen[0] + seen[1]) == [f"{number:02}" for number in range(80)]
    # The machine is back, with what the first attempt had left there: all of it is older than what was written since.
    state = machine / "HEADRACE_RUN_STATE"
    (left,) = [path for path in state.iterdir() if path.name.startswith(run)]
    (left / "record/outputs/late.txt").write_text("never sent")
    before = {name: rig.read(run, name) for name in rig.names(run)}
    rig.variables = {**rig.variables, "HEADRACE_RUN_STATE": str(state)}
    rig.headrace("sync", "--recover")
    rig.variables = {name: value for name, value in rig.variables.items() if name != "HEADRACE_RUN_STATE"}
    assert {name: rig.read(run, name) for name in rig.names(run)} == {**before, "outputs/late.txt": b"never sent"}
    assert not left.exists()


def test_workers_go_on_as_fewer_when_a_node_is_lost(rig: ClusterRig) -> None:
    """And the whole of the data is seen once, by however many."""
    data = f"s3://{rig.bucket}/data"
    rig.all_free(2)
    words = ["run", "--on", rig.cluster.address if rig.cluster else "", "--workers", "1..2", "--name", "elastic"]
    running = rig.start(*words, "--", PYTHON, "train.py", data, "holds")
    assert wait_for(lambda: state_of(rig, "elastic") == "running", 60)
    run = run_of(rig, "elastic")
    assert wait_for(lambda: rig.read(run, "checkpoints/4/COMMITTED") is not None, 60)
    assert rig.cluster is not None
    rig.cluster.nodes[-1].kill()
    _, said = running.communicate(timeout=150)
    assert running.returncode == 0, said
    assert "2 processes on 2 nodes" in said
    assert "1 processes on 1 nodes" in said
    seen = json.loads(rig.read(run, "outputs/seen-0.json") or b"")
    assert sorted(seen) == [f"{number:02}" for number in range(80)]
    rig.add()


def test_what_two_nodes_write_under_one_name_is_the_first_s(rig: ClusterRig) -> None:
    script = rig.script(
        """
        import os, time
        from pathlib import Path
        outputs, rank = Path(os.environ["HEADRACE_OUTPUTS"]), os.environ["RANK"]
        time.sleep(3 * int(rank))
        (outputs / "model.pt").write_text(f"rank {rank}'s")
        (outputs / f"model-{rank}.pt").write_text("its own")
        time.sleep(6)
        """,
        "collide.py",
    )
    ended = rig.on("--name", "collide", "--", PYTHON, script, code=6)
    run = run_of(rig, "collide")
    assert rig.read(run, "outputs/model.pt") == b"rank 0's"
    assert rig.read(run, "outputs/model-1.pt") == b"its own"
    (told,) = [one for one in rig.json("runs") if one["id"] == run]
    assert told["state"] == "finished"
    assert "1 files are not in the bucket" in ended.stderr
    assert "another node has written this" in rig.headrace("logs", run, "--stream", "headrace").stdout


def test_a_cluster_that_is_not_there_is_named(rig: ClusterRig) -> None:
    ended = rig.headrace("run", "--on", "ray://127.0.0.1:1", "--", "true", code=6, timeout=120)
    assert "the cluster does not answer" in ended.stderr
    assert "10001" in ended.stderr
    ended = rig.headrace("run", "--nodes", "2", "--", "true", code=2)
    assert "--on ray://" in ended.stderr


def run_of(rig: ClusterRig, name: str) -> str:
    return next(run for run in rig.ids() if run[16:-5] == name)


def state_of(rig: ClusterRig, name: str) -> str:
    states = [rig.states(run) for run in rig.ids() if run[16:-5] == name]
    return states[0][-1] if states and states[0] else ""


def client_ports(rig: ClusterRig) -> list[int]:
    """Of the servers that the cluster has started for its clients."""
    assert rig.cluster is not None
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    servers = [one for one in commands if "--mode=specific-server" in one and f"--address={rig.cluster.inside}" in one]
    ports = [int(word.removeprefix("--port=")) for one in servers for word in one if word.startswith("--port=")]
    assert ports
    return ports


def measured(rig: ClusterRig, run: str) -> set[tuple[str, int]]:
    from headrace.tracking.reading import read_metrics

    table: Any = read_metrics(rig.store(), f"home/runs/{run}/metrics/").table
    return {(row["name"], row["rank"]) for row in table.select(["name", "rank"]).to_pylist()}


TASKS = """
name = "pair"
[cluster]
on = "ADDRESS"
[[task]]
name = "prepare"
command = "echo prepared > $HEADRACE_OUTPUTS/data.txt"
[[task]]
name = "train"
after = ["prepare"]
command = "cat $HEADRACE_TASK_PREPARE/data.txt; echo {lr} on $HEADRACE_RUN_ID"
[task.parameters]
lr = [1, 2]
"""


def test_tasks_of_a_job_are_submitted_and_led_from_here(rig: ClusterRig) -> None:
    assert rig.cluster is not None
    rig.script(TASKS.replace("ADDRESS", rig.cluster.address), "job.toml")
    ended = rig.headrace("run", "job.toml", timeout=250)
    runs = {row["tags"]["lr"]: row["id"] for row in rig.json("runs", "--tag", "task=train", "--state", "finished")}
    assert set(runs) == {"1", "2"}
    for lr, run in runs.items():
        assert f"train lr={lr} | [0] {lr} on {run}" in ended.stdout.splitlines()
        assert rig.headrace("logs", run, "--stream", "stdout").stdout == f"[0] prepared\n[0] {lr} on {run}\n"
    assert rig.headrace("run", "job.toml", timeout=250).stderr.count("up to date, as run") == 3
