"""headrace over tar shards as a user writes it: open the prefix of the shards, shuffle or not, batch, loader.

``order``: ``sequential`` (as they lie), ``blocked`` (``shuffle(block="4MB")``) or ``global`` (``shuffle()``). Nothing
is cached but the index of the shards, whose making comes before the window measured; rows of its own time it.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace import Dataset
from job import BUCKET, Job
from meter import Batch


def batches(job: Job) -> Iterator[Batch]:
    dataset = Dataset.open(f"s3://{BUCKET}/{job.dataset}-shards/")
    order = job.options["order"]
    if order != "sequential":
        dataset = dataset.shuffle(job.seed, block="4MB" if order == "blocked" else None)
    for batch in dataset.repeat().batch(job.batch).loader():
        yield len(batch["__key__"]), [part for name in batch if not name.startswith("__") for part in batch[name]]
