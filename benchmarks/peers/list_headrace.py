"""headrace's parallel listing, the one behind `Dataset.open` and `headrace snapshot`: keys, sizes, ETags, times."""

from __future__ import annotations

import time

from headrace.catalog.prefix_listing import list_objects
from headrace.store import open_store
from job import Job, Result
from meter import cpu_seconds


def run(job: Job) -> Result:
    cpu, began = cpu_seconds(), time.perf_counter()
    store = open_store(job.url.rstrip("/"))
    found = size = 0
    first = 0.0
    for batch in list_objects(store, folder=job.scratch):
        first = first or time.perf_counter() - began
        found += batch.num_rows
        size += batch.column("size").to_numpy().sum()
    if found != job.options["expect"]:
        raise SystemExit(f"listed {found} objects of {job.options['expect']}")
    return Result(found, time.perf_counter() - began, int(size), cpu_seconds() - cpu, ttfb=first)
