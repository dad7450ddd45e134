"""Jobs on a real Ray cluster when its head dies, when a machine is taken away with notice, and when two want one id."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.cluster.local import LocalCluster
from headrace.testing.servers import EmbeddedS3
from tests.cluster_rig import FORGOTTEN_SOON, PYTHON, TOOLS, ClusterRig, state_below
from tests.sync_rig import wait_for

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]

SAMPLES = [f"{number:03}" for number in range(120)]
TRAIN = """
import json, os, signal, sys, time
from pathlib import Path
import headrace as hr
from together import any_of, barrier, rank, world

every, hold = int(sys.argv[2]), int(sys.argv[3])
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
outputs = Path(os.environ["HEADRACE_OUTPUTS"])
loader = hr.Dataset.open(sys.argv[1]).shuffle(seed=1).shard().batch(4 // world).loader()
seen, step = [], 0
resume = os.environ.get("HEADRACE_RESUME")
if resume:
    parts = [json.loads(path.read_text()) for path in sorted(Path(resume).glob("part-*.json"))]
    seen = [key for part in parts[rank::world] for key in part["seen"]]
    step = parts[0]["step"]
    loader.load_state_dict(parts[0]["state"])
print("rank", rank, "of", world, "from step", step, flush=True)
(outputs / f"pid-{os.environ['HEADRACE_ATTEMPT']}-{rank}.txt").write_text(str(os.getpid()))

def save():
    folder = outputs / "checkpoints" / str(step)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"part-{rank}.json").write_text(json.dumps({"seen": seen, "step": step, "state": loader.state_dict()}))
    barrier()
    (folder / "COMMITTED").touch()

for batch in loader:
    seen += [str(key) for key in batch["__key__"]]
    step += 1
    if step % every == 0:
        save()
    if any_of(bool(asked)):  # all of them at the same step
        save()
        print("saved at step", step, flush=True)
        sys.exit(0)
    while step == hold and not resume and not asked:
        time.sleep(0.05)
(outputs / f"seen-{rank}.json").write_text(json.dumps(seen))
"""
HOLDS = """
import sys, time
from headrace.base.settings import Settings
from headrace.cluster.claim import claimed
from headrace.cluster.connection import connected
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.tracking.runs import Run

run = Run(Home.of(Namespace.load(), Settings.load()), "held")
with connected(sys.argv[1]) as ray, claimed(ray, run, sys.argv[1]) as claim:
    claim.confirm()
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Generator[ClusterRig]:
    """With a cluster, whose head a test kills and replaces."""
    if not (TOOLS / ".headrace").exists():
        pytest.skip("Ray is not installed: scripts/framework-tools ray")
    made = ClusterRig(seaweedfs, tmp_path_factory.mktemp("head"))
    made.python = PYTHON
    for name in SAMPLES:
        made.store().put(f"data/{name}.bin", b"headrace")
    made.script(TRAIN)
    try:
        up(made)
        yield made
    finally:
        made.close()
        if made.cluster is not None:
            made.cluster.close()


def up(rig: ClusterRig) -> None:
    """A head and two nodes, on the machines of those that were there before."""
    (rig.scratch / "tmp").mkdir(exist_ok=True)
    variables = {**state_below(rig.scratch / "head"), "TMPDIR": str(rig.scratch / "tmp")}
    rig.cluster = LocalCluster(python=PYTHON, variables=variables)
    rig.variables = {**rig.cluster.variables(), **FORGOTTEN_SOON}
    rig.add(2)


def train(rig: ClusterRig, name: str, every: int, hold: int, *words: str) -> list[str]:
    """It saves every so many steps, and waits for what happens at step `hold`."""
    command = [PYTHON, "train.py", f"s3://{rig.bucket}/data", str(every), str(hold)]
    assert rig.cluster is not None
    return ["run", "--on", rig.cluster.address, "--name", name, *words, "--", *command]


def run_of(rig: ClusterRig, name: str) -> str:
    return next((run for run in rig.ids() if run[16:-5] == name), "")


def once(rig: ClusterRig, run: str, world: int) -> bool:
    seen = [key for rank in range(world) for key in json.loads(rig.read(run, f"outputs/seen-{rank}.json") or b"[]")]
    return sorted(seen) == SAMPLES


@contextmanager
def state_of(rig: ClusterRig, machine: str) -> Generator[Path]:
    """Commands on that machine."""
    before, folder = rig.variables, rig.scratch / machine / "HEADRACE_RUN_STATE"
    rig.variables = {**before, "HEADRACE_RUN_STATE": str(folder)}
    yield folder
    rig.variables = before


def test_an_id_is_taken_before_anything_is_sent(rig: ClusterRig) -> None:
    assert rig.cluster is not None
    holds = subprocess.Popen(
        [PYTHON, "-c", HOLDS, rig.cluster.address], env=rig.environment, stdout=subprocess.PIPE, text=True
    )
    assert holds.stdout is not None
    assert holds.stdout.readline() == "held\n"
    ended = rig.headrace(*rig.words("--id", "held", "--", "true", nodes=1), code=5)
    assert "a run of this id is under way" in ended.stderr
    assert rig.names("held") == []
    holds.kill()  # before its run was recorded: nobody has the id any more, as the next test sees
    holds.communicate(timeout=30)
    both = [rig.start(*rig.words("--id", "both", "-q", "--", "echo", f"{number}", nodes=1)) for number in range(2)]
    told = {one.wait(120): one.communicate() for one in both}
    assert sorted(told) == [0, 5], told
    assert "of this id" in told[5][1]
    assert rig.names("both").count("run.json") == 1


def test_a_machine_that_is_taken_away_with_notice_saves_before(rig: ClusterRig) -> None:
    """No checkpoint comes but by the notice: from there it goes on, on what is left."""
    run = "held"  # which one had who died
    rig.all_free(2)
    running = rig.start(*train(rig, "preempted", 1000, 3, "--workers", "1..2", "--id", run))
    assert wait_for(lambda: rig.read(run, "outputs/pid-1-1.txt"), 120, 0.5)
    assert rig.cluster is not None
    rig.cluster.nodes[-1].notice()
    _, said = running.communicate(timeout=150)
    assert running.returncode == 0, said
    assert "is to go: all are ended" in said
    log = rig.headrace("logs", run, "--rank", "0").stdout.splitlines()
    (saved,) = [line.rpartition(" ")[2] for line in log if line.startswith("saved at step")]
    assert log[-1] == f"rank 0 of 1 from step {saved}"
    assert int(saved) == 4, "the step that was under way is in it"
    assert once(rig, run, 1)
    states = [state for state in rig.states(run) if state != "waiting"]  # as long as the other machine is being left
    assert states == ["starting", "running", "retrying", "running", "finishing", "finished"]
    assert wait_for(lambda: rig.cluster is not None and rig.cluster.nodes[-1].process.poll() is not None, 60)
    rig.cluster.nodes.pop()  # the next test needs one


def test_the_head_dies(rig: ClusterRig) -> None:
    running = rig.start(*train(rig, "headless", 4, 5))
    assert wait_for(lambda: rig.read(run_of(rig, "headless"), "checkpoints/4/COMMITTED"), 120, 0.5)
    run = run_of(rig, "headless")
    pid = int(rig.read(run, "outputs/pid-1-0.txt") or b"0")
    assert Path(f"/proc/{pid}").exists()
    assert rig.cluster is not None
    killed = time.monotonic()
    rig.cluster.kill_head()
    _, said = running.communicate(timeout=60)
    assert running.returncode == 6, said
    assert f"headrace rerun --resume {run}" in said
    assert wait_for(lambda: not Path(f"/proc/{pid}").exists(), 45 - (time.monotonic() - killed)), "it trains on"
    with state_of(rig, "head") as folder:
        assert list((rig.scratch / "tmp").glob("headrace-*")) == [], "settings lie in the run's folder alone"
        rig.headrace("sync", "--recover")
        assert list(folder.iterdir()) == []
    (told,) = [one for one in rig.json("runs") if one["id"] == run]
    assert told["state"] == "lost"
    (left,) = [one for number in range(2) for one in rig.scratch.glob(f"machine{number}/HEADRACE_RUN_STATE/{run}*")]
    (left / "record/outputs/late.txt").write_text("not sent yet")

    rig.cluster.close()
    up(rig)
    ended = rig.headrace("rerun", "--resume", run, "--on", rig.cluster.address, "--name", "headed", timeout=200)
    assert "rank 0 of 1 from step " in ended.stdout
    assert "rank 0 of 1 from step 0" not in ended.stdout
    assert once(rig, run_of(rig, "headed"), 1)
    with state_of(rig, "machine0" if "machine0" in str(left) else "machine1"):
        rig.headrace("sync", "--recover")  # unless the new run was on that machine, and has done it
    assert rig.read(run, "outputs/late.txt") == b"not sent yet"
    assert not left.exists()
