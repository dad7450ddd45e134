"""``/data/N/diff``: what leads from one snapshot to another: counted, and side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from headrace.catalog import ChangeKind, Differing, Snapshot, list_snapshots
from headrace.loader import PartShown
from headrace.web.behind import Underway
from headrace.web.media import DIGITS
from headrace.web.pages.data import SnapshotShown, shown_snapshot
from headrace.web.pieces import Stored, looked_at, readable
from headrace.web.told import Page, Told
from headrace.web.world import World

COUNT: Final = 24  # samples or objects on a page
_MOST: Final = 100  # on a page, whatever is asked for
_KINDS: Final[tuple[ChangeKind, ...]] = ("changed", "added", "removed")
_GONE: Final = "the store no longer gives this version"


class Asked(msgspec.Struct, frozen=True, rename={"before": "from", "after": "to"}):
    """`from`, `to`: versions of this name, or ``name@version`` of another; none: the newest, and the one before it.
    `kind`: which changes are shown; none: the first of which there are any. `start`: the first, in the order of keys.
    """

    name: str
    before: str = ""
    after: str = ""
    kind: Literal["", "changed", "added", "removed"] = ""
    start: int = 0
    count: int = COUNT


@dataclass(frozen=True, slots=True)
class Side:
    """An object in a snapshot. `row`: its number there; `there`: whether this very version can still be had."""

    row: int
    size: int
    version: str | None
    there: bool
    part: PartShown


@dataclass(frozen=True, slots=True)
class ChangeShown:
    """One object that differs; None: it is not in that snapshot."""

    key: str
    before: Side | None
    after: Side | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Objects, all of them."""

    changed: int
    added: int
    removed: int
    same: int


@dataclass(frozen=True, slots=True)
class Shown:
    """`before` None: there is one version only. `counts` None: they are being compared, see `underway`. `total`:
    changes of the `kind` that is shown; `gone`: how many versions among those shown can no longer be had.
    """

    before: SnapshotShown | None
    after: SnapshotShown
    counts: Counts | None
    kind: ChangeKind
    changes: tuple[ChangeShown, ...]
    total: int
    gone: int
    digits: int
    underway: Underway | None
    asked: Asked


def view(world: World, asked: Asked) -> Told:
    """Counted exactly, however large they are; of the changes a stretch."""
    old, new = _both(world, asked)
    if old is None:
        shown = Shown(None, shown_snapshot(new), None, "changed", (), 0, 0, DIGITS, None, asked)
        return Told(shown, f"headrace snapshots {asked.name}")
    command = f"headrace snapshots diff {old.id} {new.id}"
    found = world.samples.differing(old, new)
    sides = shown_snapshot(old), shown_snapshot(new)
    if isinstance(found, Underway):
        return Told(Shown(*sides, None, "changed", (), 0, 0, DIGITS, found, asked), command)
    changed, added, removed = (found.count(kind) for kind in _KINDS)
    counts = Counts(changed, added, removed, len(found.after) - added - changed)
    kind = _first(found) if asked.kind == "" else asked.kind
    changes = _changes(world, (old, new), found, kind, asked)
    gone = sum(side is not None and not side.there for one in changes for side in (one.before, one.after))
    shown = Shown(*sides, counts, kind, changes, found.count(kind), gone, DIGITS, None, asked)
    return Told(shown, command)


def _first(found: Differing) -> ChangeKind:
    """The first kind of which there are any."""
    for kind in _KINDS:
        if found.count(kind):
            return kind
    return "changed"


def _both(world: World, asked: Asked) -> tuple[Snapshot | None, Snapshot]:
    """The older and the newer one. Raises as `open_snapshot`."""

    def named(version: str) -> Snapshot:
        return world.samples.snapshot(version if "@" in version else f"{asked.name}@{version}")

    if asked.before and asked.after:
        return named(asked.before), named(asked.after)
    after = named(asked.after or "latest")
    if asked.before:
        return named(asked.before), after
    known = list_snapshots(asked.name, namespace=world.namespace, settings=world.settings)
    earlier = [one for one in known if one.created < after.created]
    return (earlier[-1] if earlier else None), after


def _changes(
    world: World, snapshots: tuple[Snapshot, Snapshot], found: Differing, kind: ChangeKind, asked: Asked
) -> tuple[ChangeShown, ...]:
    start = max(0, asked.start)
    stop = start + min(max(1, asked.count), _MOST)
    keys = [one.key for one in found.changes(kind, start, stop)]
    pieces: list[tuple[int, int, Stored]] = []
    for side, (snapshot, rows) in enumerate(zip(snapshots, found.rows(kind, start, stop), strict=True)):
        if rows is not None and len(rows):
            numbers = rows.tolist()
            some = world.samples.object_pieces(snapshot, numbers)
            pieces += [(side, row, piece) for row, piece in zip(numbers, some, strict=True)]
    shown = iter(_sides(world, pieces))
    columns = [[next(shown) for place, _, _ in pieces if place == side] or [None] * len(keys) for side in (0, 1)]
    return tuple(ChangeShown(*one) for one in zip(keys, *columns, strict=True))


def _sides(world: World, pieces: Sequence[tuple[int, int, Stored]]) -> list[Side]:
    """What of each version can still be had, and what it is."""
    stored = [piece for _, _, piece in pieces]
    kept = [world.samples.kept(piece) for piece in stored]
    asked = [piece for piece, has in zip(stored, kept, strict=True) if not has]
    answers = iter(readable(asked)) if asked else iter(())
    there = [has or next(answers) for has in kept]
    parts = iter(looked_at([piece for piece, has in zip(stored, there, strict=True) if has]))
    sides: list[Side] = []
    for (_, row, piece), has in zip(pieces, there, strict=True):
        part = next(parts) if has else PartShown(piece.name, "gone", piece.size, _GONE)
        had = has and (part.kind != "gone" or world.samples.kept(piece))
        sides.append(Side(row, piece.size or 0, piece.whole.version, had, part))
    return sides


PAGE = Page("/data/{name}/diff", "diff", Asked, Shown, view, "What leads from one snapshot to another.")
