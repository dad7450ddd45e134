"""litdata's `StreamingDataset` with its `TokensLoader`, in its `StreamingDataLoader`, as its README shows it.

``workers`` 0: in this process. ``local``: its chunks are on the disk; else they come through its own S3 client from the
same server to this run's cache folder: empty in the first epoch, full in the second, which a primed run reads.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from typing import Any

from litdata import StreamingDataLoader, StreamingDataset, TokensLoader
from litdata.streaming import downloader

import token_data
from job import BUCKET, REGION, Job, Result
from token_meter import measure

_PREFETCH = 8  # batches a worker; the default is 2


def run(job: Job) -> Result:
    warnings.simplefilter("ignore")
    # its obstore client refuses plain HTTP and has no option for it; TLS would only make it slower
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # type: ignore[typeddict-unknown-key]
    opened, workers = time.perf_counter(), int(job.options.get("workers", 0))
    local = job.options.get("local")
    where: dict[str, Any] = {"input_dir": f"{job.root}/bench/tokens-litdata"}
    if not local:
        where = {
            "input_dir": f"s3://{BUCKET}/tokens-litdata",
            "cache_dir": os.path.join(os.environ["HEADRACE_CACHE_DIR"], "litdata"),
            "storage_options": {"endpoint_url": job.endpoint, "region_name": REGION},
        }
    dataset = StreamingDataset(
        **where, item_loader=TokensLoader(block_size=token_data.BLOCK), shuffle=job.options.get("order") == "global",
        drop_last=False, max_cache_size="10GB",
    )  # fmt: skip
    loader = StreamingDataLoader(
        dataset, batch_size=job.batch, num_workers=workers, prefetch_factor=_PREFETCH if workers else None
    )
    return measure(_tokens(loader, job), job, opened)


def _tokens(loader: Any, job: Job) -> Iterator[Any]:
    while True:
        yield from loader
        if job.mode == "epoch":
            return
