"""headrace with a decoder that computes, waits, or holds the GIL, on a number of threads or on as many as it finds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from headrace import Dataset
from job import Job, Result
from meter import cpu_seconds

Decode = Callable[[dict[str, Any]], dict[str, Any]]


def computing(rounds: int) -> Decode:
    """CPU that releases the GIL: OpenSSL derives a key."""

    def decode(sample: dict[str, Any]) -> dict[str, Any]:
        hashlib.pbkdf2_hmac("sha256", b"key", b"salt", rounds)
        return {"__key__": sample["__key__"]}

    return decode


def holding(turns: int) -> Decode:
    """Pure Python."""

    def decode(sample: dict[str, Any]) -> dict[str, Any]:
        for _ in range(turns):
            pass
        return {"__key__": sample["__key__"]}

    return decode


def waiting(seconds: float) -> Decode:
    """As for another service."""

    def decode(sample: dict[str, Any]) -> dict[str, Any]:
        time.sleep(seconds)
        return {"__key__": sample["__key__"]}

    return decode


def mixed(decoders: list[Decode]) -> Decode:
    """One or another, by the sample's key."""

    def decode(sample: dict[str, Any]) -> dict[str, Any]:
        return decoders[hash(sample["__key__"]) % len(decoders)](sample)

    return decode


def decoder(kind: str, rounds_a_ms: float, turns_a_ms: float) -> Decode:
    """`kind`: what it does and for how many milliseconds: ``compute 5``, ``hold 5``, ``wait 20``; or ``mix``."""
    if kind == "mix":
        parts = ("compute 1", "hold 1", "wait 20")
        return mixed([decoder(one, rounds_a_ms, turns_a_ms) for one in parts])
    name, milliseconds = kind.split()
    spent = float(milliseconds)
    if name == "compute":
        return computing(round(spent * rounds_a_ms))
    return holding(round(spent * turns_a_ms)) if name == "hold" else waiting(spent / 1e3)


def run(job: Job) -> Result:
    threads: Any = job.options["threads"]
    decode = decoder(str(job.options["kind"]), float(job.options["rounds"]), float(job.options["turns"]))
    opened = time.perf_counter()
    dataset = Dataset.open(job.url).shuffle(seed=job.seed).repeat().map(decode, threads=threads).batch(job.batch)
    with dataset.loader() as loader:
        batches = iter(loader)
        next(batches)
        ttfb = time.perf_counter() - opened
        _take(batches, job.warm_s)
        cpu, began = cpu_seconds(), time.perf_counter()
        count = _take(batches, job.window_s)
        seconds, cpu = time.perf_counter() - began, cpu_seconds() - cpu
        found = float(loader.stats().decode_threads)
    return Result(count * job.batch, seconds, 0, cpu, ttfb=ttfb, checked=True, extra={"threads": found})


def _take(batches: Any, duration_s: float) -> int:
    """At least one batch; returns how many."""
    count, until = 0, time.perf_counter() + duration_s
    while not count or time.perf_counter() < until:
        next(batches)
        count += 1
    return count
