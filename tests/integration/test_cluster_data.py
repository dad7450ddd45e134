"""Data work by the nodes of a Ray cluster: the same results as one machine's, whatever dies meanwhile."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.cluster_rig import PYTHON, SharedCluster
from tests.runs_rig import RunsRig

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
OBJECTS = [*(f"data/{folder}/{number:02}" for folder in ("a", "a/x", "a-b", "a.b", "é", "z") for number in range(20)),
           "data/top", "data/y/z/1"]  # fmt: skip
SHARDS = [f"shards/{number:02}.tar" for number in range(6)]


@pytest.fixture(scope="module")
def rig(
    ray_cluster: SharedCluster, seaweedfs: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunsRig]:
    """Commands, a bucket with single objects and shards, and a cluster, ``$CLUSTER``."""
    variables = {**ray_cluster.variables, "CLUSTER": ray_cluster.address}
    rig = RunsRig(seaweedfs, tmp_path_factory.mktemp("data"), variables, python=PYTHON)
    contents = {**{key: key.encode() for key in OBJECTS}, **{key: shard(key) for key in SHARDS}}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(rig.store().put, contents, contents.values()))
    yield rig
    rig.close()


def shard(name: str) -> bytes:
    """A tar with three samples of two parts."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for number in range(6):
            info = tarfile.TarInfo(f"{name[-6:-4]}{number // 2}.{('txt', 'cls')[number % 2]}")
            info.size = len(name)
            made.addfile(info, io.BytesIO(name.encode()))
    return file.getvalue()


def told(rig: RunsRig, text: str, *arguments: str) -> Any:
    """What a program prints as JSON."""
    name = rig.script(text, "asked.py")
    ended = subprocess.run(
        [PYTHON, name, *arguments], env=rig.environment, cwd=rig.work, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


SNAPSHOTS = """
import dataclasses, json, os, sys
from headrace.base.settings import Settings
from headrace.cluster.data import cuts
from headrace.cluster.data.indexing import scanning_on
from headrace.cluster.data.listing import listing_on
from headrace.cluster.pieces import workers
from headrace.catalog.snapshot_diff import verify
from headrace.catalog.listed_places import listed_here
from headrace.formats.opening_targets import index_snapshot
from headrace.catalog.snapshot import take_snapshot
from headrace.namespace import Namespace

bucket, folder = sys.argv[1:]
cuts.SHARD_BYTES = 1  # a piece a shard
namespace = Namespace.load()

def at(name):  # neither knows what the other has read
    settings = Settings.load()
    cache = dataclasses.replace(settings.cache, dir=f"{folder}/{name}")
    return {"namespace": namespace, "settings": dataclasses.replace(settings, cache=cache)}

said, read = [], []
with workers(os.environ["CLUSTER"], Settings.load()) as crew:
    listing = listing_on(crew, here=0, tell=said.append)
    made = {}
    for name in ("data", "shards"):
        made[name, "there"] = take_snapshot(f"{bucket}/{name}", f"{name}-there", listing=listing, **at("there"))
        made[name, "here"] = take_snapshot(f"{bucket}/{name}", f"{name}-here", **at("here"))
    scan = scanning_on(crew, made["shards", "there"], tell=said.append)

    def elsewhere(shelf, job, missing):
        read.extend(missing)
        scan(shelf, job, missing)

    indexed = index_snapshot(made["shards", "there"], elsewhere=elsewhere, **at("there"))
    assert index_snapshot(made["shards", "here"], **at("here")) == indexed
    store = namespace.resolve(f"{bucket}/data/x").store
    store.delete(["data/a/03"])
    store.put("data/z/04", b"other")
    store.put("data/new/1", b"")
    found = [list(verify(made["data", "here"], listing=one, **at("here"))) for one in (listing, listed_here)]
print(json.dumps({"indexed": indexed, "read": len(read), "found": found, "said": said}))
"""


def test_snapshots_and_what_they_are_verified_by_are_those_of_one_machine(rig: RunsRig) -> None:
    said = told(rig, SNAPSHOTS, f"s3://{rig.bucket}", str(rig.scratch / "caches"))
    assert (said["indexed"], said["read"]) == (18, 6)
    assert said["found"][0] == said["found"][1]
    assert [change[:2] for change in said["found"][0]] == [["removed", "a/03"], ["added", "new/1"], ["changed", "z/04"]]
    assert said["said"] == []
    for name in ("data", "shards"):
        assert kept(rig, f"{name}-there") == kept(rig, f"{name}-here")
    assert set(kept(rig, "shards-there")) == {"manifest.parquet", *(f"index/tar/{one}" for one in INDEX)}


INDEX = ("at", "first", "meta.json", "rows")


def kept(rig: RunsRig, name: str) -> dict[str, bytes]:
    """All that a snapshot consists of, but its date and name."""
    prefix = f"home/datasets/{name}/v1/"
    keys = [info.key for page in rig.store().list(prefix) for info in page if not info.key.endswith("snapshot.json")]
    return {key.removeprefix(prefix): bytes(rig.store().get(key).data) for key in keys}


LOADS = """
import dataclasses, json, os, sys
from headrace.base.settings import Settings
from headrace.cluster.data.caches import verify_caches
from headrace.cluster.data.loading import load_on
from headrace.cluster.pieces import workers
from headrace.namespace import Namespace

here = {"namespace": Namespace.load(), "settings": Settings.load()}
with workers(os.environ["CLUSTER"], Settings.load()) as crew:
    loads = [load_on(crew, sys.argv[1], copies=copies, **here) for copies in (1, None)]
    checked = verify_caches(crew)
told = [[{**dataclasses.asdict(one), "node": node} for node, one in load.nodes.items()] for load in loads]
verified = [(report.checked, len(report.bad), checked.folders[node]) for node, report in checked.nodes.items()]
print(json.dumps({"loads": told, "verified": verified, "gone": [*loads[0].gone, *loads[1].gone, *checked.gone]}))
"""


def test_load_warms_every_node_or_a_share_of_each(rig: RunsRig) -> None:
    path, on = f"s3://{rig.bucket}/shards", ("--on", rig.variables["CLUSTER"])
    said = told(rig, LOADS, path)
    shares = [node["loaded"] for node in said["loads"][0]]
    assert len(shares) == 2
    assert sum(shares) == len(SHARDS), "each on one node"
    assert [node["already"] for node in said["loads"][1]] == shares, "what a node has is not brought again"
    assert [node["loaded"] + node["already"] for node in said["loads"][1]] == [len(SHARDS)] * 2
    assert all(checked >= len(SHARDS) and not damaged for checked, damaged, _ in said["verified"])
    assert len({folder for _, _, folder in said["verified"]}) == 2
    assert said["gone"] == []
    again = rig.json("load", path, *on)
    assert (again["already"], again["loaded"], again["failed"]) == (2 * len(SHARDS), 0, 0)
    assert [node["id"] for node in again["nodes"]] == [node["node"] for node in said["loads"][0]]
    missing = rig.headrace("load", f"s3://{rig.bucket}/nothing", *on, code=3)
    assert missing.stderr.startswith(f"error: s3://{rig.bucket}/nothing")


PIECES = """
import json, os, sys, threading, time
from pathlib import Path
from headrace.base.errors import ArchivedError
from headrace.base.settings import Settings
from headrace.cluster.pieces import Gone, Options, workers

began = Path(sys.argv[1])

def work(site, piece):
    number, began = piece
    if number == 7 and not began.exists():
        began.with_suffix(".tmp").write_text(str(os.getpid()))
        began.with_suffix(".tmp").rename(began)
        time.sleep(600)
    return number * number

def refuse(site, piece):
    raise ArchivedError("lies in an archive", path=f"s3://b/{piece}", hint="restore it")

def kill():
    while not began.exists():
        time.sleep(0.02)
    os.kill(int(began.read_text()), 9)

said, found = [], {}
killer = threading.Thread(target=kill, daemon=True)
killer.start()
with workers(os.environ["CLUSTER"], Settings.load()) as crew:
    options = Options(tell=said.append)
    found["done"] = [(one.piece[0], one.result, one.tries) for one in
                     crew.work_off(work, ((number, began) for number in range(25)), options=options)]
    killer.join()
    machines = crew.machines()
    placed = [one for one in crew.on_nodes(work, ((one, (number, began)) for number in range(9) for one in machines))]
    found["placed"] = sorted((machines.index(next(m for m in machines if m.id == one.node)), one.piece[0])
                             for one in placed)
    try:
        list(crew.work_off(refuse, range(9)))
    except ArchivedError as error:
        found["refused"] = [type(error).__name__, error.reason, error.path.startswith("s3://b/"), error.hint]
    def endless():
        number = 0
        while True:
            asked.append(number)
            yield number, began
            number += 1
    asked = []
    for one in crew.work_off(work, endless()):
        break
    found["asked"] = len(asked)
print(json.dumps({**found, "said": said}))
"""


def test_a_piece_whose_worker_is_killed_is_done_again_and_comes_once(rig: RunsRig) -> None:
    said = told(rig, PIECES, str(rig.scratch / "began"))
    assert sorted(said["done"]) == [[number, number**2, 2 if number == 7 else 1] for number in range(25)]
    (text,) = said["said"]
    assert "a piece was lost with its worker, and is done again" in text
    assert said["placed"] == [[node, number] for node in range(2) for number in range(9)]
    assert said["refused"] == ["ArchivedError", "lies in an archive", True, "restore it"]
    assert said["asked"] < 12, "no more is asked for than the nodes can begin"
