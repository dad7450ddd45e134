"""``/compare?run=A&run=B``: what differs between runs, then their curves, one over the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from headrace.base.errors import InputError
from headrace.jobs import diff
from headrace.tracking.curves import Axis, Curve
from headrace.tracking.measured import Measured
from headrace.tracking.summary import OURS
from headrace.web.behind import Underway
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World

_MOST: Final = 20  # runs: more curves in one picture are not told apart
_CHARTS: Final = 24  # pictures on a page
_POINTS: Final = 300  # of a curve


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: ids, with commas between them. `q`: words that all must be in a metric's name. `since`, `until`: as of a
    run's metrics.
    """

    run: str = ""
    q: str = ""
    x: Axis = "step"
    log: bool = False
    since: float | None = None
    until: float | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that the runs do not have alike. `values`: in the order of the runs; None: it has none."""

    part: str
    name: str
    values: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """One metric of all runs that have it; `whose`: places in the list of runs."""

    name: str
    whose: tuple[int, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """`rows` None: they are being compared, see `underway`. `total`: metrics that any of them has."""

    runs: tuple[RunRow, ...]
    rows: tuple[Row, ...] | None
    underway: Underway | None
    charts: tuple[Chart, ...]
    total: int
    asked: Asked


def view(world: World, asked: Asked) -> Told:
    """Each against the first."""
    names = list(dict.fromkeys(one for one in asked.run.split(",") if one))
    if len(names) < 2:
        raise InputError("two runs are needed to compare", hint="choose them in the list of runs")
    if len(names) > _MOST:
        raise InputError(f"no more than {_MOST} runs are compared at once")
    followers = [world.followers.of(name) for name in names]
    every = [follower.measured() for follower in followers]
    have = [one.metrics.keys() for one in every]
    words = asked.q.lower().split()
    known = {name for names in have for name in names if not name.startswith(OURS)}
    wanted = [name for name in known if all(word in name.lower() for word in words)]
    wanted.sort(key=lambda name: ("loss" not in name, -sum(name in one for one in have), name))
    charts = tuple(_chart(name, every, asked) for name in wanted[max(0, asked.start) :][:_CHARTS])
    rows = tuple(RunRow.of(follower.view()) for follower in followers)
    states = " ".join(f"{one.run.id} {one.view().status.seq}" for one in followers)
    differ = world.behind.ask(f"compare {states}", "The runs are being compared", lambda _: _rows(world, names))
    underway = differ if isinstance(differ, Underway) else None
    found = None if isinstance(differ, Underway) else differ
    shown = Shown(rows, found, underway, charts, len(wanted), asked)
    python = f"[hr.run(one).series() for one in {names!r}]"
    return Told(shown, f"headrace runs diff {' '.join(names[:2])}", python)


def _chart(name: str, every: list[Measured], asked: Asked) -> Chart:
    whose = tuple(at for at, one in enumerate(every) if name in one.metrics)
    since, until = asked.since, asked.until
    curves = (every[at].curve(name, asked.x, start=since, stop=until, most=_POINTS) for at in whose)
    return Chart(name, whose, tuple(curves))


def _rows(world: World, names: list[str]) -> tuple[Row, ...]:
    """Trees may be brought here for it, so it is done behind the page."""
    first = world.runs.run(names[0])
    found: dict[tuple[str, str], dict[int, Any]] = {}
    firsts: dict[tuple[str, str], Any] = {}
    for at, name in enumerate(names[1:], 1):
        for one in diff(first, world.runs.run(name), metrics=False):
            if not one.same:
                firsts[one.part, one.name] = one.a
                found.setdefault((one.part, one.name), {})[at] = one.b
    rows: list[Row] = []
    for (part, name), others in found.items():
        values = [firsts[part, name], *(others.get(at, firsts[part, name]) for at in range(1, len(names)))]
        rows.append(Row(part, name, tuple(None if value is None else str(value) for value in values)))
    return tuple(rows)


PAGE = Page("/compare", "compare", Asked, Shown, view, "What differs between runs, and their curves.")
