"""How fast shards are indexed: every run on an empty shelf, the whole set once. Bytes are those of the shards."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import headrace.formats.opening_targets
import headrace.store.backends.s3  # noqa: F401  with all that it needs: nobody's imports are counted
from data import shards
from headrace import Dataset
from job import BUCKET, Job, Result
from meter import cpu_seconds


def run(job: Job) -> Result:
    size = sum((Path(job.root) / BUCKET / name).stat().st_size for name in shards(job.root, job.dataset))
    with tempfile.TemporaryDirectory() as shelf:
        os.environ["HEADRACE_CACHE_DIR"] = shelf
        cpu, began = cpu_seconds(), time.perf_counter()
        count = len(Dataset.open(f"s3://{BUCKET}/{job.dataset}-shards/"))
        seconds = time.perf_counter() - began
        return Result(count, seconds, size, cpu_seconds() - cpu, notes=f"{size / seconds / 1e6:,.0f} MB/s of shards")
