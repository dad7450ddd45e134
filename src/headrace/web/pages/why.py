"""``/runs/ID/why``: where the time went, judged for the whole run, for a span of it, and minute by minute."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from typing import Final

import numpy as np

from headrace.base.figures import Figures
from headrace.base.ranks import RankTime
from headrace.base.verdict import Verdict, judge
from headrace.tracking.curves import Curve
from headrace.tracking.stretches import Stretches
from headrace.tracking.summary import waited
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.verdicts import VerdictShown, shown_verdict
from headrace.web.world import World

_STRETCHES: Final = 60  # of time, at most: one is a column of the picture
_SHORTEST_US: Final = 60_000_000  # microseconds of a stretch: some samples of the machine fall into it
_GPU: Final = "system/gpu"
PARTS: Final = ("own", "wait_store", "wait_decode", "wait_batch")


@dataclass(frozen=True, slots=True)
class Asked:
    """`since`, `until`: seconds since the epoch; none: all of the run. `rank`: of one rank only."""

    run: str
    since: float | None = None
    until: float | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the run: from, to (seconds since the epoch), what limited it, and the share of it that was waited."""

    since: float
    until: float
    bound: str
    waited: float


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of several. `waited`: share of its time, 0 to 1; `each`: the same in each stretch, None where it told
    nothing; `seconds`: its time; `step`: what it needs for a step, seconds, None where it made too few.
    """

    rank: int
    waited: float
    seconds: float
    each: tuple[float | None, ...]
    step: RankTime | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """`seconds`: what the loop did, by part: its own work, and waits for the store, decoding and batches. `gpu_hours`:
    how long all GPUs together waited for data; `waits`: how much of its time the loop waited, per cent.
    """

    run: RunRow
    verdict: VerdictShown
    seconds: dict[str, float]
    stretches: tuple[Stretch, ...]
    waits: Curve | None
    gpu: tuple[Curve, ...]
    ranks: tuple[Rank, ...]
    gpu_hours: float | None
    since: float | None
    until: float | None
    asked: Asked
    problem: str | None = None
    age_s: float = 0.0


def view(world: World, asked: Asked) -> Told:
    """The verdict, and what it is made of."""
    follower = world.followers.of(asked.run)
    measured, state = follower.measured(), follower.view()
    span, edges = measured.span, _edges(measured.span, asked)
    parts = follower.stretches(edges, asked.rank) if edges is not None else None
    if asked.since is None and asked.until is None:
        figures = measured.figures(asked.rank)
        verdict = follower.verdict() if asked.rank is None else follower.judged(figures)
    else:
        figures = parts.figures if parts is not None else Figures()
        verdict = judge(figures)
    seconds = {name: round(figures.sum(f"loader.{name}_s"), 3) for name in PARTS}
    gpus = sorted(name for name in measured.metrics if name.startswith(_GPU) and ("util" in name or "busy" in name))
    busy = tuple(measured.curve(name, "time", start=asked.since, stop=asked.until) for name in gpus[:8])
    problem, age = follower.problem()
    first, last = (span[0] / 1e6, span[1] / 1e6) if span is not None else (None, None)
    shown = Shown(
        RunRow.of(state), shown_verdict(verdict), seconds, _stretches(parts), _waits(parts), busy,
        _ranks(parts, verdict), _gpu_hours(figures, len(gpus)), first, last, asked, problem, age,
    )  # fmt: skip
    return Told(shown, f"headrace why {asked.run}", f"hr.run({asked.run!r}).why()")


def _edges(span: tuple[int, int] | None, asked: Asked) -> tuple[int, ...] | None:
    """Microseconds since the epoch: of stretches of a minute, or of sixty in a longer run. None: nothing is inside."""
    if span is None:
        return None
    first = span[0] if asked.since is None else max(span[0], int(asked.since * 1e6))
    last = span[1] if asked.until is None else min(span[1], int(asked.until * 1e6))
    if first > last:
        return None
    count = int(min(_STRETCHES, max(1, (last - first) // _SHORTEST_US)))
    return tuple(np.linspace(first, last + 1, count + 1).astype(np.int64).tolist())


def _stretches(parts: Stretches | None) -> tuple[Stretch, ...]:
    if parts is None:
        return ()
    edges = (np.asarray(parts.edges) / 1e6).tolist()
    return tuple(
        Stretch(since, until, judge(figures).bound, waited(figures))
        for (since, until), figures in zip(pairwise(edges), parts.each(), strict=True)
    )


def _waits(parts: Stretches | None) -> Curve | None:
    """How much of its time the loop waited, in per cent, over time."""
    shares = [round(100 * one.waited, 2) for one in _stretches(parts)]
    if len(shares) < 2:
        return None
    each = tuple(shares)
    ends = tuple((np.asarray(parts.edges[1:]) / 1e6).tolist()) if parts is not None else ()
    return Curve("waited, per cent", ends, each, each, each, (0,) * len(each), len(each), len(each))


def _ranks(parts: Stretches | None, verdict: Verdict) -> tuple[Rank, ...]:
    """Who waited most, first; nothing of a job of one process."""
    steps = {one.rank: one for one in verdict.ranks}
    waits = parts.waits() if parts is not None else {}
    found: list[Rank] = []
    for rank, (waiting, own) in waits.items():
        whole = waiting + own
        if not whole.sum():
            continue
        each = np.divide(waiting, whole, out=np.full(len(whole), np.nan), where=whole > 0).tolist()
        told = tuple(round(one, 4) if isfinite(one) else None for one in each)
        share, seconds = round(float(waiting.sum() / whole.sum()), 4), round(float(whole.sum()), 3)
        found.append(Rank(rank, share, seconds, told, steps.get(rank)))
    return tuple(sorted(found, key=lambda one: -one.waited)) if len(found) > 1 else ()


def _gpu_hours(figures: Figures, gpus: int) -> float | None:
    if not gpus:
        return None
    return round(waited(figures) * figures.seconds * gpus / 3600, 4)


PAGE = Page("/runs/{run}/why", "why", Asked, Shown, view, "Where the time of a run went, and what limits it.")
