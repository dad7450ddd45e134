"""obstore in threads: `get` blocks without the GIL; one store shared by all threads."""

from __future__ import annotations

from collections.abc import Iterator

import obstore
from obstore.store import S3Store

from job import BUCKET, Job
from meter import Batch
from peers.pool import read_ahead


def batches(job: Job) -> Iterator[Batch]:
    threads = int(job.options.get("threads", 16))
    store = S3Store(
        BUCKET,
        endpoint=job.endpoint,
        virtual_hosted_style_request=False,
        client_options={"allow_http": True, "pool_max_idle_per_host": str(threads)},
    )
    return read_ahead(job, lambda key: memoryview(obstore.get(store, key).bytes()), threads)
