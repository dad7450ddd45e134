"""Random access against the loader, on the same objects: ``python benchmarks/access.py``

- *64 at once*: ``ds.at`` of 64 random places, one call after the other, against a shuffled loader with batches of 64;
  objects of 110 kB in SeaweedFS, without a cache and from one that holds them all.
- *one*: the median of ``ds[i]`` against one GET by the store's own client (``Store.get``), without a cache.

Turns are interleaved; medians. Results go to ``benchmarks/results/access.{md,json}``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.loader import Dataset
from headrace.namespace import Namespace
from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from report import machine

RESULTS = Path(__file__).parent / "results"
COUNT, SIZE, TOGETHER = 2000, 110_000, 64
SINGLE = 300


@dataclass(frozen=True)
class Row:
    """`ratio`: of rates (more is better) for many, of times (less is better) for one."""

    what: str
    ours: float
    other: float
    unit: str
    ratio: float
    must: str


def loader_rate(dataset: Dataset, fetcher: Fetcher, seconds: float) -> float:
    loader = dataset.shuffle(1).repeat().batch(TOGETHER).loader(fetcher=fetcher)
    batches = iter(loader)
    for _ in range(8):
        next(batches)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        count += len(next(batches)["__key__"])
    rate = count / (time.perf_counter() - began)
    loader.close()
    return rate


def access_rate(dataset: Dataset, fetcher: Fetcher, seconds: float, draw: random.Random) -> float:
    for _ in range(4):
        dataset.at([draw.randrange(COUNT) for _ in range(TOGETHER)], fetcher=fetcher)
    began, count = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        count += len(dataset.at([draw.randrange(COUNT) for _ in range(TOGETHER)], fetcher=fetcher))
    return count / (time.perf_counter() - began)


def many(dataset: Dataset, folder: str, repetitions: int, seconds: float) -> Iterator[Row]:
    draw = random.Random(2)
    for name, size in (("cold", 0), ("warm", 2 << 30)):
        fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=f"{folder}/cache-{name}", size=size)))
        if size:
            fetcher.insist()
            for _ in dataset.batch(TOGETHER).loader(fetcher=fetcher):
                pass
            fetcher.settle()
        rates = [
            (access_rate(dataset, fetcher, seconds, draw), loader_rate(dataset, fetcher, seconds))
            for _ in range(repetitions)
        ]
        ours, other = (median(values) for values in zip(*rates, strict=True))
        yield Row(f"64 at once, {name}, against the loader", ours, other, "samples/s", ours / other, "≥ 0.9")
        fetcher.close()


def one(dataset: Dataset, namespace: Namespace, folder: str) -> Row:
    fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=f"{folder}/cache-one", size=0)))
    at = namespace.resolve("/data/000000.bin")
    draw = random.Random(3)
    ours: list[float] = []
    other: list[float] = []
    for turn in range(SINGLE + 20):
        place = draw.randrange(COUNT)
        began = time.perf_counter()
        dataset.at([place], fetcher=fetcher)
        between = time.perf_counter()
        at.store.get(f"data/{place:06d}.bin")
        if turn >= 20:
            ours.append(between - began)
            other.append(time.perf_counter() - between)
    fetcher.close()
    mine, get = median(ours) * 1e3, median(other) * 1e3
    return Row("one sample, against one GET", mine, get, "ms", mine / get, "≤ 1.3")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--window", type=float, default=3.0, help="seconds of each turn")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder, EmbeddedS3(f"{folder}/s3") as server:
        server.create_bucket("access")
        store = open_store("s3://access", server.options())
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: store.put(f"data/{number:06d}.bin", os.urandom(SIZE)), range(COUNT)))
        secrets = server.options()
        namespace = Namespace(Settings())
        namespace.attach(
            "/", "s3://access", endpoint=server.endpoint, access_key_id=secrets.access_key_id,
            secret_access_key=secrets.secret_access_key,
        )  # fmt: skip
        dataset = Dataset.open("/data", by="object", namespace=namespace)
        turns = many(dataset, folder, options.repetitions, options.window)
        rows = list(itertools.chain(turns, [one(dataset, namespace, folder)]))
    here = machine()
    lines = [f"{here['cores']} cores ({here['cpu']}), Linux {here['kernel']}, Python {here['python']}.", ""]
    lines += ["| what | headrace | other | ratio | must be |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.what} | {row.ours:,.2f} {row.unit} | {row.other:,.2f} {row.unit} | {row.ratio:.2f} | {row.must} |"
        for row in rows
    ]
    print("\n".join(lines))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "access.md").write_text("\n".join(["# Random access", "", *lines, ""]))
    (RESULTS / "access.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
