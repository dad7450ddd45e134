"""The row `pack` of ``cluster.py``: pictures packed by two nodes of a core each, against one machine of one core.

Both are told to pack a few first, so that connections are there and modules imported. `per_core`: pictures a second and
core of the cluster over those of the machine. The store shares the two cores, and so has one to itself only where the
one machine packs: `per_cpu` compares pictures by processor time that who packs has spent, the caller and all of
the nodes' processes in it, and so does not depend on that.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from headrace.cluster.local import LocalCluster
from headrace.store import Store

PICTURES = Path("/usr/share/games/wesnoth/1.16")
"""Of Debian's wesnoth-1.16-data: 14,000 PNGs. Without it: noise of like sizes."""
SHARD = "8MB"
PACK = """
import json, sys, time
from contextlib import ExitStack
from headrace.base.settings import Settings
from headrace.base.units import parse_bytes
from headrace.pack import PackOptions, pack

on, bucket, size, *turns = sys.argv[1:]
options = PackOptions(shard_size=parse_bytes(size, name="size"))
with ExitStack() as stack:
    hands = None
    if on:
        from headrace.cluster.data.packing import Nodes
        from headrace.cluster.pieces import Options, workers
        hands = Nodes(stack.enter_context(workers(on, Settings.load())), Options())
    few = PackOptions(shard_size=2048)
    pack(f"{bucket}/few", f"{bucket}/packed/{turns[0]}-few", few, hands=hands)
    for turn in turns:
        began = time.monotonic()
        packed = pack(f"{bucket}/pictures", f"{bucket}/packed/{turn}", options, hands=hands)
        print(json.dumps([packed.samples, packed.shards, time.monotonic() - began]), flush=True)
"""


def fill(store: Store, count: int) -> None:
    """Put `count` pictures into ``pictures/``, and a few into ``few/``."""
    found = sorted(PICTURES.rglob("*.png"))[:count]
    chance = random.Random(14)
    data = [one.read_bytes() for one in found] or [
        chance.randbytes(round(chance.lognormvariate(8.6, 1.2))) for _ in range(count)
    ]
    with ThreadPoolExecutor(8) as pool:
        names = [f"pictures/{number:05}.png" for number in range(len(data))]
        names += [f"few/{number}.png" for number in range(16)]
        list(pool.map(store.put, names, [*data, *data[:16]]))


@contextmanager
def on_core(core: int) -> Iterator[None]:
    """What is started meanwhile has one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pack(
    store: Store, bucket: str, folder: Path, environment: Mapping[str, str], *, pictures: int, turns: int
) -> list[dict[str, Any]]:
    """Pictures a second and core, of one machine and of a cluster of its own, whose nodes have a core each."""
    fill(store, pictures)
    script = folder / "packing.py"
    script.write_text(PACK)

    def run(who: str, on: str) -> tuple[list[tuple[int, int, float]], float]:
        before = _spent(cluster)
        words = [sys.executable, str(script), on, f"s3://{bucket}", SHARD, *(f"{who}-{turn}" for turn in range(turns))]
        said = subprocess.run(words, env={**environment, **cluster.variables()}, cwd=folder, check=True,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
        return [json.loads(line) for line in said.stdout.splitlines()], _spent(cluster) - before

    with LocalCluster(variables=environment) as cluster:
        with on_core(0):
            alone, alone_cpu = run("one", "")
        for core in range(2):
            with on_core(core):
                cluster.add()
        together, together_cpu = run("two", cluster.address)
    same = all(_bytes(store, f"packed/one-{turn}/") == _bytes(store, f"packed/two-{turn}/") for turn in range(turns))
    samples, shards, _ = together[0]
    one, two = (samples / median(took for _, _, took in rows) for rows in (alone, together))
    return [{"row": "pack", "pictures": samples, "shards": shards, "one": one, "two": two, "per_core": two / (2 * one),
             "per_cpu": alone_cpu / together_cpu, "byte_equal": same}]  # fmt: skip


def _spent(cluster: LocalCluster) -> float:
    """Seconds of processor time of what has ended below this process, and of the nodes."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime
    for node in cluster.nodes:
        tree = psutil.Process(node.process.pid)
        for one in (tree, *tree.children(recursive=True)):
            total += sum(one.cpu_times()[:4])  # its children that have ended among it
    return total


def _bytes(store: Store, prefix: str) -> dict[str, bytes]:
    found = [info.key for page in store.list(prefix) for info in page]
    return {key.removeprefix(prefix): bytes(store.get(key).data) for key in found}
