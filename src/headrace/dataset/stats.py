"""Where the time of an epoch went, and what that means: the meter, the figures, and the verdict in words."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headrace.base.units import format_bytes, format_seconds
from headrace.dataset.build import Delivery

_WAITS = 4096
_HEALTHY = 0.05


class Meter:
    """Counters of one epoch. Each is written by one thread only and read by any, so none needs a lock."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.first_batch_s = 0.0
        # the consumer
        self.wait_s = self.own_s = 0.0
        self.wait_store_s = self.wait_decode_s = self.wait_batch_s = 0.0
        self.samples = self.batches = self.size = self.asked = self.raw_empty = self.ready_empty = 0
        self.raw_level = self.ready_level = 0
        self._waits = np.zeros(_WAITS)
        # the feeder
        self.fed = self.reads = self.shared = 0
        # the judge
        self.filtered = self.skipped = 0
        self.ended: float | None = None

    def account(self, began: float, ended: float, got: Delivery) -> None:
        """One wait of the consumer, split by what this very batch was waiting for: its bytes, its decoding, its being
        put together. Times of `time.perf_counter`, which on Linux is one clock for all processes.
        """
        self._waited(ended - began)
        self.samples += got.count
        self.size += got.raw
        fetched = min(max(got.fetched_at, began), ended)
        done = min(max(got.done_at, fetched), ended)
        self.wait_store_s += fetched - began
        self.wait_decode_s += done - fetched
        self.wait_batch_s += ended - done

    def _waited(self, seconds: float) -> None:
        self._waits[self.batches % _WAITS] = seconds
        self.wait_s += seconds
        if not self.batches:
            self.first_batch_s = time.perf_counter() - self.started
        self.batches += 1

    def asking(self, raw: int, ready: int) -> None:
        """The consumer asks for a batch and finds so many raw groups and ready batches."""
        self.asked += 1
        self.raw_level += raw
        self.ready_level += ready
        self.raw_empty += not raw
        self.ready_empty += not ready

    def waits(self) -> list[float]:
        """The last waits, in seconds."""
        return self._waits[: min(self.batches, _WAITS)].tolist()


@dataclass(frozen=True)
class Stats:
    """One epoch so far. All times in seconds of wall clock, sizes in bytes.

    `wait_s` is the consumer's waiting, split by what everybody waited for: `wait_store_s`, `wait_decode_s`,
    `wait_batch_s`. `own_s` is the consumer's own time between batches. `elapsed_s` ≈ `wait_s` + `own_s`.
    """

    elapsed_s: float = 0.0
    samples: int = 0
    batches: int = 0
    bytes: int = 0
    wait_s: float = 0.0
    own_s: float = 0.0
    wait_store_s: float = 0.0
    wait_decode_s: float = 0.0
    wait_batch_s: float = 0.0
    first_batch_s: float = 0.0
    wait_p50_s: float = 0.0
    wait_p99_s: float = 0.0
    decode_threads: int = 0
    decode_busy_s: float = 0.0
    raw_queue: float = 0.0
    """Raw groups waiting to be decoded or batched, mean over the moments a batch was asked for."""
    ready_queue: float = 0.0
    """Batches ready, mean over the same moments."""
    raw_empty: float = 0.0
    ready_empty: float = 0.0
    """Share of those moments at which the queue was empty."""
    reads: int = 0
    frames_shared: int = 0
    filtered: int = 0
    skipped: int = 0
    changed: int = 0
    """Objects read in another version than their snapshot lists, in all epochs so far; `Loader.changed` names them."""
    held_bytes: int = 0
    """Of the prefetch window, in use now."""
    counters: Mapping[str, float] = field(default_factory=dict[str, float])
    """What fetch and cache counted since the epoch began, the whole process together."""

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def bytes_per_s(self) -> float:
        return self.bytes / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cache_hits(self) -> int:
        return int(self.counters.get("cache.hit", 0))

    @property
    def cache_misses(self) -> int:
        return int(self.counters.get("cache.miss", 0))

    @property
    def verdict(self) -> str:
        """What limits the loop, the evidence for it, and what would help."""
        return verdict(self)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        rates = {"samples_per_s": self.samples_per_s, "bytes_per_s": self.bytes_per_s, "verdict": self.verdict}
        return {**asdict(self), "counters": dict(self.counters), **rates}

    def __str__(self) -> str:
        rate = f"{self.samples_per_s:,.0f} samples/s, {format_bytes(self.bytes_per_s)}/s"
        changed = f" {self.changed:,} objects changed after their snapshot." if self.changed else ""
        return f"{self.samples:,} samples in {format_seconds(self.elapsed_s)}, {rate}.{changed} {self.verdict}"


def summarise(
    meter: Meter, *, decode_threads: int, decode_busy_s: float, held: int, counters: Mapping[str, float]
) -> Stats:
    """The figures now."""
    waits = meter.waits()
    p50, p99 = np.percentile(waits, [50, 99]).tolist() if waits else (0.0, 0.0)
    asked = max(meter.asked, 1)
    return Stats(
        elapsed_s=(meter.ended or time.perf_counter()) - meter.started,
        samples=meter.samples,
        batches=meter.batches,
        bytes=meter.size,
        wait_s=meter.wait_s,
        own_s=meter.own_s,
        wait_store_s=meter.wait_store_s,
        wait_decode_s=meter.wait_decode_s,
        wait_batch_s=meter.wait_batch_s,
        first_batch_s=meter.first_batch_s,
        wait_p50_s=p50,
        wait_p99_s=p99,
        decode_threads=decode_threads,
        decode_busy_s=decode_busy_s,
        raw_queue=meter.raw_level / asked,
        ready_queue=meter.ready_level / asked,
        raw_empty=meter.raw_empty / asked,
        ready_empty=meter.ready_empty / asked,
        reads=meter.reads,
        frames_shared=meter.shared,
        filtered=meter.filtered,
        skipped=meter.skipped,
        held_bytes=held,
        counters=counters,
    )


def verdict(stats: Stats) -> str:
    """In words. Rule (design lesson 9): raw and ready queues empty: the store; only ready empty: decoding; both full:
    the training step, and all is well. The consumer's waiting time decides whether it matters at all.
    """
    if not stats.batches:
        return "Nothing delivered yet: no verdict."
    busy = stats.wait_s + stats.own_s
    share = stats.wait_s / busy if busy else 0.0
    waited = f"the loop waited {share:.0%} of the time ({format_seconds(stats.wait_s)})"
    queues = f"raw queue empty {stats.raw_empty:.0%}, ready queue empty {stats.ready_empty:.0%} of the times asked"
    if share < _HEALTHY:
        return f"Healthy: the training step is the limit; {waited}; {queues}."
    cause = max(
        ("store", stats.wait_store_s),
        ("decode", stats.wait_decode_s),
        ("batch", stats.wait_batch_s),
        key=lambda x: x[1],
    )[0]
    parts = (
        f"store {format_seconds(stats.wait_store_s)}, decoding {format_seconds(stats.wait_decode_s)}, "
        f"batching {format_seconds(stats.wait_batch_s)}"
    )
    return f"{_CAUSES[cause](stats)} Evidence: {waited}: {parts}; {queues}."


def _store(stats: Stats) -> str:
    hits, misses = stats.cache_hits, stats.cache_misses
    cached = f" ({hits / (hits + misses):.0%} came from the cache)" if hits + misses else ""
    return (
        f"The store is the limit{cached}. `headrace load PATH` warms the cache; `headrace doctor PATH` measures the "
        "store; a larger prefetch or fetch.connections helps where latency is high."
    )


def _decode(stats: Stats) -> str:
    room = stats.elapsed_s * stats.decode_threads
    busy = stats.decode_busy_s / room if room else 0.0
    return (
        f"Decoding is the limit: {stats.decode_threads} threads, {busy:.0%} busy. Raise map(threads=…) while there are "
        "cores; decode with a library that releases the GIL (Pillow, simplejpeg, OpenCV); store samples smaller."
    )


def _batch(_: Stats) -> str:
    return (
        "Batching is the limit: copying samples into one array. Return arrays of the final dtype and size from map, "
        'or take batches on where="process" when your loop holds the GIL.'
    )


_CAUSES = {"store": _store, "decode": _decode, "batch": _batch}
