"""Why a loop waits for bytes: which kind of wait it is, and what is left of it if the advice is followed. See
`headrace.base.verdict`, which asks, and `headrace.base.causes_decoding` for the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headrace.base.figures import Figures, Latency
from headrace.base.units import format_bytes, format_seconds

SMALL: Final = 128 << 10
"""Bytes of a request below which its own cost counts more than what it brings."""
LARGE: Final = 1 << 20
"""Bytes of a request from which on receiving it takes longer than waiting for it."""
_FAR_S: Final = 0.02
"""Seconds to the first byte, for the quickest hundredth: the store is far, or slow."""
_QUEUED: Final = 4
"""Times the quickest: an answer that takes longer than this has mostly waited behind others."""
_FAILING: Final = 0.05
"""Share of requests that failed, or were told to slow down, from which on that is the matter."""
_PACKED: Final = 8 << 20
"""Bytes of a request to a shard."""
_FULL: Final = 0.8
"""Share of what there is (cores, connections) from which on there is no more of it."""
_STRAGGLER_S: Final = 0.05
"""A late answer below this hardly shows: the window of reads covers it."""
_MOSTLY: Final = 0.6
"""Share of all waiting that was for a few answers."""


@dataclass(frozen=True, slots=True)
class Action:
    """The first advice as a value, for programs.

    ========= ===================================================== ==============================
    name      what is advised                                       `value`
    ========= ===================================================== ==============================
    warm      the data in the node's cache
    pack      shards of many samples
    hedge     more second requests for late ones                    percent of all requests
    threads   ``map(threads=…)``                                    threads
    processes ``map(processes=…)``                                  processes; 0: ``"auto"``
    lighten   samples that take less CPU                            share of the CPU that is left
    cores     more cores                                            cores
    alone     a machine on which nothing else computes
    aside     checkpoints written by another thread or process
    ========= ===================================================== ==============================
    """

    name: str
    value: float = 0.0


@dataclass(frozen=True, slots=True)
class Cause:
    """`bound`: the class of the verdict. `action`: the first advice; None: no program can take it.

    `remains`: what is left if that is followed. Of a stage that is too slow, the share of the time that it takes for a
    sample; the loop's own time goes on beside it. With `pause`, the share of the wait: what comes now and then.
    """

    bound: str
    name: str
    statement: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...]
    remains: float = 0.0
    action: Action | None = None
    pause: bool = False


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
        return _straggling(figures, evidence)
    if hits > 9 * requests:
        return _cached(figures, evidence)
    if requests and mean < SMALL and not _distant(latency):
        return _small(figures, mean, evidence)
    if _receiving(figures) > 0.5 or (mean >= LARGE and not figures.sum("fetch.receiving_s")):
        advice = (_WARM, "Store less: compressed or smaller samples, only the columns that are used.", _FURTHER)
        statement = "The store is the limit: its bandwidth."
        return Cause("store-bound", "bandwidth", statement, evidence, advice, action=Action("warm"))
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
        if shared := figures.sum("peers.reads"):
            told.append(f"{shared / (hits + misses):.0%} from other nodes' caches")
    return tuple(told)


def _distant(latency: Latency) -> bool:
    """Whether answers are late because of the way, which is in every one of them: the usual one also tells of queues,
    at the store or in this process, which many small requests make.
    """
    return latency.low >= _FAR_S and latency.median < _QUEUED * latency.low


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
        "store-bound", "errors", "The store is the limit: it fails, and is asked again.", (*evidence, *told), advice,
        pause=True,
    )  # fmt: skip


def _straggling(figures: Figures, evidence: tuple[str, ...]) -> Cause:
    latency = figures.latency
    told = (
        f"{latency.straggling:.1%} of the answers took {format_seconds(latency.straggler)} on average, and "
        f"{latency.stragglers:.0%} of all waiting"
    )
    ahead = '`.loader(order="window")` lets others go ahead of a late sample; a larger prefetch covers a longer one.'
    statement = "The store is the limit: stragglers, a few requests that take very long."
    hedges, remains = figures.sum("fetch.hedges"), 1 - latency.stragglers
    if not hedges:  # a way to the store that has none, or they are switched off
        action, advice, remains = Action("warm"), (_WARM, ahead), 0.0
    else:
        action = Action("hedge", math.ceil(200 * latency.straggling))
        more = f"Raise fetch.hedge_rate to {action.value:.0f} (percent): every late request gets a second one then."
        told, advice = f"{told}; {hedges:,.0f} second requests were sent", (more, ahead, _WARM)
    return Cause(
        "store-bound", "stragglers", statement, (*evidence, told), advice, remains, action, pause=True
    )  # fmt: skip


def _cached(figures: Figures, evidence: tuple[str, ...]) -> Cause:
    hits = figures.sum("cache.hit")
    mean = figures.sum("cache.bytes_read") / hits
    if mean < SMALL:
        told = f"{hits:,.0f} samples or parts of them, of {format_bytes(mean)}, were looked up one by one"
        return Cause(
            "request-bound", "small", "Small reads are the limit: each is looked up in the cache by itself.",
            (*evidence, told), _packing(), max(mean / SMALL, 0.1), Action("pack"),
        )  # fmt: skip
    advice = ("Put cache.dir on a faster disk (NVMe), or give it memory.", "Store samples smaller.")
    return Cause("store-bound", "cache", "The store is the limit: the disk of the node's cache.", evidence, advice, 0.5)


def _small(figures: Figures, mean: float, evidence: tuple[str, ...]) -> Cause:
    remains = max(_receiving(figures), mean / _PACKED, 1 / 64)
    statement = f"Small requests are the limit: each costs more than the {format_bytes(mean)} it brings."
    return Cause("request-bound", "small", statement, evidence, _packing(), remains, Action("pack"))


def _packing() -> tuple[str, ...]:
    return (
        ("`headrace pack` makes shards of many samples, and one request brings hundreds; with "
        '`shuffle(block="auto")` the loader reads them by blocks. `headrace doctor PATH` measures what it brings.'),
    )


def _far(figures: Figures, latency: Latency, evidence: tuple[str, ...]) -> Cause:
    at_once, most = figures.mean("fetch.concurrency"), figures.mean("fetch.connections")
    more = "Raise fetch.connections, and the loader's prefetch with it."
    told: list[str] = []
    if at_once and most:
        told.append(f"{at_once:,.0f} requests at once, of {most:,.0f} that fetch.connections allows")
        more = "Raise the loader's prefetch, so that more requests are under way."
        if at_once >= _FULL * most:
            more = f"Raise fetch.connections above {most:,.0f}."
    late = f": its latency, {format_seconds(latency.median)} before an answer begins" if latency.count else ""
    return Cause(
        "store-bound", "latency", f"The store is the limit{late}.", (*evidence, *told), (_WARM, more, _FURTHER),
        action=Action("warm"),
    )  # fmt: skip
