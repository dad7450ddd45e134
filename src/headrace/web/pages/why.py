"""``/runs/ID/why``: where the time went, judged for the whole run, for a span of it, and minute by minute."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from headrace.base.figures import Figures
from headrace.base.verdict import judge
from headrace.tracking.arrow import Table, to_array
from headrace.tracking.curves import Curve, curve
from headrace.tracking.figures import figures_of
from headrace.tracking.judged import judged
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.verdicts import VerdictShown, shown_verdict, waited
from headrace.web.world import World

_STRETCHES: Final = 60
_SHORTEST_S: Final = 60.0
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
    """One process of several: shares of its time, 0 to 1."""

    rank: int
    waited: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Shown:
    """`seconds`: what the loop did, by part: its own work, and waits for the store, decoding and batches. `gpu_hours`:
    how long all GPUs together waited for data.
    """

    run: RunRow
    verdict: VerdictShown
    seconds: dict[str, float]
    stretches: tuple[Stretch, ...]
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
    points, state = follower.points(), follower.view()
    span = _span(asked)
    verdict = judged(follower.run, state, points, rank=asked.rank, span=span)
    figures = figures_of(points, rank=asked.rank, span=span)
    seconds = {name: round(figures.sum(f"loader.{name}_s"), 3) for name in PARTS}
    series = follower.series()
    gpus = sorted(name for name in series if name.startswith(_GPU) and ("util" in name or "busy" in name))
    first, last = _times(points)
    problem, age = follower.problem()
    busy = tuple(curve(series[name], "time", start=asked.since, stop=asked.until) for name in gpus[:8])
    shown = Shown(
        RunRow.of(state), shown_verdict(verdict), seconds, _stretches(points, asked, first, last), busy,
        _ranks(points, span), _gpu_hours(figures, len(gpus)), first, last, asked, problem, age,
    )  # fmt: skip
    return Told(shown, f"headrace why {asked.run}", f"hr.run({asked.run!r}).why()")


def _span(asked: Asked) -> tuple[int, int] | None:
    if asked.since is None and asked.until is None:
        return None
    since, until = asked.since or 0.0, asked.until if asked.until is not None else 4e9
    return int(since * 1e6), int(until * 1e6)


def _times(points: Table) -> tuple[float | None, float | None]:
    if not points.num_rows:
        return None, None
    times = to_array(points.column("time").combine_chunks(), "datetime64[us]").astype(np.int64)
    return float(times.min()) / 1e6, float(times.max()) / 1e6


def _stretches(points: Table, asked: Asked, first: float | None, last: float | None) -> tuple[Stretch, ...]:
    """One a minute, or sixty of a longer run."""
    if first is None or last is None:
        return ()
    first, last = max(first, asked.since or first), min(last, asked.until if asked.until is not None else last)
    count = int(min(_STRETCHES, max(1, (last - first) // _SHORTEST_S)))
    edges = np.linspace(first, last + 1e-3, count + 1).tolist()
    found: list[Stretch] = []
    for since, until in pairwise(edges):
        figures = figures_of(points, rank=asked.rank, span=(int(since * 1e6), int(until * 1e6)))
        found.append(Stretch(since, until, judge(figures).bound, waited(figures)))
    return tuple(found)


def _ranks(points: Table, span: tuple[int, int] | None) -> tuple[Rank, ...]:
    if not points.num_rows:
        return ()
    ranks = np.unique(to_array(points.column("rank").combine_chunks(), np.int32)).tolist()
    if len(ranks) < 2:
        return ()
    found: list[Rank] = []
    for rank in ranks:
        figures = figures_of(points, rank=rank, span=span)
        seconds = figures.sum("loader.wait_s") + figures.sum("loader.own_s")
        if seconds:
            found.append(Rank(rank, waited(figures), round(seconds, 3)))
    return tuple(found)


def _gpu_hours(figures: Figures, gpus: int) -> float | None:
    if not gpus:
        return None
    return round(waited(figures) * figures.seconds * gpus / 3600, 4)


PAGE = Page("/runs/{run}/why", "why", Asked, Shown, view, "Where the time of a run went, and what limits it.")
