"""WebDataset over tar shards of the same samples, by HTTP from the same server (its own curl reader).

``workers`` 0: in this process; otherwise in a DataLoader, batched in the workers as its documentation advises. Shards
are shuffled, samples within a shard are not (a shuffle buffer of 4.2 MB samples would only cost it memory). Nothing is
decoded; in workers the parts become tensors so that they cross by shared memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from webdataset.compat import WebDataset, WebLoader

from data import shards
from job import BUCKET, Job
from meter import Batch
from peers.torch_loader import PREFETCH, tensors


def _parts(sample: dict[str, Any]) -> list[bytes]:
    return [value for name, value in sample.items() if not name.startswith("__")]


def batches(job: Job) -> Iterator[Batch]:
    warnings.simplefilter("ignore")
    urls = [f"{job.endpoint}/{BUCKET}/{name}" for name in shards(job.root, job.dataset)]
    workers = int(job.options.get("workers", 0))
    dataset = WebDataset(urls, shardshuffle=len(urls), empty_check=False).map(_parts)
    dataset = dataset.batched(job.batch, collation_fn=tensors if workers else list)
    stream: Any = dataset
    if workers:
        stream = WebLoader(
            dataset, batch_size=None, num_workers=workers, prefetch_factor=PREFETCH, persistent_workers=True
        )
    while True:
        for batch in stream:
            yield len(batch), [part for parts in batch for part in parts]
        if job.mode == "epoch":
            return
