"""``/runs/ID/held``: what a run takes up in the bucket, and what deleting it would delete."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.tracking.held import Held, held
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World


@dataclass(frozen=True, slots=True)
class Asked:
    """`run`: an id."""

    run: str


@dataclass(frozen=True, slots=True)
class Shown:
    """`objects`, `bytes`: of all parts together."""

    run: RunRow
    parts: tuple[Held, ...]
    objects: int
    bytes: int


def view(world: World, asked: Asked) -> Told:
    """Counted now: one request for each thousand objects."""
    follower = world.followers.of(asked.run)
    row = RunRow.of(follower.view())
    parts = tuple(held(follower.run))
    objects, size = sum(one.objects for one in parts), sum(one.bytes for one in parts)
    return Told(Shown(row, parts, objects, size), f"headrace du {follower.run.url}")


PAGE = Page("/runs/{run}/held", "held", Asked, Shown, view, "What a run takes up in the bucket.")
