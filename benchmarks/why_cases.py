"""The constructed runs of ``benchmarks/why.py``: every class at several strengths.

`held_out`: parameters chosen before any of them was run, and never used to set a threshold; reported apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

STORE, DECODE, REQUESTS, WRITES, CONSUMER = (
    "store-bound", "decode-bound", "request-bound", "write-bound", "consumer-bound",
)  # fmt: skip


@dataclass(frozen=True)
class Way:
    """From a mount to the store. `latency_s`: before each answer to a read; `bandwidth`: bytes a second, 0: any.
    `options`: of ``headrace mount -o``.
    """

    latency_s: float = 0.0
    bandwidth: float = 0.0
    options: str = ""


@dataclass(frozen=True)
class Case:
    """`data`: one of `DATA`. `job`: what `why_job.Job` takes. `mount`: the job reads files of a mount, this far from
    the store; None: it reads by the loader. `options`: of ``headrace run``. `neighbour`: what others do meanwhile, see
    `why_neighbours`. `warm`: the node's cache has the data before the run.
    """

    name: str
    bound: str
    data: str
    job: dict[str, Any] = field(default_factory=dict[str, Any])
    held_out: bool = False
    mount: Way | None = None
    options: tuple[str, ...] = ()
    neighbour: str = ""
    warm: bool = False


DATA = {"crumbs": (2000, 1000), "tiny": (1500, 6000), "small": (300, 20_000), "middling": (120, 150_000),
        "large": (12, 2_000_000), "long": (80, 2_000_000), "dust": (8000, 1000)}  # fmt: skip
"""Objects, and bytes of each."""


NEIGHBOURS = ("cpu", "disk", "run", "mount")


def cases() -> list[Case]:
    """Every second one beside a neighbour, of each kind in turn."""
    return [
        replace(case, neighbour=NEIGHBOURS[number // 2 % len(NEIGHBOURS)] if number % 2 else "")
        for number, case in enumerate([*_tuned(), *_held_out()])
    ]


def _tuned() -> list[Case]:
    return [*_of_store(), *_of_decoding(), *_of_requests(), *_of_writing(), *_of_the_loop(), *_of_mounts()]


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
    for rest, threads in ((0.05, 2), (0.05, 2), (0.02, 4), (0.2, 1)):
        job = {"rest_s": rest, "decode_s": 0.0005, "threads": threads, "step_s": 0.001}
        yield Case(f"decoding: {rest * 1e3:.0f} ms asleep, {threads} threads", DECODE, "small", job)


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


def _of_mounts() -> Iterator[Case]:
    """Files are read one after the other, each once, so that none is in the cache. The mount fetches neighbours of
    small files ahead, 64 at once: it takes more than 64 ms before each answer to be slower than a loop of 1 ms steps.
    """
    alone = Way(latency_s=0.04, options="no_prefetch")
    job = {"batch": 1, "step_s": 0.001}
    yield Case("mount, 40 ms away, no_prefetch", STORE, "small", job, mount=alone)
    for late, data in ((0.15, "tiny"), (0.4, "tiny")):
        yield Case(f"mount, {late * 1e3:.0f} ms away", STORE, data, job, mount=Way(latency_s=late))
    for bandwidth in (5e6, 20e6):
        yield Case(f"mount, {bandwidth / 1e6:.0f} MB/s", STORE, "long", {"batch": 1}, mount=Way(bandwidth=bandwidth))
    for way in (Way(), Way(options="no_prefetch")):
        name = f"mount, crumbs{', no_prefetch' if way.options else ''}"
        yield Case(name, REQUESTS, "dust", {"batch": 16}, mount=way)
    for step in (0.05, 0.4):
        job = {"batch": 1, "step_s": step}
        yield Case(f"mount, steps of {step * 1e3:.0f} ms", CONSUMER, "small", job, mount=Way())
    job = {"batch": 1, "decode_s": 0.03, "seconds": 12}  # CPU of a job is looked at every 5 s
    core = ("--set", "resources.cpus=1")
    yield Case("mount, 30 ms of CPU a file, one core", DECODE, "tiny", job, mount=Way(), options=core)


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
        Case(
            "decoding: 30 ms asleep, 5 ms of CPU, 3 threads", DECODE, "small",
            {"rest_s": 0.03, "decode_s": 0.005, "threads": 3}, held_out=True,
        ),
        Case(
            "decoding: 80 ms asleep, 2 threads, steps of 20 ms", DECODE, "small",
            {"rest_s": 0.08, "threads": 2, "step_s": 0.02}, held_out=True,
        ),
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
        Case(
            "mount, 60 ms away, steps of 15 ms, no_prefetch", STORE, "small", {"batch": 1, "step_s": 0.015},
            held_out=True, mount=Way(latency_s=0.06, options="no_prefetch"),
        ),
        Case(
            "mount, 200 ms away, crumbs", STORE, "dust", {"batch": 1, "step_s": 0.001}, held_out=True,
            mount=Way(latency_s=0.2),
        ),
        Case(
            "mount, 10 MB/s, middling", STORE, "middling", {"batch": 1, "step_s": 0.001}, held_out=True,
            mount=Way(bandwidth=10e6),
        ),
        Case("mount, crumbs, batches of 64", REQUESTS, "dust", {"batch": 64}, held_out=True, mount=Way()),
        Case("mount, steps of 100 ms", CONSUMER, "small", {"batch": 1, "step_s": 0.1}, held_out=True, mount=Way()),
        Case(
            "mount, steps of 600 ms, 20 ms away", CONSUMER, "small", {"batch": 1, "step_s": 0.6}, held_out=True,
            mount=Way(latency_s=0.02),
        ),
        Case(
            "mount, 20 ms of CPU a file, one core", DECODE, "tiny", {"batch": 2, "decode_s": 0.02, "seconds": 12},
            held_out=True, mount=Way(), options=("--set", "resources.cpus=1"),
        ),
    ]  # fmt: skip
