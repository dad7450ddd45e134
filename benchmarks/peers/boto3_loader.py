"""boto3 in a PyTorch DataLoader: a map-style dataset in worker processes, shuffled, each worker with a client of its
own (made at its first sample; clients must not be shared over a fork), one `get_object` after another in each.

Workers are kept between epochs, each 8 batches ahead (the default is 2); `pin_memory` is off, there is no GPU to copy
to. Nothing is decoded: ``collate=tensors`` wraps the bytes as uint8 tensors, which cross by shared memory;
``collate=bytes`` sends them pickled through a pipe. Which of the two, and how many workers, is fastest depends on the
machine: all of them run, and the best counts. Checksums, retries and keep-alive as for boto3 in threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
from botocore.config import Config

from data import samples
from job import BUCKET, Job
from meter import Batch
from peers.torch_loader import through_loader


class Objects:
    """Map dataset: a sample is the bytes of its objects."""

    def __init__(self, job: Job) -> None:
        self.keys = [[part.key for part in parts] for parts in samples(job.root, job.dataset)]
        self.client: Any = None

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> list[bytes]:
        if self.client is None:
            self.client = _client()
        return [self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in self.keys[index]]


def _client() -> Any:
    config = Config(
        tcp_keepalive=True,
        response_checksum_validation="when_required",
        request_checksum_calculation="when_required",
        retries={"max_attempts": 3, "mode": "standard"},
        s3={"addressing_style": "path"},
    )
    return boto3.client("s3", config=config)


def batches(job: Job) -> Iterator[Batch]:
    as_tensors = job.options.get("collate", "tensors") == "tensors"
    return through_loader(Objects(job), job, int(job.options.get("workers", 2)), as_tensors=as_tensors)
