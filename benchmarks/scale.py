"""Does the cost stay flat as the list grows? Manifests of 10k, 1M and 10M objects: open time, memory, specs a second.

    python benchmarks/scale.py [--rows 10000,1000000,10000000] [--by stem] [--keep FOLDER] [--json FILE]

Each size is generated once (`generate`, also for other benchmarks), then opened in a fresh process, twice: the first
opening downloads the manifest from a ``file://`` home and builds the node's index, the second finds it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.manifest import MANIFEST_SCHEMA, Digest, ManifestWriter, versioned
from headrace.formats.open_options import OpenOptions
from headrace.formats.opening_targets import open_source
from headrace.namespace import Namespace

NAME, VERSION = "scale", "v1"
_STEP = 1 << 16


def rows_of(count: int) -> Iterator[pa.RecordBatch]:
    """`count` objects, two to a sample, 1,300 samples to a folder, in key order; each with an MD5-like ETag."""
    random = np.random.default_rng(count)
    for start in range(0, count, _STEP):
        number = np.arange(start, min(start + _STEP, count))
        suffix = ("image", "label")
        keys = [f"n{n // 2600:08d}/n{n // 2600:08d}_{n // 2:09d}.{suffix[n % 2]}" for n in number.tolist()]
        tags = random.bytes(16 * len(keys)).hex()
        yield pa.record_batch(
            [
                keys,
                np.where(number % 2, 2_000, 108_000),
                [tags[i : i + 32] for i in range(0, len(tags), 32)],
                pa.nulls(len(keys), pa.string()),
                np.full(len(keys), 1_700_000_000_000_000),
            ],
            schema=MANIFEST_SCHEMA,
        )


def generate(home: Path, count: int, source: str) -> str:
    """A snapshot of `count` objects that lie nowhere, in a ``file://`` home. Returns its name, ready to open."""
    name = f"{NAME}-{count}"
    folder = home / "datasets" / name / VERSION
    if not (folder / "snapshot.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        digest = Digest()
        with ManifestWriter(str(folder / "manifest.parquet")) as writer:
            for batch in rows_of(count):
                writer.add(batch)
                digest.update(versioned(batch))
        marker = {
            "name": name,
            "version": VERSION,
            "created": "2026-01-01T00:00:00.000000Z",
            "source": source,
            "path": None,
            "objects": digest.objects,
            "bytes": digest.bytes,
            "digest": digest.hexdigest(),
            "manifest": "manifest.parquet",
            "manifest_bytes": (folder / "manifest.parquet").stat().st_size,
            "parents": [],
            "format": 1,
        }
        (folder / "snapshot.json").write_text(json.dumps(marker, indent=1))
    return f"{name}@{VERSION}"


def measure(home: str, cache: str, target: str, by: str) -> dict[str, Any]:
    """Open `target` in this process and read specs in random order."""
    settings = Settings(home=f"file://{home}", cache=CacheSettings(dir=cache))
    namespace = Namespace.load(settings)
    before = _resident()
    began = time.perf_counter()
    index = open_source(target, OpenOptions(by=by), namespace=namespace, settings=settings)
    opened = time.perf_counter() - began
    began = time.perf_counter()
    index.specs(np.arange(256))
    first = time.perf_counter() - began
    after_first = _resident()
    random = np.random.default_rng(7)
    chunks = [random.integers(0, len(index), 256) for _ in range(400)]
    rates: list[float] = []
    for part in range(0, len(chunks), 100):
        began = time.perf_counter()
        for rows in chunks[part : part + 100]:
            index.specs(rows)
        rates.append((time.perf_counter() - began) / 25_600 * 1e6)
    return {
        "samples": len(index),
        "open_s": round(opened, 3),
        "first_specs_s": round(first, 4),
        "us_a_sample": round(float(np.median(rates)), 2),
        "rss_before_mb": before,
        "rss_first_batch_mb": after_first,
        "rss_after_mb": _resident(),
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="10000,1000000,10000000")
    parser.add_argument("--by", default="stem")
    parser.add_argument("--keep", type=Path, help="keep generated manifests here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one)))
        return
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-scale-") as scratch:
        home = args.keep or Path(scratch) / "home"
        for count in (int(text) for text in args.rows.split(",")):
            target = generate(home, count, f"file://{scratch}/objects")
            for opening in ("first", "again"):
                command = [sys.executable, __file__, "--one", str(home), f"{scratch}/cache", target, args.by]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                results.append({"objects": count, "opening": opening, **json.loads(done.stdout)})
                print(results[-1], flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
