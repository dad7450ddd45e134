"""Mosaic's `StreamingDataset` over its own format, in process or in a DataLoader as its documentation says.

``batch_size`` given, which its sharding wants; not shuffled; samples are dicts of bytes, collated to lists. It
downloads through boto3 from the same server to this run's cache folder: empty in the first epoch, full in the second,
which a primed run reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from torch.utils.data import DataLoader

from job import BUCKET, Job
from meter import Batch
from peers.mosaic import without_torchvision
from peers.torch_loader import of_dicts


def batches(job: Job) -> Iterator[Batch]:
    without_torchvision()
    from streaming import StreamingDataset

    os.environ["S3_ENDPOINT_URL"] = job.endpoint
    workers = int(job.options.get("workers", 0))
    dataset = StreamingDataset(
        remote=f"s3://{BUCKET}/{job.dataset}-mds", local=os.path.join(os.environ["HEADRACE_CACHE_DIR"], "mds"),
        batch_size=job.batch, shuffle=False, num_canonical_nodes=1, predownload=64 * job.batch,
    )  # fmt: skip
    return of_dicts(DataLoader, dataset, job, workers)
