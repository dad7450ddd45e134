"""Runs as they lie in a bucket, written without running anything: records, metrics and logs of any length."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.store import Store
from headrace.tracking.event_writer import EventWriter
from headrace.tracking.points import Point, columns
from headrace.tracking.record import Lease, RunRecord, Status
from headrace.tracking.rollups import write_rollup
from headrace.tracking.summary import Summary
from web_bench import HOME

PIECE = 1_000_000
LINES = 100_000
"""Of a log's segment."""
FIRST_US = 1_700_000_000_000_000


def put_run(store: Store, name: str, at: datetime | None = None, seconds: float = 600) -> None:
    """One that has finished."""
    at = at or datetime.now(UTC)
    began, ended = (f"{one:%Y-%m-%dT%H:%M:%S.000Z}" for one in (at, at + timedelta(seconds=seconds)))
    one = RunRecord(name, "bench", began, ("python", "train.py", "--lr", "0.1"), "/work", "node-1", "ann", "0")
    prefix = f"{HOME}/runs/{name}/"
    last = Status(2, "finished", ended, 1, 0)
    store.put(f"{prefix}run.json", one.as_json())
    store.put(f"{prefix}status/{last.name}", last.as_json())
    store.put(f"{prefix}lease.json", Lease(2, "finished", ended, 1, "node-1", 1, last=asdict(last)).as_json())
    loss = {"loss": {"last": random.random(), "min": 0.1, "max": 2.0, "step": 1000, "points": 1000}}
    told = Summary(ended, 5, "store-bound", "latency", "The loop waits for the store.", 1.4, 0.3, loss)
    store.put(f"{prefix}summary.json", told.as_json())


def put_runs(store: Store, count: int) -> None:
    """One a minute, the newest now."""
    now = datetime.now(UTC)
    when = [now - timedelta(minutes=at) for at in range(count)]
    with ThreadPoolExecutor(16) as pool:
        work = (
            pool.submit(put_run, store, f"{one:%Y%m%d-%H%M%S}-bench-{at % 65536:04x}", one)
            for at, one in enumerate(when)
        )
        for one in list(work):
            one.result()


def losses(count: int, seed: int, piece: int = PIECE) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Steps and values of a metric, `piece` at a time."""
    rng = np.random.default_rng(seed)
    for at in range(0, count, piece):
        steps = np.arange(at, min(at + piece, count))
        yield steps, 2 / (1 + steps / max(1, count // 200)) + rng.normal(0, 0.05, len(steps))


def put_points(store: Store, run: str, count: int, seed: int, scratch: Path, names: Sequence[str] = ("loss",)) -> None:
    """`count` points of each metric, in rollups of a million steps."""
    for number, (steps, values) in enumerate(losses(count, seed)):
        size = len(steps)
        times = np.tile(FIRST_US + steps * 10_000, len(names))
        named = [name for name in names for _ in range(size)]
        ranks = np.zeros(size * len(names), np.int32)
        table = columns(times, named, np.tile(values, len(names)), steps.tolist() * len(names), ranks)
        folder = scratch / "rollup"
        write_rollup(str(folder), number, number, table)
        for path in folder.iterdir():
            store.put(f"{HOME}/runs/{run}/metrics/rollup/{path.name}", path.read_bytes())
            path.unlink()


def write_events(folder: Path, run: str, count: int, seed: int, names: Sequence[str] = ("loss",)) -> None:
    """The same points as TensorBoard reads them."""
    (folder / run).mkdir(parents=True)
    writer = EventWriter(str(folder / run / "events.out.tfevents.1.bench"))
    for steps, values in losses(count, seed, 200_000):
        rows = list(zip(steps.tolist(), values.tolist(), strict=True))
        writer.add(Point(FIRST_US + step * 10_000, name, value, step) for step, value in rows for name in names)


def put_log(store: Store, run: str, lines: int) -> None:
    for number, at in enumerate(range(0, lines, LINES)):
        entries = [json.dumps({"format": 1, "stream": "stdout", "line": at})]
        for part in range(at, min(at + LINES, lines), 1000):
            some = range(part, part + 1000)
            text = "".join(f"step {line}: loss {1 / (1 + line):.6f}, 512 samples a second\n" for line in some)
            entries.append(json.dumps({"t": FIRST_US + part, "text": text}))
        data = pa.BufferOutputStream()
        with pa.CompressedOutputStream(data, "zstd") as out:
            out.write("\n".join(entries).encode() + b"\n")
        store.put(f"{HOME}/runs/{run}/logs/stdout/{number:08d}.zst", data.getvalue().to_pybytes())
