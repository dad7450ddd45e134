"""litdata's `StreamingDataset` over its own format, in its `StreamingDataLoader`, as its README advises.

Not shuffled; ``workers`` 0: in this process. Its chunks come through its own S3 client (boto3) from the same server to
this run's cache folder: empty in the first epoch, full in the second, which a primed run reads. ``stack``: batches as
its loader makes them if told nothing (`default_collate`): one tensor a field, as headrace stacks arrays; otherwise the
samples' arrays as they are, which saves a copy.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator

from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming import downloader

from job import BUCKET, REGION, Job
from meter import Batch
from peers.torch_loader import of_dicts


def batches(job: Job) -> Iterator[Batch]:
    warnings.simplefilter("ignore")
    # its obstore client refuses plain HTTP and has no option for it; TLS would only make it slower
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # type: ignore[typeddict-unknown-key]
    workers = int(job.options.get("workers", 0))
    dataset = StreamingDataset(
        input_dir=f"s3://{BUCKET}/{job.dataset}-litdata", shuffle=False, drop_last=False,
        cache_dir=os.path.join(os.environ["HEADRACE_CACHE_DIR"], "litdata"), max_cache_size="10GB",
        storage_options={"endpoint_url": job.endpoint, "region_name": REGION},
    )  # fmt: skip
    return of_dicts(StreamingDataLoader, dataset, job, workers, stack=bool(job.options.get("stack")))
