"""boto3 in threads: one client shared by all (clients are thread-safe), `max_pool_connections` raised to the number of
threads as its guide on configuration advises, payload checksums only where required, TCP keep-alive."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
from botocore.config import Config

from job import BUCKET, Job
from meter import Batch
from peers.pool import read_ahead


def batches(job: Job) -> Iterator[Batch]:
    threads = int(job.options.get("threads", 16))
    config = Config(
        max_pool_connections=threads,
        tcp_keepalive=True,
        response_checksum_validation="when_required",
        request_checksum_calculation="when_required",
        retries={"max_attempts": 3, "mode": "standard"},
        s3={"addressing_style": "path"},
    )
    client = boto3.client("s3", config=config)
    return read_ahead(job, lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(), threads)
