"""How the store performs from here: latency, stragglers, and the concurrency at which throughput stops growing."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.base.units import format_bytes, format_seconds
from headrace.checkup.finding import Finding
from headrace.fetch import Fetcher, Read

if TYPE_CHECKING:
    from headrace.store.protocol import Blob

LEVELS = (1, 2, 4, 8, 16, 32, 64, 128)  # requests under way
_MOST_READ = 8 << 20  # bytes of a large object that are read
_LATENCY_READS = 200  # reads one after the other, at most
_GROWTH = 1.1  # times the throughput: less growth is noise
_STRAGGLER = 10  # times the median: a slower read is a straggler


@dataclasses.dataclass(frozen=True, slots=True)
class Level:
    """One measured concurrency: reads and bytes per second."""

    in_flight: int
    reads_per_second: float
    bytes_per_second: float


def check_speed(settings: Settings, reads: Sequence[Read], *, seconds: float) -> Iterator[Finding]:
    """Measure with the given objects (large ones by their first 8 MiB), about `seconds` in all, past the cache.

    No more requests are in flight than there are objects: equal reads under way are answered by one request.
    """
    if not reads:
        yield Finding("speed", "note", "no objects to read here: speed was not measured", "name a PATH with files")
        return
    pieces = [read._replace(stop=min(read.size or 0, _MOST_READ)) for read in reads]
    yield _latency(settings, pieces, seconds / 4)
    levels: list[Level] = []
    for level in [level for level in LEVELS if level <= len(reads)]:
        levels.append(_measure(settings, pieces, level, seconds * 0.75 / len(LEVELS)))
        if _has_stopped_growing(levels):
            break
    yield _throughput(levels, settings)


def _latency(settings: Settings, reads: Sequence[Read], seconds: float) -> Finding:
    import numpy as np

    times: list[float] = []
    until = time.monotonic() + seconds
    for read in itertools.islice(itertools.cycle(reads), _LATENCY_READS):
        started = time.perf_counter()
        read.store.get(read.key, 0, min(read.size or 1, 4096))
        times.append(time.perf_counter() - started)
        if time.monotonic() > until:
            break
    p50, p95, p99 = np.percentile(times, (50, 95, 99)).tolist()
    slow = sum(t > _STRAGGLER * p50 for t in times) / len(times)
    values = {"p50": p50, "p95": p95, "p99": p99, "max": max(times), "stragglers": slow, "reads": len(times)}
    text = f"latency p50 {format_seconds(p50)}, p95 {format_seconds(p95)}, p99 {format_seconds(p99)}"
    if not slow:
        return Finding("latency", "ok", f"{text}; no stragglers in {len(times)} reads", values=values)
    text += f"; {100 * slow:.1f} % took over {_STRAGGLER} times the median"
    if settings.fetch.hedge:
        return Finding("latency", "note", text, "fetch.hedge is on and asks again for such reads: leave it on", values)
    return Finding("latency", "warn", text, "set fetch.hedge = true: a second request overtakes such reads", values)


def _measure(settings: Settings, reads: Sequence[Read], level: int, seconds: float) -> Level:
    fetch = dataclasses.replace(settings.fetch, connections=level, hedge=False)
    cache = dataclasses.replace(settings.cache, size=0)
    fetcher = Fetcher.open(dataclasses.replace(settings, fetch=fetch, cache=cache), None, Metrics())
    lock = threading.Lock()
    count = size = 0
    errors: list[HeadraceError] = []

    def done(_: Read, result: Blob | HeadraceError) -> None:
        nonlocal count, size
        with lock:
            if isinstance(result, HeadraceError):
                errors.append(result)
                return
            count, size = count + 1, size + len(result.data)

    started = time.monotonic()
    until = started + seconds
    try:
        endless = itertools.takewhile(lambda _: time.monotonic() < until and not errors, itertools.cycle(reads))
        fetcher.read_all(endless, done, in_flight=level)
    finally:
        fetcher.close()
    if errors:
        raise errors[0]
    took = time.monotonic() - started
    return Level(level, count / took, size / took)


def _has_stopped_growing(levels: Sequence[Level]) -> bool:
    """Two steps in a row without growth: one may be noise."""
    return len(levels) > 2 and levels[-1].bytes_per_second < _GROWTH * levels[-3].bytes_per_second


def _throughput(levels: Sequence[Level], settings: Settings) -> Finding:
    best = max(levels, key=lambda level: level.bytes_per_second)
    enough = next(level for level in levels if level.bytes_per_second * _GROWTH >= best.bytes_per_second)
    values = {"levels": [dataclasses.asdict(level) for level in levels], "enough": enough.in_flight}
    rate = f"{best.reads_per_second:,.0f} reads/s, {format_bytes(best.bytes_per_second)}/s"
    growing = enough is levels[-1]
    verb = "still grows" if growing else "stops growing"
    text = f"throughput {verb} at {enough.in_flight} requests in flight: {rate}"
    most = settings.fetch.connections
    if enough.in_flight > most:
        advice = f"fetch.connections = {most} holds it back: set it to {2 * enough.in_flight}"
        return Finding("throughput", "warn", text, advice, values)
    if growing and enough.in_flight < LEVELS[-1]:
        return Finding("throughput", "note", text, "name a PATH with more objects to see where it stops", values)
    return Finding("throughput", "ok", text, "nothing to set: headrace finds this level by itself", values)
