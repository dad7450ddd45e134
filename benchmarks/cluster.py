"""What a cluster costs and what a lost node costs: ``python benchmarks/cluster.py``, in an environment that has Ray.

The cluster is Ray's own, its nodes are processes of this machine with a CPU each, over loopback, with SeaweedFS as the
store.

- *submit*: from the command to the first line of the script, against ``ray job submit`` of the same script, in turns.
- *nodes*: samples a second of two nodes together against twice those of one, when decoding is the limit.
- *lost*: histories in which a node is killed at a random moment: whether each sample was seen once, and how long after
  the kill the first step came.
- *peers*: GETs that reach the store in a second epoch of data twice as large as one node's cache, on two nodes that do
  not share their caches, and that do.
- *record*: what logging costs each of 32 ranks, and how often the bucket is asked: see ``cluster_record.py``.
- *pack*: pictures packed by two nodes of a core each, against one machine of one core: see ``cluster_pack.py``.

Results go to ``benchmarks/results/cluster.{md,json}``.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from cluster_pack import pack
from cluster_record import record
from headrace.base.settings import Settings
from headrace.cluster.local import LocalCluster
from headrace.namespace import Namespace
from headrace.namespace.home import Home
from headrace.store import Store, open_store
from headrace.store.embedded import EmbeddedS3
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.tracking.logs import LogReader
from headrace.tracking.runs import Run

RESULTS = Path(__file__).parent / "results"
HEADRACE = [sys.executable, "-m", "headrace.cli"]
BUCKET = "cluster"
ROWS = ["submit", "nodes", "lost", "peers", "pack", "record"]
SAMPLES = 480
HISTORY_S = 240.0
"""A history that takes longer has failed."""
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
TWICE = """
import os
import torch.distributed as dist
import headrace as hr
from headrace.fetch import default_fetcher
dist.init_process_group("gloo")
for epoch in (1, 2):
    for batch in hr.Dataset.open(os.environ["DATA"]).shuffle(seed=epoch).shard().batch(8).loader():
        pass
    default_fetcher().settle()
    dist.barrier()
    if dist.get_rank() == 0:
        hr.Namespace.load().exists(f"{os.environ['DATA']}/after-{epoch}")
    dist.barrier()
dist.destroy_process_group()
"""
SHARED_BYTES, SHARED_CHARGE = 20_000, 6 * 4096
"""Of a sample of *peers*, and what a cache counts for it."""


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


def lost(place: Place, histories: int, seed: int) -> list[dict[str, Any]]:
    """What became of each history. One that fails is told by its seed, and the next begins."""
    (place.folder / "lossy.py").write_text(LOSSY)
    rows: list[dict[str, Any]] = []
    for number in range(seed, seed + histories):
        began = time.monotonic()
        try:
            row = _history(place, number)
        except Exception as error:  # the others count all the same
            row = {"once": False, "again_s": float("nan"), "error": f"{type(error).__name__}: {error}"[:300]}
            _give_up(place, f"lost-{number}")
        rows.append({"row": "lost", "seed": number, **row, "took_s": time.monotonic() - began})
        _mend(place)
        good = sum(one["once"] for one in rows)
        again = "" if rows[-1]["once"] else f"; again: --only lost --histories 1 --seed {number}"
        sys.stderr.write(f"{len(rows)} of {histories}, {good} good: {json.dumps(rows[-1])}{again}\n")
        sys.stderr.flush()
    return rows


def _history(place: Place, seed: int) -> dict[str, Any]:
    """A run on two nodes, of which one is killed at a moment that `seed` says."""
    chance = random.Random(seed)
    name, first = f"lost-{seed}", chance.randrange(1, SAMPLES // 8 - 8)
    rest, victim, killed = chance.random(), chance.randrange(2), 0.0
    process = subprocess.Popen(place.command(name, str(place.folder / "lossy.py"), "--workers", "1..2"),
                               cwd=place.folder, env=dict(place.environment), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)  # fmt: skip
    late = threading.Timer(HISTORY_S, process.kill)
    late.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if not killed and " step " in line and int(line.split()[2]) >= first:
                time.sleep(rest)
                killed = time.time()
                place.cluster.nodes[victim].kill()
        code = process.wait()
    finally:
        late.cancel()
        process.kill()
        process.wait()
    if not killed:
        raise RuntimeError(f"it ended ({code}) before its step {first}")
    run = Run(place.home, name)
    lines = LogReader(place.store, f"{run.prefix}logs/").read()
    steps = [line.text.split() for line in lines if line.text.startswith("step ")]
    seen = Counter(key for part in place.outputs(name, "seen-") for key in part)
    after = min((float(at) for _, _, at, attempt in steps if attempt != "1"), default=float("nan"))
    once = code == 0 and len(seen) == SAMPLES and set(seen.values()) == {1}
    return {"at_step": first, "code": code, "once": once, "again_s": after - killed}


def _give_up(place: Place, name: str) -> None:
    """Nothing of a history that failed is in the next one's way."""
    subprocess.run([*HEADRACE, "stop", "--grace", "1s", name], env=dict(place.environment), check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    for node in place.cluster.nodes:
        node.kill()


def _mend(place: Place) -> None:
    """The cluster has two nodes again."""
    place.cluster.nodes[:] = [one for one in place.cluster.nodes if one.process.poll() is None]
    while len(place.cluster.nodes) < 2:
        place.cluster.add()


def peers(server: EmbeddedS3, folder: Path, environment: Mapping[str, str], samples: int) -> list[dict[str, Any]]:
    """GETs of samples in the second epoch, on a cluster of its own whose nodes have small caches."""
    store = open_store(f"s3://{BUCKET}", server.options())
    for number in range(samples):
        store.put(f"shared/{number:05}.bin", os.urandom(SHARED_BYTES))
    script = folder / "twice.py"
    script.write_text(TWICE)
    where = urlsplit(environment["AWS_ENDPOINT_URL_S3"])
    found: dict[str, int] = {}
    with FaultServer(Upstream(where.hostname or "", where.port or 0)) as between:
        counted = {**environment, "AWS_ENDPOINT_URL_S3": between.endpoint}
        with LocalCluster(variables=counted) as cluster:
            caches = [folder / "caches" / str(number) for number in range(2)]
            for cache in caches:
                cluster.add(1, {
                    "HEADRACE_CACHE_DIR": str(cache), "HEADRACE_CACHE_MIN_FREE": "0",
                    "HEADRACE_CACHE_SIZE": str(samples * SHARED_CHARGE // 2),
                })  # fmt: skip
            for way in ("false", "true"):
                shutil.rmtree(folder / "caches", ignore_errors=True)
                words = [*HEADRACE, "run", "-q", "--on", cluster.address, "--nodes", "2", "--id", f"peers-{way}",
                         "--env", f"DATA=s3://{BUCKET}/shared", "--set", f"cluster.peers={way}", "--",
                         sys.executable, str(script)]  # fmt: skip
                begun = len(between.seen)
                subprocess.run(words, cwd=folder, check=True, env={**counted, **cluster.variables()})
                seen = between.seen[begun:]
                first = next(at for at, one in enumerate(seen) if one.path.endswith("shared/after-1"))
                found[way] = sum(one.operation == "get" and "/shared/" in one.path for one in seen[first:])
    without, shared = found["false"], found["true"]
    return [{"row": "peers", "samples": samples, "without": without, "with": shared, "share": shared / without}]


def main() -> None:
    """All rows, or those that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=ROWS, action="append")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--histories", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="of the first history")
    parser.add_argument("--samples", type=int, default=4000, help="of `peers`")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a turn of `record`")
    parser.add_argument("--pictures", type=int, default=14_000, help="of `pack`")
    told = parser.parse_args()
    wanted = told.only or ROWS
    folder = Path(tempfile.mkdtemp(prefix="hr-bench-cluster-"))
    rows: list[dict[str, Any]] = []
    try:
        with EmbeddedS3(folder / "s3") as server:
            server.create_bucket(BUCKET)
            environment = {
                **os.environ, **server.variables(), "HEADRACE_HOME": f"s3://{BUCKET}/home", "HEADRACE_CACHE_SIZE": "0",
                "HEADRACE_RUN_STATE": str(folder / "runs"), "HEADRACE_RUN_CACHE": str(folder / "kept"),
            }  # fmt: skip
            if "peers" in wanted:
                rows += peers(server, folder, environment, told.samples)
            if set(wanted) - {"peers", "pack", "record"}:
                with LocalCluster(variables=environment, dashboard="submit" in wanted) as cluster:
                    cluster.add()
                    cluster.add()
                    place = _place(cluster, server, folder, {**environment, **cluster.variables()})
                    if "submit" in wanted:
                        rows += submit(place, told.turns)
                    if "nodes" in wanted:
                        rows += nodes(place, told.turns)
                    if "lost" in wanted:
                        rows += lost(place, told.histories, told.seed)
            if "record" in wanted:
                store = open_store(f"s3://{BUCKET}", server.options())
                rows.append(record(store, BUCKET, folder, environment, told.seconds))
            if "pack" in wanted:
                store = open_store(f"s3://{BUCKET}", server.options())
                rows += pack(store, BUCKET, folder, environment, pictures=told.pictures, turns=told.turns)
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
    lines += _losses([row for row in every if row["row"] == "lost"])
    text = "\n".join(lines) + "\n"
    (RESULTS / "cluster.md").write_text(text)
    sys.stdout.write(text)


def _losses(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    again = sorted(row["again_s"] for row in rows if not math.isnan(row["again_s"]))
    good, failed = sum(row["once"] for row in rows), [row.get("seed") for row in rows if not row["once"]]
    late = [row.get("seed") for row in rows if row["again_s"] > 30]
    lines = ["", "## A node killed at a random moment", "", "| | |", "|---|---|", f"| histories | {len(rows)} |",
             f"| each sample once | {good}{f'; not with seeds {failed}' if failed else ''} |"]  # fmt: skip
    if again:
        lines.append(f"| first step after the kill, median | {median(again):.1f} s |")
        lines.append(f"| worst | {again[-1]:.1f} s{f'; over 30 s with seeds {late}' if late else ''} |")
    took = [row["took_s"] for row in rows if "took_s" in row]
    return [*lines, *([f"| a history takes, median | {median(took):.0f} s |"] if took else [])]


def _figure(name: str, value: object) -> str:
    return f"{name} {value:.2f}" if isinstance(value, float) else f"{name} {value}"


if __name__ == "__main__":
    main()
