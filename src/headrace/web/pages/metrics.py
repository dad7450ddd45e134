"""``/runs/ID/metrics`` and ``/runs/ID/machine``: every metric as a curve."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from headrace.tracking.curves import Axis, Curve
from headrace.tracking.summary import OURS, main_metric
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World

_MACHINE: Final = ("system/", "job/")
COUNT: Final = 24  # curves on a page
_MOST: Final = 100  # curves on a page, whatever is asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """`q`: words that all must be in a metric's name. `x`: what the curves stand over; `since`, `until`: of that axis
    (steps, or seconds since the epoch). `star`: names that come first, with commas between them. `start`, `count`:
    which of the metrics found.
    """

    run: str
    q: str = ""
    x: Axis = "step"
    log: bool = False
    since: float | None = None
    until: float | None = None
    star: str = ""
    start: int = 0
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class MetricShown:
    """One metric. `last`, `low`, `high`: of all of it, None where it has no finite value."""

    name: str
    points: int
    last: float | None
    low: float | None
    high: float | None
    curve: Curve


@dataclass(frozen=True, slots=True)
class Shown:
    """`total`: metrics that are wanted; `here`: that the run has on this page."""

    run: RunRow
    metrics: tuple[MetricShown, ...]
    total: int
    here: int
    asked: Asked
    problem: str | None = None
    age_s: float = 0.0


def view(world: World, asked: Asked, *, machine: bool) -> Told:
    """The wanted ones, the main one first."""
    follower = world.followers.of(asked.run)
    measured = follower.measured()
    every = measured.metrics
    here = [name for name in every if (name.startswith(_MACHINE) if machine else not name.startswith(OURS))]
    words = asked.q.lower().split()
    wanted = [name for name in here if all(word in name.lower() for word in words)]
    if not machine and wanted:
        first = main_metric({name: every[name] for name in wanted})
        wanted.sort(key=lambda name: name != first)
    stars = asked.star.split(",")
    wanted.sort(key=lambda name: name not in stars)
    some = wanted[max(0, asked.start) :][: min(max(1, asked.count), _MOST)]
    axis = "time" if machine else asked.x
    metrics: list[MetricShown] = []
    for name in some:
        one = every[name]
        drawn = measured.curve(name, axis, start=asked.since, stop=asked.until)
        metrics.append(MetricShown(name, one.points, _finite(one.last), _finite(one.low), _finite(one.high), drawn))
    problem, age = follower.problem()
    shown = Shown(RunRow.of(follower.view()), tuple(metrics), len(wanted), len(here), asked, problem, age)
    command = f"headrace metrics {asked.run}" + (" --all" if machine else "")
    return Told(shown, command, f"hr.run({asked.run!r}).series()")


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") else None


METRICS = Page(
    "/runs/{run}/metrics", "metrics", Asked, Shown, partial(view, machine=False), "What a run has logged, as curves."
)
MACHINE = Page(
    "/runs/{run}/machine", "machine", Asked, Shown, partial(view, machine=True), "What its machine did, over time."
)
