"""pyarrow's own scan of three columns of Parquet files: ``dataset.to_batches``, by its S3 client or from local disk.

Threads and read-ahead are as they are by default; ``depth`` sets them deeper in a contender of its own. Counted are
rows, in whole passes, footers read in each; bytes are those of the columns in memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from job import BUCKET, REGION, Job, Result
from meter import cpu_seconds, percentiles
from packed import PROJECTED, TABLE_ROWS

BATCH = 8192


Scan = Callable[[Job], Iterator[tuple[int, int]]]
"""One pass: rows and bytes of each batch."""


def run(job: Job) -> Result:
    return passes(job, _scan)


def passes(job: Job, scan: Scan) -> Result:
    """Whole passes until the window is over, the first one not counted."""
    opened = time.perf_counter()
    warm = _pass(job, scan, opened)
    cpu, began = cpu_seconds(), time.perf_counter()
    rows = size = 0
    waits: list[float] = []
    while time.perf_counter() < began + job.window_s:
        one, some, waited, _ = _pass(job, scan, time.perf_counter())
        rows, size, waits = rows + one, size + some, waits + waited
    seconds = time.perf_counter() - began
    p50, p99 = percentiles(waits)
    return Result(rows, seconds, size, cpu_seconds() - cpu, p50, p99, ttfb=warm[3], checked=True)


def _pass(job: Job, scan: Scan, began: float) -> tuple[int, int, list[float], float]:
    rows = size = 0
    waits: list[float] = []
    first = 0.0
    now = time.perf_counter()
    for count, some in scan(job):
        waits.append(time.perf_counter() - now)
        first = first or time.perf_counter() - began
        rows, size, now = rows + count, size + some, time.perf_counter()
    if rows != TABLE_ROWS:
        raise SystemExit(f"{rows} rows of {TABLE_ROWS}")
    return rows, size, waits, first


def _scan(job: Job) -> Iterator[tuple[int, int]]:
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem, S3FileSystem

    folder = Path(job.root, "bench", "columns")
    names = sorted(os.listdir(folder))
    if job.options.get("local"):
        system, paths = LocalFileSystem(), [str(folder / name) for name in names]
    else:
        system = S3FileSystem(
            access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=job.endpoint.removeprefix("http://"), scheme="http", region=REGION,
        )  # fmt: skip
        paths = [f"{BUCKET}/columns/{name}" for name in names]
    dataset = ds.dataset(paths, format="parquet", filesystem=system)
    depth: dict[str, Any] = job.options.get("depth", {})
    for batch in dataset.to_batches(columns=list(PROJECTED), batch_size=BATCH, **depth):
        yield batch.num_rows, batch.nbytes
