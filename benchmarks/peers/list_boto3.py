"""boto3's paginator over ListObjectsV2 with pages of 1,000, collecting key, size, ETag and time of every object."""

from __future__ import annotations

import time

import boto3
from botocore.config import Config

from job import BUCKET, Job, Result
from meter import cpu_seconds


def run(job: Job) -> Result:
    cpu, began = cpu_seconds(), time.perf_counter()
    client = boto3.client("s3", config=Config(s3={"addressing_style": "path"}))
    found: list[tuple[str, int, str, object]] = []
    first = 0.0
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{job.dataset}/"):
        first = first or time.perf_counter() - began
        found += [(o["Key"], o["Size"], o["ETag"], o["LastModified"]) for o in page.get("Contents", [])]
    seconds = time.perf_counter() - began
    if len(found) != job.options["expect"]:
        raise SystemExit(f"listed {len(found)} objects of {job.options['expect']}")
    return Result(len(found), seconds, sum(size for _, size, _, _ in found), cpu_seconds() - cpu, ttfb=first)
