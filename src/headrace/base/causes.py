"""Why a loop waits for bytes, for decoding, or for batches: which kind of each it is, and what is left of the wait if
the advice is followed. See `headrace.base.verdict`, which asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.base.figures import Figures, Latency
from headrace.base.units import format_bytes, format_seconds

SMALL: Final = 128 << 10
"""Bytes of a request below which its own cost counts more than what it brings."""
LARGE: Final = 1 << 20
_FAR: Final = 0.02
"""Seconds to the first byte, for the quickest hundredth: the store is far, or slow."""
_QUEUED: Final = 4
"""Times the quickest: an answer that takes longer than this has mostly waited behind others."""
_FAILING: Final = 0.05
_PACKED: Final = 8 << 20
"""Bytes of a request to a shard."""
_FULL: Final = 0.8
_STRAGGLER_S: Final = 0.05
_MOSTLY: Final = 0.6
"""Share of all waiting that was for a few answers."""


@dataclass(frozen=True, slots=True)
class Cause:
    """`bound`: the class of the verdict. `remains`: share of the wait that is left."""

    bound: str
    name: str
    statement: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    remains: float = 0.0


# Bytes

_WARM = "`headrace load PATH` warms the node's cache, if the data fits it and is read again."
_FURTHER = "`headrace doctor PATH` measures the store."


def fetching(figures: Figures) -> Cause:
    """Why bytes are late."""
    requests, size = figures.sum("fetch.requests"), figures.sum("fetch.bytes")
    latency, evidence = figures.latency, _told_of_store(figures)
    mean = size / requests if requests else 0.0
    hits = figures.sum("cache.hit")
    trouble = sum(figures.sum(f"fetch.{one}") for one in ("retries", "slow_downs", "errors", "corrupt"))
    if requests and trouble > _FAILING * requests:
        return _failing(figures, evidence)
    # A process that is busy with small answers looks at some of them late: that is no store's doing.
    crowded = mean < SMALL and (figures.cores_used or 0.0) >= _FULL
    if latency.stragglers > _MOSTLY and latency.straggler >= _STRAGGLER_S and not crowded:
        return _straggling(latency, evidence)
    if hits > 9 * requests:
        return _cached(figures, evidence)
    if requests and mean < SMALL and not _distant(latency):
        return _small(figures, mean, evidence)
    if _receiving(figures) > 0.5 or (mean >= LARGE and not figures.sum("fetch.receiving_s")):
        advice = (_WARM, "Store less: compressed or smaller samples, only the columns that are used.", _FURTHER)
        return Cause("store-bound", "bandwidth", "The store is the limit: its bandwidth.", evidence, advice)
    return _far(figures, latency, evidence)


def _told_of_store(figures: Figures) -> tuple[str, ...]:
    requests, size, latency = figures.sum("fetch.requests"), figures.sum("fetch.bytes"), figures.latency
    hits, misses = figures.sum("cache.hit"), figures.sum("cache.miss")
    told: list[str] = []
    if requests:
        spent = figures.sum("loader.elapsed_s") or figures.seconds
        rate = f", {requests / spent:,.0f} requests/s and {format_bytes(size / spent)}/s" if spent else ""
        told.append(f"{requests:,.0f} requests of {format_bytes(size / requests)}{rate}")
    if latency.count:
        told.append(
            f"answers begin after {format_seconds(latency.median)} (the quickest hundredth within "
            f"{format_seconds(latency.low)}, the slowest hundredth after {format_seconds(latency.high)})"
        )
    if hits + misses:
        told.append(f"{hits / (hits + misses):.0%} of the reads came from the cache")
    return tuple(told)


def _distant(latency: Latency) -> bool:
    """Whether answers are late because of the way, which is in every one of them: the usual one also tells of queues,
    at the store or in this process, which many small requests make.
    """
    return latency.low >= _FAR and latency.median < _QUEUED * latency.low


def _receiving(figures: Figures) -> float:
    """Share of the time of requests in which bytes came."""
    receiving = figures.sum("fetch.receiving_s")
    return receiving / (receiving + figures.sum("fetch.waiting_s")) if receiving else 0.0


def _failing(figures: Figures, evidence: tuple[str, ...]) -> Cause:
    names = {"slow_downs": "answers that asked for less", "retries": "retries", "errors": "reads that failed",
             "corrupt": "reads with wrong bytes"}  # fmt: skip
    counts = {text: figures.sum(f"fetch.{name}") for name, text in names.items()}
    told = [f"{count:,.0f} {text}" for text, count in counts.items() if count]
    advice = (
        "Look into the store's own log and limits; lower fetch.connections where it answers 503 or 429.",
        _WARM,
        _FURTHER,
    )
    return Cause(
        "store-bound", "errors", "The store is the limit: it fails, and is asked again.", (*evidence, *told), advice
    )


def _straggling(latency: Latency, evidence: tuple[str, ...]) -> Cause:
    told = (
        f"{latency.straggling:.1%} of the answers took {format_seconds(latency.straggler)} on average, and "
        f"{latency.stragglers:.0%} of all waiting"
    )
    advice = (
        ('Keep fetch.hedge on and raise fetch.hedge_rate; `.loader(order="window")` lets others go ahead of a late '
        "sample; a larger prefetch covers a longer one."),
        _WARM,
    )
    remains = 1 - latency.stragglers
    statement = "The store is the limit: stragglers, a few requests that take very long."
    return Cause("store-bound", "stragglers", statement, (*evidence, told), advice, remains)


def _cached(figures: Figures, evidence: tuple[str, ...]) -> Cause:
    hits = figures.sum("cache.hit")
    mean = figures.sum("cache.bytes_read") / hits
    if mean < SMALL:
        told = f"{hits:,.0f} samples or parts of them, of {format_bytes(mean)}, were looked up one by one"
        return Cause(
            "request-bound", "small", "Small reads are the limit: each is looked up in the cache by itself.",
            (*evidence, told), _packing(), max(mean / SMALL, 0.1),
        )  # fmt: skip
    advice = ("Put cache.dir on a faster disk (NVMe), or give it memory.", "Store samples smaller.")
    return Cause("store-bound", "cache", "The store is the limit: the disk of the node's cache.", evidence, advice, 0.5)


def _small(figures: Figures, mean: float, evidence: tuple[str, ...]) -> Cause:
    remains = max(_receiving(figures), mean / _PACKED, 1 / 64)
    statement = f"Small requests are the limit: each costs more than the {format_bytes(mean)} it brings."
    return Cause("request-bound", "small", statement, evidence, _packing(), remains)


def _packing() -> tuple[str, ...]:
    return (
        ("`headrace pack` makes shards of many samples, and one request brings hundreds; with "
        '`shuffle(block="auto")` the loader reads them by blocks. `headrace doctor PATH` measures what it brings.'),
    )


def _far(figures: Figures, latency: Latency, evidence: tuple[str, ...]) -> Cause:
    at_once, most = figures.mean("fetch.concurrency"), figures.mean("fetch.connections")
    advice = [_WARM]
    told: list[str] = []
    if at_once and most:
        told.append(f"{at_once:,.0f} requests at once, of {most:,.0f} that fetch.connections allows")
        if at_once >= _FULL * most:
            advice.insert(0, f"Raise fetch.connections above {most:,.0f}.")
        else:
            advice.insert(0, "Raise the loader's prefetch, so that more requests are under way.")
    else:
        advice.insert(0, "Raise fetch.connections, and the loader's prefetch with it.")
    advice.append(_FURTHER)
    late = f": its latency, {format_seconds(latency.median)} before an answer begins" if latency.count else ""
    return Cause("store-bound", "latency", f"The store is the limit{late}.", (*evidence, *told), tuple(advice))


# Decoding


def decoding(figures: Figures) -> Cause:
    """Why decoded samples are late."""
    threads = figures.ratio("loader.decode_room_s", "loader.elapsed_s")
    busy = figures.ratio("loader.decode_busy_s", "loader.decode_room_s")
    allowed, used, cores = figures.cores_allowed, figures.cores_used, figures.cores
    evidence = (f"{threads:,.0f} decode threads, {busy:.0%} busy",)
    if allowed and used is not None and used >= _FULL * allowed:
        return _no_cores(allowed, cores, evidence)
    if allowed and (figures.mean("system/cpu") or 0.0) > 90 and cores:
        told = f"the machine's {cores} cores are {figures.mean('system/cpu'):.0f} % busy, by other processes too"
        statement = "Decoding is the limit: other processes take the CPU."
        advice = ("Run it where nothing else runs, or stop what else does.",)
        return Cause("decode-bound", "neighbours", statement, (*evidence, told), advice, 0.5)
    if used is not None and allowed and threads > 1 and used < 1.3 and allowed >= 2:
        remains = 1 / min(threads, allowed)
        statement = "Decoding is the limit: it holds Python's lock, so that one core does all."
        advice = (
            ("Decode with a library that releases the GIL (Pillow, simplejpeg, OpenCV, NumPy): see `hr.decode`; or run "
            "several ranks."),
        )
        return Cause("decode-bound", "gil", statement, evidence, advice, remains)
    room = max((allowed or 2 * threads) / max(threads, 1), 1.0)
    advice = (
        f"Raise map(threads=…), {threads:,.0f} now, while there are cores"
        + (f": {allowed:g} may be used." if allowed else "."),
        "Decode with a library that releases the GIL (Pillow, simplejpeg, OpenCV); store samples smaller.",
    )
    return Cause("decode-bound", "threads", "Decoding is the limit: too few threads.", evidence, advice, 1 / room)


def _no_cores(allowed: float, cores: int, evidence: tuple[str, ...]) -> Cause:
    smaller = "Store samples smaller, or decoded (`headrace pack`); decode on the GPU; cache what decoding makes."
    if cores > allowed:
        statement = f"Decoding is the limit: the job may use {allowed:g} of {cores} cores, and uses them."
        return Cause(
            "decode-bound", "cores", statement, evidence, (f"Ask for more than {allowed:g} cores.", smaller),
            allowed / cores,
        )  # fmt: skip
    statement = "Decoding is the limit: all cores of the machine are busy."
    return Cause("decode-bound", "cpu", statement, evidence, (smaller, "Take a machine with more cores."), 0.5)


def batching(figures: Figures) -> Cause:
    """Why batches are late when their samples are here."""
    samples, size = figures.sum("loader.samples"), figures.sum("loader.bytes")
    mean = size / samples if samples else 0.0
    told = (f"{samples:,.0f} samples of {format_bytes(mean)}",)
    advice = (
        ('Return arrays of the final dtype and size from map; take batches on where="process" when your loop holds the '
        "GIL; read small records by columns (no function in between)."),
    )
    statement = "Batching is the limit: copying samples into one array."
    return Cause("decode-bound", "batching", statement, told, advice, 0.5)
