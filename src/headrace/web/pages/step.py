"""``/runs/ID/step/N``: which samples a run's loop had at a step, as pictures and text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.loader import Dataset, places_of
from headrace.tracking.handed import Handed, handed
from headrace.tracking.recorder import PLACE
from headrace.web.index import RunRow
from headrace.web.media import DIGITS
from headrace.web.pages.samples import SampleShown
from headrace.web.samples import of_values
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 60  # samples on a page
_MOST: Final = 200  # samples on a page, whatever is asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """`step`: as it was logged. `rank`: whose batch. `start`: the first sample of it."""

    run: str
    step: int
    rank: int = 0
    start: int = 0
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class BatchShown:
    """What one loader had handed out. `data`: what it reads; `name`, `version`, `of`: of a snapshot, for URLs of
    pictures; `said`: its order in words; `total`: samples of the batch; `exact`: whether it is these and no others.
    `problem`: why none are shown.
    """

    data: str
    name: str
    version: str
    of: str
    said: str
    epoch: int
    first: int
    total: int
    exact: bool
    samples: tuple[SampleShown, ...]
    problem: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """`batches`: one a loader that told where it stood. `last`: the last step that is known; None: of none."""

    run: RunRow
    batches: tuple[BatchShown, ...]
    ranks: tuple[int, ...]
    last: int | None
    asked: Asked
    problem: str | None = None
    age_s: float = 0.0


def view(world: World, asked: Asked) -> Told:
    """From where the loaders stood then: an order is a pure function of seed, epoch and position."""
    follower = world.followers.of(asked.run)
    state, measured = follower.view(), follower.measured()
    known = follower.handings()
    batches = tuple(_shown(world, one, asked) for one in handed(measured, known, asked.step, asked.rank))
    steps = [one.step for (name, _), one in measured.totals.items() if name.startswith(PLACE) and np.isfinite(one.step)]
    ranks = tuple(sorted({one.rank for one in known}))
    problem, age = follower.problem()
    last = int(max(steps)) if steps else None
    shown = Shown(RunRow.of(state), batches, ranks, last, asked, problem, age)
    return Told(shown, f"headrace metrics {asked.run}", f"hr.run({asked.run!r}).series()")


def _shown(world: World, one: Handed, asked: Asked) -> BatchShown:
    recipe = one.by.told
    data = str((recipe.get("data") or {}).get("target") or recipe.get("said"))
    name, at, version = data.partition("@")
    snapshot = bool(at) and "/" not in data
    total = one.stop - one.first
    problem = hint = None
    samples: tuple[SampleShown, ...] = ()
    of = ""
    try:
        first = one.first + min(max(0, asked.start), total)
        wanted = places_of(one.by.state, one.epoch, first, min(one.stop, first + min(max(1, asked.count), _MOST)))
        made = world.samples.made(_recipe(recipe))
        of = world.samples.snapshot(data).digest[:DIGITS] if snapshot else ""
        samples = _samples(world, made, data if snapshot and _is_plain(recipe) else None, one.epoch, wanted)
    except HeadraceError as error:
        problem, hint = str(error), error.hint
    return BatchShown(
        data, name if snapshot else "", version if snapshot else "", of, str(recipe.get("said")), one.epoch, one.first,
        total, one.exact, samples, problem, hint,
    )  # fmt: skip


def _recipe(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told.get(name) for name in ("data", "order", "fingerprint", "said")}


def _is_plain(recipe: Mapping[str, Any]) -> bool:
    """Whether the snapshot is opened so for its pages too."""
    data = recipe["data"]
    return data["by"] == "stem" and not any(data[name] for name in ("format", "columns", "where"))


def _samples(
    world: World, made: Dataset, snapshot: str | None, epoch: int, wanted: np.ndarray[Any, Any]
) -> tuple[SampleShown, ...]:
    """Of a snapshot with pictures, which its own pages have; else what the samples themselves say."""
    if snapshot is not None and made.leaves[0].window is None:
        rows = [int(row) for row in made.stream.locate(epoch, wanted)[1]]
        return tuple(SampleShown(row, *one) for row, one in zip(rows, world.samples.shown(snapshot, rows), strict=True))
    read = made.at(wanted.tolist(), epoch=epoch, fetcher=world.namespace.fetcher)
    return tuple(SampleShown(int(at), *of_values(one)) for at, one in zip(wanted, read, strict=True))


PAGE = Page("/runs/{run}/step/{step}", "step", Asked, Shown, view, "Which samples a run had at a step.")
