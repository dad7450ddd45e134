"""webdataset's `ShardWriter` with s5cmd around it: the prefix is copied to tmpfs, packed, and the tars copied back.

s5cmd works with as many connections as it does by default (256 workers). Nothing is verified.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import uuid
import warnings
from pathlib import Path

from job import BUCKET, Job, Result
from meter import cpu_seconds


def run(job: Job) -> Result:
    warnings.simplefilter("ignore")
    from webdataset.writer import ShardWriter

    s5cmd = shutil.which("s5cmd", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert s5cmd, "s5cmd is not installed"
    copy = [s5cmd, "--endpoint-url", job.endpoint, "--log", "error", "cp"]
    pictures, shards = Path(job.scratch, "pictures"), Path(job.scratch, "shards")
    shards.mkdir()
    cpu, began = cpu_seconds(), time.perf_counter()
    subprocess.run([*copy, f"s3://{BUCKET}/{job.dataset}/*", f"{pictures}/"], check=True, stdout=subprocess.DEVNULL)
    count = 0
    with ShardWriter(f"{shards}/%06d.tar", maxcount=1_000_000, maxsize=100_000_000, verbose=0) as writer:
        for path in sorted(pictures.rglob("*.png")):
            writer.write({"__key__": str(path.relative_to(pictures).with_suffix("")), "png": path.read_bytes()})
            count += 1
    target = f"s3://{BUCKET}/packed-{uuid.uuid4().hex}/"
    subprocess.run([*copy, f"{shards}/*", target], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    if count != job.options["expect"]:
        raise SystemExit(f"{count} pictures of {job.options['expect']}")
    return Result(count, seconds, job.options["bytes"], cpu_seconds() - cpu)
