"""Measures one stream of batches of token blocks in the contender's own process, in thousands of tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import token_data
from job import Job, Result
from meter import cpu_seconds, percentiles


def measure(batches: Iterator[Any], job: Job, opened: float) -> Result:
    """`batches`: arrays or tensors of shape (n, tokens), for ever, or one epoch where `job.mode` says so.

    Raises:
        SystemExit: blocks that are none of the data set's, or an epoch that leaves out more than a thousandth.
    """
    epoch = job.mode == "epoch"
    cpu, began = cpu_seconds(), opened
    first = next(batches)
    ttfb = time.perf_counter() - opened
    tokens, size, waits = _count(first)[0], _count(first)[1], [ttfb]
    if not epoch:
        until = time.perf_counter() + job.warm_s
        while time.perf_counter() < until:
            next(batches)
        tokens, size, waits, cpu, began = 0, 0, [], cpu_seconds(), time.perf_counter()
    until = float("inf") if epoch else began + job.window_s
    now = time.perf_counter()
    while now < until and (batch := next(batches, None)) is not None:
        after = time.perf_counter()
        waits.append(after - now)
        some, more = _count(batch)
        tokens, size = tokens + some, size + more
        now = time.perf_counter()
    seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
    _check(first, job, tokens if epoch else None)
    p50, p99 = percentiles(waits)
    return Result(tokens // 1000, seconds, size, cpu, wait_p50=p50, wait_p99=p99, ttfb=ttfb, checked=True)


def _count(batch: Any) -> tuple[int, int]:
    """Tokens, and bytes."""
    rows, columns = batch.shape
    return rows * columns, batch.nbytes


def _check(batch: Any, job: Job, total: int | None) -> None:
    rows = np.asarray(batch).astype(np.uint16)
    files = token_data.flat(Path(job.root))
    for row in (rows[0], rows[-1]):
        if rows.shape[1] != token_data.BLOCK or not any(_holds(some, row) for some in files):
            raise SystemExit(f"{job.peer} delivered {rows.shape} tokens that are no blocks of the data set")
    held = sum(map(len, files))
    if total is not None and abs(total - held) > max(held // 500, 4 * len(files) * token_data.BLOCK):
        raise SystemExit(f"{job.peer}: an epoch of {total:,} tokens, and the data set has {held:,}")


def _holds(tokens: Any, row: Any) -> bool:
    (places,) = np.nonzero(tokens[: len(tokens) - len(row) + 1] == row[0])
    return any(np.array_equal(tokens[place : place + len(row)], row) for place in places)
