"""`pack` and `unpack` by the nodes of a real Ray cluster: the bytes of one machine, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.cluster_rig import FORGOTTEN_SOON, PYTHON, SharedCluster
from tests.runs_rig import RunsRig
from tests.sync_rig import wait_for

pytestmark = [pytest.mark.server, pytest.mark.timeout(300)]
COUNT = 60
LAYOUTS = """
import dataclasses, sys
from headrace.base.errors import BadSampleError
from headrace.base.progress import SILENT
from headrace.base.settings import Settings
from headrace.cluster.data.packing import Nodes
from headrace.cluster.data.unpacking import Nodes as UnpackNodes
from headrace.cluster.pieces import Options, workers
from headrace.loader import Skip
from headrace.pack import PackOptions, pack, unpack

cluster, bucket = sys.argv[1:]
bad = PackOptions(shard_size=2048, layout="parquet", columns="label:i64, x:f32[2]", where="label < 390")
cases = {
    "tar": ("data", PackOptions(shard_size=60_000, seed=3)),
    "tfrecord": ("data", PackOptions(shard_size=60_000, layout="tfrecord", verify="full")),
    "parquet": ("data", PackOptions(shard_size=60_000, layout="parquet", where="size < 9_000")),
    "text": ("text", dataclasses.replace(bad, max_errors=Skip(max_count=2))),
}

def refused(**by):
    try:
        pack(bucket + "text", bucket + "bad", bad, **by)
    except BadSampleError as error:
        return str(error)

with workers(cluster, Settings.load()) as crew:
    hands = Nodes(crew, Options())
    for name, (source, options) in cases.items():
        one = pack(bucket + source, bucket + "one/" + name, options)
        two = pack(bucket + source, bucket + "two/" + name, options, hands=hands)
        assert one.shards > 3 and dataclasses.replace(one, path="") == dataclasses.replace(two, path=""), (one, two)
        again = pack(bucket + source, bucket + "two/" + name, options, hands=hands)
        assert (again.made, again.kept) == (0, two.shards)
    assert "1.csv: record 2" in refused(hands=hands) and refused(hands=hands) == refused()
    hands = UnpackNodes(crew, Options(), SILENT)
    for name in ("tar", "tfrecord"):
        one = unpack(bucket + "one/" + name, bucket + "one/members-" + name)
        two = unpack(bucket + "two/" + name, bucket + "two/members-" + name, hands=hands)
        assert dataclasses.replace(one, path="") == dataclasses.replace(two, path=""), (one, two)
"""
GATE = """
import os, time
from aside import marked

def gate(sample):
    \"\"\"The first to come to one of the samples says so, and goes on when it is let.\"\"\"
    if sample["__key__"].endswith("55") and marked(os.getpid()):
        while not os.path.exists({go!r}):
            time.sleep(0.02)
    return sample
"""
ASIDE = """
import os

def marked(pid):
    try:
        file = os.open({mark!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(file, b"%d\\n" % pid)
    os.close(file)
    return True
"""


@pytest.fixture(scope="module")
def rig(
    seaweedfs: EmbeddedS3, ray_cluster: SharedCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunsRig]:
    """A bucket with samples of two objects, and lines of text of which one is bad."""
    variables = {**ray_cluster.variables, **FORGOTTEN_SOON}
    rig = RunsRig(seaweedfs, tmp_path_factory.mktemp("packing"), variables, python=PYTHON)
    chance = random.Random(1)
    for number in range(COUNT):
        rig.store().put(f"data/{number % 3}/{number:02}.bin", chance.randbytes(number * 200))
        rig.store().put(f"data/{number % 3}/{number:02}.cls", b"%d" % number)
        rig.store().put(f"large/{number:02}.bin", chance.randbytes(400_000))
    lines = [f"{number},{number / 2},{number / 3}" if number != 7 else "seven,1,1" for number in range(500)]
    for part in range(3):
        rig.store().put(f"text/{part}.csv", "\n".join(["label,a,b", *lines[part::3]]).encode() + b"\n")
    yield rig
    rig.close()


def objects(rig: RunsRig, prefix: str) -> dict[str, bytes]:
    """All below a folder, by name."""
    found = [info.key for page in rig.store().list(f"{prefix}/") for info in page]
    return {key.removeprefix(f"{prefix}/"): bytes(rig.store().get(key).data) for key in found}


def gated(rig: RunsRig, name: str) -> tuple[Path, Path]:
    """Files: of the process that came to the gate, and what opens it. The function needs a module beside its own."""
    mark, go = rig.scratch / f"{name}-mark", rig.scratch / f"{name}-go"
    rig.script(GATE.format(go=str(go)), f"{name}.py")
    rig.script(ASIDE.format(mark=str(mark)), "aside.py")
    return mark, go


def test_shards_and_members_have_the_bytes_of_one_machine(rig: RunsRig, ray_cluster: SharedCluster) -> None:
    arguments = [PYTHON, rig.script(LAYOUTS, "layouts.py"), ray_cluster.address, f"s3://{rig.bucket}/"]
    ended = subprocess.run(arguments, cwd=rig.work, env=rig.environment, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    made = objects(rig, "two")
    assert made == objects(rig, "one"), "shards, their index, and the notes, all of them"
    assert {"tar/_pack/index/rows", "tfrecord/_pack/index/rows", "text/_pack/skipped.json"} <= made.keys()
    assert objects(rig, "two/members-tar") == objects(rig, "data")


def test_a_worker_that_is_killed_half_way_through_a_shard_costs_nothing(
    rig: RunsRig, ray_cluster: SharedCluster
) -> None:
    bucket = f"s3://{rig.bucket}"
    mark, _ = gated(rig, "worker")
    words = ["pack", f"{bucket}/large", "--shard-size", "12MB", "--map", "worker:gate"]
    process = rig.start(*words, f"{bucket}/killed", "--on", ray_cluster.address, "--json")
    assert wait_for(lambda: mark.exists() and mark.read_text().endswith("\n"), 150)
    assert "000001.tar" not in objects(rig, "killed"), "eight megabytes of it are sent, and nobody sees them"
    os.kill(int(mark.read_text()), signal.SIGKILL)
    said, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "a piece was lost with its worker" in errors
    whole = rig.json(*words, f"{bucket}/whole")
    assert {**json.loads(said), "path": ""} == {**whole, "path": ""}
    assert objects(rig, "killed") == objects(rig, "whole")


def test_a_leader_that_is_killed_is_followed_by_another(rig: RunsRig, ray_cluster: SharedCluster) -> None:
    bucket = f"s3://{rig.bucket}"
    mark, go = gated(rig, "leader")
    words = ["pack", f"{bucket}/data", f"{bucket}/led", "--shard-size", "60kB", "--map", "leader:gate"]
    process = rig.start(*words, "--on", ray_cluster.address)
    noted = "_pack/shards/000000.json"
    assert wait_for(lambda: mark.exists() and noted in objects(rig, "led"), 150)
    process.kill()
    assert "_pack/index.json" not in objects(rig, "led"), "who reads it sees that it is not finished"
    again = json.loads(rig.headrace(*words, "--on", ray_cluster.address, "--json", timeout=200).stdout)
    assert 0 < again["kept"] < again["shards"]
    assert again["samples"] == COUNT
    assert again == rig.json(*words) | {"made": again["made"], "kept": again["kept"]}, "one machine finds nothing to do"
    go.touch()


def test_how_many_at_once_is_the_clusters_affair(rig: RunsRig) -> None:
    places = [f"s3://{rig.bucket}/data", f"s3://{rig.bucket}/refused", "--on", "ray://nowhere:1", "-j", "3"]
    for verb in ("pack", "unpack"):
        assert "a cluster's CPUs decide" in rig.headrace(verb, *places, code=2).stderr
