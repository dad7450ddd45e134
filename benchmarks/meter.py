"""Measures one stream of batches inside the contender's own process."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import psutil
import xxhash

from data import entries
from job import Job, Result

Batch: TypeAlias = "tuple[int, Sequence[Any]]"
"""Number of samples, and all their parts as buffers, in no particular order."""


def cpu_seconds() -> float:
    """User + system time of this process, of the children it has reaped and of those still alive."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = own.ru_utime + own.ru_stime + reaped.ru_utime + reaped.ru_stime
    for child in psutil.Process(os.getpid()).children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def size_of(buffer: Any) -> int:
    """Bytes in a buffer: bytes, memoryview, array or tensor."""
    return buffer.nbytes if hasattr(buffer, "nbytes") else len(buffer)


def check(batch: Batch, job: Job) -> None:
    """Refuse a contender that does not deliver whole objects of the data set.

    Raises:
        SystemExit: a part whose bytes are none of the data set's objects.
    """
    known = {entry.digest for entry in entries(job.root, job.dataset)}
    for buffer in batch[1]:
        array = buffer.numpy() if hasattr(buffer, "numpy") else buffer
        if xxhash.xxh3_64_hexdigest(memoryview(array)) not in known:
            raise SystemExit(f"{job.peer} delivered {size_of(buffer)} bytes that are no object of {job.dataset}")


def measure(batches: Iterator[Batch], job: Job, opened: float) -> Result:
    """Run the stream by `job.mode`. `opened`: `time.perf_counter` before the data set was opened."""
    return _epoch(batches, job, opened) if job.mode == "epoch" else _steady(batches, job, opened)


def _steady(batches: Iterator[Batch], job: Job, opened: float) -> Result:
    first = next(batches)
    ttfb = time.perf_counter() - opened
    check(first, job)
    del first  # its bytes would count as the contender's memory
    until = time.perf_counter() + job.warm_s
    while time.perf_counter() < until:
        next(batches)
    cpu = cpu_seconds()
    began = time.perf_counter()
    samples, size, waits, seconds = _read(batches, began + job.window_s)
    cpu = cpu_seconds() - cpu
    p50, p99 = percentiles(waits)
    return Result(samples, seconds, size, cpu, wait_p50=p50, wait_p99=p99, ttfb=ttfb, checked=True)


def _epoch(batches: Iterator[Batch], job: Job, opened: float) -> Result:
    cpu = cpu_seconds()
    began = time.perf_counter()
    first = next(batches)
    now = time.perf_counter()
    samples, size, waits, _ = _read(batches, float("inf"))
    seconds = time.perf_counter() - began
    cpu = cpu_seconds() - cpu
    check(first, job)
    total = samples + first[0]
    expected = sum(entry.size for entry in entries(job.root, job.dataset))
    size += sum(map(size_of, first[1]))
    if size != expected:
        raise SystemExit(f"{job.peer}: an epoch of {size} bytes in {total} samples, but the data set has {expected}")
    p50, p99 = percentiles(waits)
    return Result(total, seconds, size, cpu, wait_p50=p50, wait_p99=p99, ttfb=now - opened, checked=True)


def _read(batches: Iterator[Batch], until: float) -> tuple[int, int, list[float], float]:
    samples = size = 0
    waits: list[float] = []
    began = now = time.perf_counter()
    while now < until:
        batch = next(batches, None)
        if batch is None:
            break
        after = time.perf_counter()
        waits.append(after - now)
        samples += batch[0]
        size += sum(map(size_of, batch[1]))
        now = time.perf_counter()
    return samples, size, waits, now - began


def percentiles(values: list[float]) -> tuple[float, float]:
    """p50 and p99, nearest rank; zeros for an empty list."""
    if not values:
        return 0.0, 0.0
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
