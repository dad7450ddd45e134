"""headrace under a training step that is pure Python and so holds the GIL; the pipeline in threads, or in a child
process. A step is a fixed number of turns of an empty loop, the same for both, so that it takes longer on the clock
when the pipeline's threads take the GIL away from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import mean
from typing import Any

from headrace import Dataset
from job import Job, Result
from meter import check, cpu_seconds, percentiles, size_of


def work(turns: int) -> None:
    """Pure Python: gives up the GIL only when another thread asks for it."""
    for _ in range(turns):
        pass


def run(job: Job) -> Result:
    turns = int(job.options["turns"])
    opened = time.perf_counter()
    dataset = Dataset.open(job.url).shuffle(seed=job.seed).repeat().batch(job.batch)
    with dataset.loader(where=str(job.options["where"])) as loader:
        batches = iter(loader)
        first = next(batches)
        ttfb = time.perf_counter() - opened
        check((job.batch, _parts(first)), job)
        del first
        _train(batches, turns, job.warm_s)
        cpu = cpu_seconds()
        waits, steps, size, seconds = _train(batches, turns, job.window_s)
        cpu = cpu_seconds() - cpu
    p50, p99 = percentiles(waits)
    extra = {"wait_ms": mean(waits) * 1e3, "step_ms": mean(steps) * 1e3}
    return Result(
        len(waits) * job.batch, seconds, size, cpu, wait_p50=p50, wait_p99=p99, ttfb=ttfb, checked=True, extra=extra
    )


def _train(batches: Iterator[Any], turns: int, duration_s: float) -> tuple[list[float], list[float], int, float]:
    """At least one batch. Returns seconds waited and seconds of step for each, bytes, and seconds in all."""
    waits: list[float] = []
    steps: list[float] = []
    size = 0
    began = now = time.perf_counter()
    while not waits or now < began + duration_s:
        batch = next(batches)
        got = time.perf_counter()
        work(turns)
        done = time.perf_counter()
        size += sum(map(size_of, _parts(batch)))
        waits.append(got - now)
        steps.append(done - got)
        now = time.perf_counter()
    return waits, steps, size, now - began


def _parts(batch: Any) -> list[Any]:
    return [part for name in batch if name != "__key__" for part in batch[name]]
