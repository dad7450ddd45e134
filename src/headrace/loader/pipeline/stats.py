"""Where the time of an epoch went, and what that means: the meter, the figures, and the verdict in words."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.base import cards, verdict
from headrace.base.figures import STAGE, Figures
from headrace.base.quantiles import quantiles
from headrace.base.threads import cores
from headrace.base.units import format_bytes, format_seconds
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.decode_effort import Effort
from headrace.loader.pipeline.step_clock import Steps

_WAITS = 4096  # last waits that quantiles are told of: 32 kB


class Meter:
    """Counters of one epoch. Each is written by one thread only and read by any, so none needs a lock.

    `filled`: bytes that this process has written into the cache so far.
    """

    def __init__(self, filled: Callable[[], float] = lambda: 0.0) -> None:
        self.started = time.perf_counter()
        self.first_batch_s = 0.0
        # the consumer
        self.wait_s = 0.0
        self.wait_store_s = self.wait_decode_s = self.wait_batch_s = 0.0
        self.first_store_s = self.first_decode_s = self.first_wait_s = 0.0
        self.steps = Steps(filled)
        self.samples = self.batches = self.size = self.asked = self.raw_empty = self.ready_empty = 0
        self.raw_level = self.ready_level = 0
        self._waits = array("d", bytes(8 * _WAITS))
        # the feeder
        self.fed = self.reads = self.shared = 0
        # the judge
        self.filtered = self.skipped = 0
        self.ended: float | None = None

    def account(self, began: float, ended: float, got: Delivery) -> None:
        """One wait of the consumer, split by what this very batch was waiting for: its bytes, its decoding, its being
        put together. Times of `time.perf_counter`, which on Linux is one clock for all processes.
        """
        self.samples += got.samples
        self.size += got.raw
        waited = ended - began
        self._waits[self.batches % _WAITS] = waited
        self.wait_s += waited
        if self.batches and got.fetched_at <= began >= got.done_at:  # it was ready: most are, and each costs
            self.wait_batch_s += waited
            self.batches += 1
            return
        fetched = min(max(got.fetched_at, began), ended)
        done = min(max(got.done_at, fetched), ended)
        self.wait_store_s += fetched - began
        self.wait_decode_s += done - fetched
        self.wait_batch_s += ended - done
        if not self.batches:
            self.first_wait_s, self.first_store_s, self.first_decode_s = waited, fetched - began, done - fetched
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
        return self._waits.tolist()[: min(self.batches, _WAITS)]


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
    first_wait_s: float = 0.0
    first_store_s: float = 0.0
    first_decode_s: float = 0.0
    """Of the waiting, what was before the first batch, and for what."""
    long_s: float = 0.0
    """Of `own_s`: what steps took beyond the usual one that were half as long again, or longer."""
    stall_s: float = 0.0
    """Of `long_s`: in steps in which this process wrote files, of `stall_bytes` in all."""
    stalls: int = 0
    stall_bytes: float = 0.0
    own_cpu_s: float = 0.0
    own_queued_s: float = 0.0
    """Of `own_s`: the loop's thread computed, and could have but had no core."""
    uneven_s: float = 0.0
    """Of `own_s`: the loop's thread stood still, beyond what it does in its stillest steps, as if for other ranks."""
    wait_p50_s: float = 0.0
    wait_p99_s: float = 0.0
    decode: Effort = field(default_factory=Effort)
    """What the decode threads spent their time on."""
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
    rank: str = ""
    """Which rank this is, and who said so; empty: nothing was sharded by ranks."""
    processes: str = ""
    """Who runs the functions that ask for processes: how many worker processes, or threads, and why."""
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
    def decode_threads(self) -> int:
        """Decode threads and worker processes."""
        return self.decode.threads

    @property
    def decode_busy_s(self) -> float:
        """Seconds of decode threads and worker processes, at work."""
        return self.decode.spent.wall_s

    @property
    def cache_hits(self) -> int:
        return int(self.counters.get("cache.hit", 0))

    @property
    def cache_misses(self) -> int:
        return int(self.counters.get("cache.miss", 0))

    @property
    def verdict(self) -> str:
        """What limits the loop, the evidence for it, and what would help; `headrace why` says the same of a run."""
        return str(verdict.judge(self.figures()))

    def figures(self) -> Figures:
        """What a verdict is made of."""
        means = {"process.cores": float(cores())}
        return Figures({**self.counters, **told(self, self.batches > 0)}, means, self.elapsed_s)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        rates = {"samples_per_s": self.samples_per_s, "bytes_per_s": self.bytes_per_s, "verdict": self.verdict}
        decoding = {"decode_threads": self.decode_threads, "decode_busy_s": self.decode_busy_s}
        return {**asdict(self), "counters": dict(self.counters), **decoding, **rates}

    def _repr_html_(self) -> str:
        judged = verdict.judge(self.figures())
        rows = {
            "samples": f"{self.samples:,} in {format_seconds(self.elapsed_s)}, {self.samples_per_s:,.0f} a second",
            "waited": f"{format_seconds(self.wait_s)} (store {format_seconds(self.wait_store_s)}, "
            f"decoding {format_seconds(self.wait_decode_s)}, batching {format_seconds(self.wait_batch_s)})",
            "own work": format_seconds(self.own_s),
        }
        return cards.card(f"{judged.bound}: {judged.statement}", rows, lines=judged.advice)

    def __str__(self) -> str:
        rate = f"{self.samples_per_s:,.0f} samples/s, {format_bytes(self.bytes_per_s)}/s"
        changed = f" {self.changed:,} objects changed after their snapshot." if self.changed else ""
        return f"{self.samples:,} samples in {format_seconds(self.elapsed_s)}, {rate}.{changed} {self.verdict}"


def summarise(
    meter: Meter, *, decode: Effort, held: int, counters: Mapping[str, float]
) -> Stats:
    """The figures now."""
    waits = meter.waits()
    p50, p99 = quantiles(waits, (0.5, 0.99)) if waits else (0.0, 0.0)
    asked = max(meter.asked, 1)
    return Stats(
        elapsed_s=(meter.ended or time.perf_counter()) - meter.started,
        samples=meter.samples,
        batches=meter.batches,
        bytes=meter.size,
        wait_s=meter.wait_s,
        own_s=meter.steps.own_s,
        wait_store_s=meter.wait_store_s,
        wait_decode_s=meter.wait_decode_s,
        wait_batch_s=meter.wait_batch_s,
        first_batch_s=meter.first_batch_s,
        first_wait_s=meter.first_wait_s,
        first_store_s=meter.first_store_s,
        first_decode_s=meter.first_decode_s,
        long_s=meter.steps.long_s,
        stall_s=meter.steps.stall_s,
        stalls=meter.steps.stalls,
        stall_bytes=meter.steps.stall_bytes,
        own_cpu_s=meter.steps.own_cpu_s,
        own_queued_s=meter.steps.own_queued_s,
        uneven_s=meter.steps.uneven_s,
        wait_p50_s=p50,
        wait_p99_s=p99,
        decode=decode,
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


_TOLD = (
    "batches", "samples", "bytes", "elapsed_s", "wait_s", "wait_store_s", "wait_decode_s", "wait_batch_s", "own_s",
    "first_wait_s", "first_store_s", "first_decode_s", "long_s", "stall_s", "stalls", "stall_bytes",
    "own_cpu_s", "own_queued_s", "uneven_s",
)  # fmt: skip


def told(stats: Stats, begun: bool = True) -> dict[str, float]:
    """The counters ``loader.*`` of `headrace.base.figures`, of an epoch that has `begun`."""
    found = {f"loader.{name}": float(getattr(stats, name)) for name in _TOLD}
    found["loader.first_batch_s"] = stats.first_wait_s - stats.first_store_s - stats.first_decode_s
    found["loader.epochs"] = float(begun)
    found["loader.asked"] = float(stats.batches)
    found["loader.raw_empty"] = stats.raw_empty * stats.batches
    found["loader.ready_empty"] = stats.ready_empty * stats.batches
    return found | _told_of_decoding(stats.decode, stats.elapsed_s)


def _told_of_decoding(decode: Effort, seconds: float) -> dict[str, float]:
    threads = decode.mean_threads or decode.threads
    found = {"loader.decode_busy_s": decode.spent.wall_s, "loader.decode_room_s": threads * seconds}
    if decode.processes:
        found["loader.decode_workers_s"] = decode.processes * seconds
    if decode.asked:
        found["loader.decode_cpu_s"], found["loader.decode_queued_s"] = decode.spent.cpu_s, decode.spent.queued_s
        found["loader.lock_asked"], found["loader.lock_late"] = float(decode.asked), float(decode.late)
    for name, spent in decode.stages.items():
        found[f"{STAGE}{name}/busy_s"], found[f"{STAGE}{name}/cpu_s"] = spent.wall_s, spent.cpu_s
        found[f"{STAGE}{name}/queued_s"] = spent.queued_s
    return found
