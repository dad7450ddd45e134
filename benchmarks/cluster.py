"""What a cluster costs and what a lost node costs: ``python benchmarks/cluster.py``, in an environment that has Ray.

The cluster is Ray's own, its nodes are processes of this machine with a CPU each, over loopback, with SeaweedFS as the
store.

- *submit*: from the command to the first line of the script, against ``ray job submit`` of the same script, in turns.
- *nodes*: samples a second of two nodes together against twice those of one, when decoding is the limit.
- *lost*: histories in which a node is killed at a random moment: whether each sample was seen once, and how long after
  the kill the first step came.
- *pack*: pictures packed by two nodes of a core each, against one machine of one core: see ``cluster_pack.py``.

Results go to ``benchmarks/results/cluster.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cluster_pack import pack
from headrace.base.settings import Settings
from headrace.cluster.local import LocalCluster
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store import Store, open_store
from headrace.store.embedded import EmbeddedS3
from headrace.tracking.logs import LogReader
from headrace.tracking.runs import Run

RESULTS = Path(__file__).parent / "results"
HEADRACE = [sys.executable, "-m", "headrace.cli"]
BUCKET = "cluster"
SAMPLES = 480
FIRST = """
import sys, time
open(sys.argv[1], "w").write(repr(time.time()))
"""
DECODING = """
import hashlib, json, os, time
from pathlib import Path
import torch.distributed as dist
import headrace as hr
dist.init_process_group("gloo")
def decode(sample):
    hashlib.pbkdf2_hmac("sha256", b"headrace", b"salt", 40_000)
    return sample
loader = hr.Dataset.open(os.environ["DATA"]).shuffle(seed=1).repeat(3).shard().map(decode, threads=1).batch(8).loader()
dist.barrier()
began, count = time.monotonic(), 0
for batch in loader:
    count += len(batch["__key__"])
took = time.monotonic() - began
Path(os.environ["HEADRACE_OUTPUTS"], f"rate-{dist.get_rank()}.json").write_text(json.dumps([count, took]))
dist.destroy_process_group()
"""
LOSSY = """
import json, os, time
from pathlib import Path
import torch.distributed as dist
import headrace as hr
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
outputs = Path(os.environ["HEADRACE_OUTPUTS"])
loader = hr.Dataset.open(os.environ["DATA"]).shuffle(seed=1).shard().batch(8 // world).loader()
seen, step = [], 0
if resume := os.environ.get("HEADRACE_RESUME"):
    parts = [json.loads(path.read_text()) for path in sorted(Path(resume).glob("part-*.json"))]
    seen = [key for part in parts[rank::world] for key in part["seen"]]
    step = parts[0]["step"]
    loader.load_state_dict(parts[0]["state"])
for batch in loader:
    seen += [str(key) for key in batch["__key__"]]
    step += 1
    print("step", step, time.time(), os.environ["HEADRACE_ATTEMPT"], flush=True)
    time.sleep(0.25)
    dist.barrier()
    if step % 5 == 0:
        folder = outputs / "checkpoints" / f"{step:04}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"part-{rank}.json").write_text(
            json.dumps({"seen": seen, "step": step, "state": loader.state_dict()}))
        dist.barrier()
        (folder / "COMMITTED").touch()
(outputs / f"seen-{rank}.json").write_text(json.dumps(seen))
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Place:
    """A cluster, a store, and a folder to work in."""

    cluster: LocalCluster
    store: Store
    home: Home
    folder: Path
    environment: Mapping[str, str]

    def headrace(self, name: str, script: str, *words: str, variables: Mapping[str, str] | None = None) -> float:
        """Seconds that a run of this id took, to its end."""
        began = time.monotonic()
        subprocess.run(self.command(name, script, *words), cwd=self.folder, check=True, stdout=subprocess.DEVNULL,
                       env={**self.environment, **(variables or {})}, stderr=subprocess.DEVNULL)  # fmt: skip
        return time.monotonic() - began

    def command(self, name: str, script: str, *words: str) -> list[str]:
        data = f"DATA=s3://{BUCKET}/data"
        return [*HEADRACE, "run", "-q", "--on", self.cluster.address, "--id", name, "--env", data, *words, "--",
                sys.executable, script]  # fmt: skip

    def outputs(self, name: str, beginning: str) -> list[Any]:
        prefix = f"{Run(self.home, name).prefix}outputs/{beginning}"
        return [json.loads(bytes(self.store.get(one.key).data)) for page in self.store.list(prefix) for one in page]


def submit(place: Place, turns: int) -> list[dict[str, Any]]:
    """Seconds to the first line, and to the end."""
    script, mark = place.folder / "first.py", place.folder / "first.txt"
    script.write_text(FIRST)
    ways: dict[str, Callable[[int], list[str]]] = {
        "headrace run --on": lambda turn: [*place.command(f"first-{turn}", str(script)), str(mark)],
        "ray job submit": lambda _turn: [
            sys.executable, "-m", "ray.scripts.scripts", "job", "submit", f"--address={place.cluster.dashboard}",
            f"--working-dir={place.folder}", "--", sys.executable, str(script), str(mark),
        ],
    }  # fmt: skip
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, words in ways.items():
            mark.unlink(missing_ok=True)
            began = time.time()
            subprocess.run(words(turn), cwd=place.folder, env=dict(place.environment), check=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
            if turn:  # the first of each warms the cluster
                found[name].append((float(mark.read_text()) - began, time.time() - began))
    medians = {name: tuple(median(one) for one in zip(*rows, strict=True)) for name, rows in found.items()}
    return [{"row": "submit", "who": name, "first_s": first, "end_s": end} for name, (first, end) in medians.items()]


def nodes(place: Place, turns: int) -> list[dict[str, Any]]:
    """Samples a second, of one node and of two together."""
    script = place.folder / "decoding.py"
    script.write_text(DECODING)
    found: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(turns):
        for count, rates in found.items():
            name = f"nodes-{count}-{turn}"
            place.headrace(name, str(script), "--nodes", str(count))
            rates.append(sum(seen / took for seen, took in place.outputs(name, "rate-")))
    one, two = median(found[1]), median(found[2])
    return [{"row": "nodes", "one": one, "two": two, "share": two / (2 * one)}]


def lost(place: Place, histories: int) -> list[dict[str, Any]]:
    """What became of each history."""
    script, chance = place.folder / "lossy.py", random.Random(7)
    script.write_text(LOSSY)
    rows: list[dict[str, Any]] = []
    for number in range(histories):
        name = f"lost-{number}"
        process = subprocess.Popen(place.command(name, str(script), "--workers", "1..2"), cwd=place.folder,
                                   env=dict(place.environment), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   text=True)  # fmt: skip
        assert process.stdout is not None
        first = chance.randrange(1, SAMPLES // 8 - 8)
        killed = 0.0
        for line in process.stdout:
            if not killed and " step " in line and int(line.split()[2]) >= first:
                time.sleep(chance.random())
                killed = time.time()
                chance.choice(place.cluster.nodes[-2:]).kill()
        code = process.wait()
        run = Run(place.home, name)
        lines = LogReader(place.store, f"{run.prefix}logs/").read()
        steps = [line.text.split() for line in lines if line.text.startswith("step ")]
        seen = Counter(key for part in place.outputs(name, "seen-") for key in part)
        after = min((float(at) for _, _, at, attempt in steps if attempt != "1"), default=float("nan"))
        rows.append({
            "row": "lost", "at_step": first, "code": code, "once": len(seen) == SAMPLES and set(seen.values()) == {1},
            "again_s": after - killed,
        })  # fmt: skip
        sys.stderr.write(f"{rows[-1]}\n")
        place.cluster.nodes[:] = [one for one in place.cluster.nodes if one.process.poll() is None]
        while len(place.cluster.nodes) < 2:
            place.cluster.add()
    return rows


def main() -> None:
    """All rows, or those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=["submit", "nodes", "lost", "pack"], action="append")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--histories", type=int, default=50)
    parser.add_argument("--pictures", type=int, default=14_000)
    told = parser.parse_args()
    wanted = told.only or ["submit", "nodes", "lost", "pack"]
    folder = Path(tempfile.mkdtemp(prefix="hr-bench-cluster-"))
    rows: list[dict[str, Any]] = []
    try:
        with EmbeddedS3(folder / "s3") as server:
            server.create_bucket(BUCKET)
            environment = {
                **os.environ, **server.variables(), "HEADRACE_HOME": f"s3://{BUCKET}/home", "HEADRACE_CACHE_SIZE": "0",
                "HEADRACE_RUN_STATE": str(folder / "runs"), "HEADRACE_RUN_CACHE": str(folder / "kept"),
            }  # fmt: skip
            if "pack" in wanted:  # on a cluster of its own
                store = open_store(f"s3://{BUCKET}", server.options())
                rows += pack(store, BUCKET, folder, environment, pictures=told.pictures, turns=told.turns)
            with LocalCluster(variables=environment, dashboard="submit" in wanted) as cluster:
                cluster.add()
                cluster.add()
                place = _place(cluster, server, folder, {**environment, **cluster.variables()})
                if "submit" in wanted:
                    rows += submit(place, told.turns)
                if "nodes" in wanted:
                    rows += nodes(place, told.turns)
                if "lost" in wanted:
                    rows += lost(place, told.histories)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _report(rows, wanted)


def _place(cluster: LocalCluster, server: EmbeddedS3, folder: Path, environment: Mapping[str, str]) -> Place:
    store = open_store(f"s3://{BUCKET}", server.options())
    for number in range(SAMPLES):
        store.put(f"data/{number:04}.bin", b"headrace" * 100)
    work = folder / "work"
    work.mkdir()
    os.environ.update(environment)
    settings = Settings.load()
    return Place(cluster, store, Home.of(Namespace.load(), settings), work, environment)


def _report(rows: list[dict[str, Any]], wanted: list[str]) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "cluster.json"
    kept = [row for row in json.loads(path.read_text())["rows"] if row["row"] not in wanted] if path.exists() else []
    every = sorted(kept + rows, key=lambda row: row["row"])
    now = datetime.datetime.now(datetime.UTC).date().isoformat()
    path.write_text(json.dumps({"date": now, "rows": every}, indent=1) + "\n")
    lines = ["# A cluster", "", f"{now}, Ray's own cluster on one machine, each node a CPU; `make bench-cluster`.", ""]
    lines += ["| row | figures |", "|---|---|"]
    for row in every:
        if row["row"] != "lost":
            lines.append(f"| {row['row']} | {', '.join(_figure(name, row[name]) for name in row if name != 'row')} |")
    if losses := [row for row in every if row["row"] == "lost"]:
        again = [row["again_s"] for row in losses]
        once = sum(row["once"] and row["code"] == 0 for row in losses)
        lines.append(
            f"| lost | {len(losses)} histories: each sample once in {once}; first step after the kill: median "
            f"{median(again):.1f} s, at most {max(again):.1f} s |"
        )
    text = "\n".join(lines) + "\n"
    (RESULTS / "cluster.md").write_text(text)
    sys.stdout.write(text)


def _figure(name: str, value: object) -> str:
    return f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"


if __name__ == "__main__":
    main()
