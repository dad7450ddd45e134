"""The constructed runs of ``benchmarks/why.py``: every class at several strengths.

`held_out`: parameters chosen before any of them was run, and never used to set a threshold; reported apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

STORE, DECODE, REQUESTS, WRITES, CONSUMER = (
    "store-bound", "decode-bound", "request-bound", "write-bound", "consumer-bound",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """`data`: one of `DATA`. `job`: what `why_job.Job` takes."""

    name: str
    bound: str
    data: str
    job: dict[str, Any] = field(default_factory=dict[str, Any])
    held_out: bool = False


DATA = {"crumbs": (2000, 1000), "tiny": (1500, 6000), "small": (300, 20_000), "middling": (120, 150_000),
        "large": (12, 2_000_000)}  # fmt: skip
"""Objects, and bytes of each."""


def cases() -> list[Case]:
    return [*_tuned(), *_held_out()]


def _tuned() -> list[Case]:
    return [*_of_store(), *_of_decoding(), *_of_requests(), *_of_writing(), *_of_the_loop()]


def _of_store() -> Iterator[Case]:
    for late in (0.04, 0.08, 0.15, 0.4):
        yield Case(f"{late * 1e3:.0f} ms away", STORE, "small", {"latency_s": late, "step_s": 0.001})
    for rate, seconds in ((0.03, 3.0), (0.06, 1.5), (0.02, 4.0)):
        job = {"latency_s": 0.002, "stragglers": [rate, seconds], "step_s": 0.001}
        yield Case(f"{rate:.0%} take {seconds:g} s", STORE, "small", job)
    for bandwidth in (5e6, 20e6, 60e6):
        yield Case(f"{bandwidth / 1e6:.0f} MB/s", STORE, "large", {"bandwidth": bandwidth, "batch": 2})


def _of_decoding() -> Iterator[Case]:
    for cpu, threads, gil in ((0.005, 1, False), (0.03, 2, False), (0.03, 4, False), (0.02, 2, True), (0.1, 2, False)):
        job = {"decode_s": cpu, "threads": threads, "gil": gil, "step_s": 0.001}
        text = f"{cpu * 1e3:.0f} ms of CPU, {threads} threads{', with the GIL' if gil else ''}"
        yield Case(f"decoding: {text}", DECODE, "small", job)


def _of_requests() -> Iterator[Case]:
    for data, batch in (("crumbs", 64), ("crumbs", 256), ("tiny", 32), ("tiny", 128)):
        yield Case(f"{data}, batches of {batch}", REQUESTS, data, {"batch": batch})


def _of_writing() -> Iterator[Case]:
    for every, size, seconds in ((10, 4 << 20, 0.3), (40, 8 << 20, 0.5), (5, 2 << 20, 0.1), (20, 16 << 20, 1.0)):
        job = {"step_s": 0.02, "checkpoint": [every, size, seconds]}
        yield Case(f"{size >> 20} MiB in {seconds:g} s every {every} steps", WRITES, "small", job)


def _of_the_loop() -> Iterator[Case]:
    for step in (0.02, 0.05, 0.2):
        yield Case(f"steps of {step * 1e3:.0f} ms", CONSUMER, "small", {"step_s": step})
    yield Case("busy steps of 30 ms", CONSUMER, "small", {"step_s": 0.03, "busy": True})
    yield Case("steps of 20 ms, evaluations", CONSUMER, "small", {"step_s": 0.02, "evaluate": [10, 0.3]})
    yield Case("steps of 50 ms, child process", CONSUMER, "small", {"step_s": 0.05, "where": "process"})


def _held_out() -> list[Case]:
    return [
        Case("60 ms away, steps of 5 ms", STORE, "small", {"latency_s": 0.06, "step_s": 0.005}, held_out=True),
        Case("250 ms away, crumbs", STORE, "crumbs", {"latency_s": 0.25, "batch": 32}, held_out=True),
        Case("4% take 2.5 s", STORE, "small", {"latency_s": 0.003, "stragglers": [0.04, 2.5]}, held_out=True),
        Case("12 MB/s", STORE, "large", {"bandwidth": 12e6, "batch": 1}, held_out=True),
        Case("40 MB/s, middling", STORE, "middling", {"bandwidth": 40e6, "batch": 4}, held_out=True),
        Case("decoding: 12 ms of CPU, 3 threads", DECODE, "small", {"decode_s": 0.012, "threads": 3}, held_out=True),
        Case("decoding: 50 ms, GIL", DECODE, "middling", {"decode_s": 0.05, "threads": 2, "gil": True}, held_out=True),
        Case("decoding: 15 ms, steps of 10 ms", DECODE, "small", {"decode_s": 0.015, "step_s": 0.01}, held_out=True),
        Case("crumbs, batches of 16", REQUESTS, "crumbs", {"batch": 16}, held_out=True),
        Case("tiny, batches of 64, steps of 1 ms", REQUESTS, "tiny", {"batch": 64, "step_s": 0.001}, held_out=True),
        Case(
            "6 MiB in 0.25 s every 8 steps", WRITES, "small", {"step_s": 0.03, "checkpoint": [8, 6 << 20, 0.25]},
            held_out=True,
        ),
        Case(
            "1 MiB in 0.15 s every 15 steps", WRITES, "small", {"step_s": 0.01, "checkpoint": [15, 1 << 20, 0.15]},
            held_out=True,
        ),
        Case("steps of 100 ms", CONSUMER, "small", {"step_s": 0.1}, held_out=True),
        Case(
            "steps of 40 ms, 30 ms away", CONSUMER, "small", {"step_s": 0.04, "latency_s": 0.03}, held_out=True,
        ),
        Case(
            "steps of 60 ms, evaluations", CONSUMER, "small", {"step_s": 0.06, "evaluate": [6, 0.4]}, held_out=True,
        ),
    ]  # fmt: skip
