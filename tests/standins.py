"""Stand-ins below the pipeline: an index in memory, a fetcher on plain threads. The real ones have tests too."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import numpy as np

from headrace.base.errors import InputError, NotFoundError
from headrace.base.metrics import Metrics
from headrace.catalog.sample_abilities import Abilities
from headrace.catalog.sample_index import Part
from headrace.fetch import FetchStats
from headrace.fetch.read import Ticket
from headrace.store.protocol import Blob, ObjectInfo


class StandInStore:
    url = "memory://standin"


class MemoryIndex:
    """`count` samples of `parts` objects of `size` bytes, in folders of `folder` samples."""

    def __init__(self, count: int, *, size: int = 8, parts: tuple[str, ...] = ("bin",), folder: int = 1 << 40) -> None:
        self.count, self.size, self.parts, self.folder = count, size, parts, folder
        self.store: Any = StandInStore()
        self.fingerprint = f"memory-{count}-{size}-{parts}-{folder}"
        self.pinned = True
        self.classes = None
        self.abilities = Abilities()

    def __len__(self) -> int:
        return self.count

    def key(self, row: int) -> str:
        return f"{row // self.folder:04d}/{row:08d}"

    def specs(self, rows: Any) -> list[Any]:
        return [
            (self.key(r), tuple(Part(p, f"{self.key(r)}.{p}", self.size, "v") for p in self.parts), {"row": r})
            for r in rows.tolist()
        ]

    def sizes(self, rows: Any) -> Any:
        return np.full(len(rows), self.size * len(self.parts), dtype=np.int64)


class StandInFetcher:
    """Answers each read with its key's number as bytes; optional jitter, failures, and a count of reads by key."""

    warm = behind = False

    def __init__(self, *, threads: int = 3, jitter_s: float = 0.0, missing: tuple[str, ...] = ()) -> None:
        self.pool = ThreadPoolExecutor(threads)
        self.jitter_s, self.missing = jitter_s, missing
        self.reads: dict[str, int] = {}
        self.in_flight = self.most_in_flight = 0
        self.lock = threading.Lock()
        self.metrics = Metrics()
        self.gate = threading.Event()
        self.gate.set()

    def hurry(self) -> Any:
        return nullcontext()

    def submit(self, reads: Any, sink: Any, *, demand: bool = True, here: bool = False, pieces: bool = False) -> Ticket:
        ticket = Ticket()
        with self.lock:
            self.in_flight += sum(read.size for read in reads)
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        for read in reads:
            self.pool.submit(self._one, read, sink, ticket)
        return ticket

    def _one(self, read: Any, sink: Any, ticket: Ticket) -> None:
        self.gate.wait()
        if ticket.cancelled:
            return
        if self.jitter_s:
            time.sleep(random.random() * self.jitter_s)
        with self.lock:
            self.reads[read.key] = self.reads.get(read.key, 0) + 1
            self.in_flight -= read.size
        if any(name in read.key for name in self.missing):
            sink(read, NotFoundError("does not exist"))
            return
        number = int(read.key.rsplit("/", 1)[-1].split(".")[0])
        data = number.to_bytes(8, "little") + b"\0" * (read.size - 8)
        sink(read, Blob(memoryview(data), ObjectInfo(read.key, read.size, "v")))

    def stats(self) -> FetchStats:
        return FetchStats()

    def close(self) -> None:
        self.gate.set()
        self.pool.shutdown()


def rows_of(batch: Any) -> list[int]:
    """The rows in a batch or a single sample."""
    row = batch["row"]
    return row.tolist() if hasattr(row, "tolist") else [row]


def ended_by_closing(loader: Any) -> str:
    """What a loop on another thread is told when `loader` is closed under it."""
    told = ["nothing: it still waits"]
    begun = threading.Event()

    def loop() -> None:
        epoch = iter(loader)
        begun.set()
        try:
            for _ in epoch:
                pass
            told[0] = "the end of its data"
        except InputError as error:
            told[0] = error.reason

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    assert begun.wait(60)
    loader.close()
    thread.join(10)
    return told[0]
