"""The store's sequential byte rate to a client in Python: every shard from its beginning to its end, by obstore in
threads, a shard each, in ranges of 8 MiB; the bytes are thrown away. Counted as the samples that lie in them.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

import obstore
from obstore.store import S3Store

from data import in_shards, shards
from job import BUCKET, Job, Result
from meter import cpu_seconds

_RANGE = 8 << 20


def run(job: Job) -> Result:
    bucket = Path(job.root) / BUCKET
    sizes = {name: (bucket / name).stat().st_size for name in shards(job.root, job.dataset)}
    store = S3Store(
        BUCKET, endpoint=job.endpoint, virtual_hosted_style_request=False, client_options={"allow_http": True}
    )
    left: SimpleQueue[str] = SimpleQueue()
    for name in sizes:
        left.put(name)

    def read() -> None:
        while True:
            try:
                name = left.get_nowait()
            except Empty:
                return
            for at in range(0, sizes[name], _RANGE):
                obstore.get_range(store, name, start=at, end=min(at + _RANGE, sizes[name]))

    pool = [threading.Thread(target=read) for _ in range(int(job.options.get("threads", 4)))]
    cpu, began = cpu_seconds(), time.perf_counter()
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    seconds, size = time.perf_counter() - began, sum(sizes.values())
    notes = f"{size / seconds / 1e6:,.0f} MB/s of shards"
    return Result(in_shards(job.root, job.dataset), seconds, size, cpu_seconds() - cpu, notes=notes)
