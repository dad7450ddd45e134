"""Mosaic's `StreamingDataset` of token blocks, in process or in a DataLoader as its documentation says.

A block is a record, an ``ndarray`` of uint16. ``batch_size`` given, which its sharding wants. ``local``: its shards are
on the disk; else it downloads through boto3 from the same server to this run's cache folder: empty in the first epoch,
full in the second, which a primed run reads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from job import BUCKET, Job, Result
from peers.mosaic import without_torchvision
from token_meter import measure

_PREFETCH = 8  # batches a worker; the default is 2


def run(job: Job) -> Result:
    without_torchvision()
    from streaming import StreamingDataset

    os.environ["S3_ENDPOINT_URL"] = job.endpoint
    opened, workers = time.perf_counter(), int(job.options.get("workers", 0))
    where: dict[str, Any] = {"local": f"{job.root}/bench/tokens-mds"}
    if not job.options.get("local"):
        cache = os.path.join(os.environ["HEADRACE_CACHE_DIR"], "mds")
        where = {"remote": f"s3://{BUCKET}/tokens-mds", "local": cache}
    dataset = StreamingDataset(
        **where, batch_size=job.batch, shuffle=job.options.get("order") == "global", shuffle_seed=job.seed,
        num_canonical_nodes=1, predownload=64 * job.batch,
    )  # fmt: skip
    loader = DataLoader(
        dataset, batch_size=job.batch, num_workers=workers, prefetch_factor=_PREFETCH if workers else None,
        persistent_workers=workers > 0,
    )  # fmt: skip
    return measure(_tokens(loader, job), job, opened)


def _tokens(loader: Any, job: Job) -> Iterator[Any]:
    while True:
        for batch in loader:
            yield batch["tokens"]
        if job.mode == "epoch":
            return
