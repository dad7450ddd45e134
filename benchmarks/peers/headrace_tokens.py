"""headrace over flat files as a user writes it: open, blocks, shuffle or not, batch, loader.

``local``: from the disk (``file://``) rather than the store. ``order``: ``sequential``, ``blocked`` or ``global``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import token_data
from headrace import Dataset
from job import BUCKET, Job, Result
from token_meter import measure


def run(job: Job) -> Result:
    opened = time.perf_counter()
    where = f"file://{job.root}/bench" if job.options.get("local") else f"s3://{BUCKET}"
    dataset = Dataset.open(f"{where}/tokens/", format="tokens", dtype="uint16").blocks(token_data.BLOCK)
    order = job.options.get("order", "sequential")
    if order != "sequential":
        dataset = dataset.shuffle(job.seed, block="4MB" if order == "blocked" else None)
    if job.mode == "steady":
        dataset = dataset.repeat()
    return measure(_tokens(dataset, job), job, opened)


def _tokens(dataset: Dataset, job: Job) -> Iterator[Any]:
    for batch in dataset.batch(job.batch).loader():
        yield batch["tokens"]
