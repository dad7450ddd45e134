"""``/runs``: the runs of the home, the newest first."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal, TypeAlias

from headrace.tracking.record import STATES
from headrace.web.index import FIRST, RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World

Sort: TypeAlias = Literal["created", "name", "state", "duration", "waited", "loss"]
_MOST = 1000  # runs on a page, whatever is asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """`q`: words that all must be in a run's id, name, command, host, user, tags or data; `state`, `tag`: with commas
    between several; `start`, `count`: which of those found.
    """

    q: str = ""
    state: str = ""
    tag: str = ""
    sort: Sort = "created"
    start: int = 0
    count: int = FIRST


@dataclass(frozen=True, slots=True)
class Shown:
    """`total`: runs that are wanted; `known`: in the index so far; `complete`: whether that is all there are."""

    runs: tuple[RunRow, ...]
    total: int
    known: int
    complete: bool
    states: tuple[str, ...]
    asked: Asked
    problem: str | None = None
    age_s: float = 0.0


def view(world: World, asked: Asked) -> Told:
    """Of the index."""
    found = world.index.find(
        asked.q, states=_listed(asked.state), tags=_listed(asked.tag), sort=asked.sort, start=max(0, asked.start),
        count=min(max(1, asked.count), _MOST),
    )  # fmt: skip
    shown = Shown(found.rows, found.total, found.known, found.complete, STATES, asked, found.problem, found.age_s)
    words = ["headrace", "runs"]
    for state in _listed(asked.state):
        words += ["--state", state]
    for tag in _listed(asked.tag):
        words += ["--tag", tag]
    given = [f"states={tuple(_listed(asked.state))!r}"] if asked.state else []
    tags = {name: value or "*" for name, _, value in (one.partition("=") for one in _listed(asked.tag))}
    given += [f"tags={tags!r}"] if tags else []
    return Told(shown, shlex.join(words), f"hr.runs({', '.join(given)})")


def _listed(text: str) -> list[str]:
    return [one for one in text.split(",") if one]


PAGE = Page("/runs", "runs", Asked, Shown, view, "The runs of the home, the newest first.")
