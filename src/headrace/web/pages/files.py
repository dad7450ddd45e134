"""``/runs/ID/files``: the files that a run has left in the bucket."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from headrace.base.errors import InputError
from headrace.namespace.home import url_of
from headrace.web.index import RunRow
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 200  # files on a page
_RECORD: Final = ("logs/", "metrics/", "status/", "orders/", "code/", "lease.json", "run.json", "inputs/", "nodes/")
"""What makes the record; other pages show it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """`after`: the name of the file before the first."""

    run: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """`name`: below the run; `modified`: RFC 3339, None where the store does not tell."""

    name: str
    size: int
    modified: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """`more`: whether others follow."""

    run: RunRow
    files: tuple[File, ...]
    more: bool
    asked: Asked


def view(world: World, asked: Asked) -> Told:
    """So many, in the order of their names: one listing."""
    follower = world.followers.of(asked.run)
    run, prefix = follower.run, follower.run.prefix
    infos = (
        info
        for page in run.store.list(prefix, start_after=prefix + asked.after if asked.after else None)
        for info in page
        if not info.key[len(prefix) :].startswith(_RECORD)
    )
    some = list(islice(infos, COUNT + 1))
    files = tuple(File(info.key[len(prefix) :], info.size, _moment(info.mtime_us)) for info in some[:COUNT])
    return Told(Shown(RunRow.of(follower.view()), files, len(some) > COUNT, asked), f"headrace ls -r {run.url}")


def _moment(mtime_us: int) -> str | None:
    return None if not mtime_us else f"{datetime.fromtimestamp(mtime_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def location(world: World, run: str, name: str) -> str:
    """The URL of a file of a run. Raises InputError: a name that could lead out of the run."""
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise InputError("is no name of a file", path=name)
    found = world.followers.of(run).run
    return url_of(found.store, found.prefix + name)


PAGE = Page("/runs/{run}/files", "files", Asked, Shown, view, "Files that a run has left: outputs and checkpoints.")
