"""What differs between two lists of object versions: a streaming merge of two sorted streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.dataset.arrow import Batch, pc, scalar
from headrace.dataset.inventory import rows_now
from headrace.dataset.shelf import Shelf
from headrace.dataset.snapshot import Snapshot, snapshot_objects, snapshot_place
from headrace.namespace import Namespace

Kind: TypeAlias = Literal["added", "removed", "changed"]
_EMPTY = scalar("")


class Change(NamedTuple):
    """One object that differs. Sizes in bytes; size and version are None on the side where it is absent."""

    kind: Kind
    key: str
    size_before: int | None
    version_before: str | None
    size_after: int | None
    version_after: str | None


@dataclass(slots=True)
class Changes:
    """Counts of all changes, and the first of them by key."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    first: list[Change] = field(default_factory=list[Change])

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def diff(
    a: Snapshot, b: Snapshot, *, settings: Settings, progress: Progress = SILENT
) -> Iterator[Change]:
    """What leads from snapshot `a` to snapshot `b`, ascending by key; keys are compared below each one's source.

    Raises CorruptError, and any store error while a manifest is fetched.
    """
    before, after = (snapshot_objects(s, settings, progress) for s in (a, b))
    if before.digest == after.digest:
        return iter(())
    return compare(before.batches(), after.batches())


def verify(
    snapshot: Snapshot, *, namespace: Namespace, settings: Settings, progress: Progress = SILENT
) -> Iterator[Change]:
    """List the source again: objects missing now (``removed``), new ones (``added``), and other versions (``changed``).

    Raises CorruptError for a damaged manifest, and any store error.
    """
    objects = snapshot_objects(snapshot, settings)
    place = snapshot_place(snapshot, namespace)
    return compare(objects.batches(), rows_now(place, Shelf.of(settings), progress))


def summary(changes: Iterable[Change], keep: int = 100) -> Changes:
    """Count changes, keeping the first `keep`."""
    found = Changes()
    for change in changes:
        setattr(found, change.kind, getattr(found, change.kind) + 1)
        if len(found.first) < keep:
            found.first.append(change)
    return found


def compare(before: Iterable[Batch], after: Iterable[Batch]) -> Iterator[Change]:
    """Changes between two streams of `headrace.dataset.manifest.VERSIONED` rows with strictly rising keys.

    Holds about one batch of each. Closes neither stream before its end.
    """
    old, new = _Stream(before), _Stream(after)
    while old.fill() | new.fill():
        # Up to the smaller of both last keys, neither stream can have anything more to say.
        limit = min(stream.last for stream in (old, new) if stream.last is not None)
        yield from _compare(old.take(limit), new.take(limit))


class _Stream:
    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = iter(batches)
        self._held: Batch | None = None
        self.last: str | None = None

    def fill(self) -> bool:
        """Have at least one row at hand; False at the end."""
        while self._held is None or self._held.num_rows == 0:
            self._held = next(self._batches, None)
            if self._held is None:
                self.last = None
                return False
        self.last = self._held["key"][-1].as_py()
        return True

    def take(self, limit: str) -> Batch | None:
        """Rows up to and including key `limit`."""
        held = self._held
        if held is None:
            return None
        count = held.num_rows if self.last == limit else pc.sum(pc.less_equal(held["key"], scalar(limit))).as_py() or 0
        self._held = held.slice(count)
        return held.slice(0, count)


def _compare(old: Batch | None, new: Batch | None) -> Iterator[Change]:
    if old is None or new is None:
        only, kind = (new, "added") if old is None else (old, "removed")
        found = [_change(kind, row, row) for row in _rows(only)] if only is not None else []
        return iter(found)
    at = pc.index_in(new["key"], value_set=old["key"])
    known = pc.is_valid(at)
    both_new, both_old = new.filter(known), old.take(at.drop_null())
    same = pc.and_(
        pc.equal(both_new["size"], both_old["size"]),
        pc.equal(pc.fill_null(both_new["version"], _EMPTY), pc.fill_null(both_old["version"], _EMPTY)),
    )
    differs = pc.invert(same)
    gone = pc.invert(pc.is_in(old["key"], value_set=new["key"]))
    found = [_change("added", row, row) for row in _rows(new.filter(pc.invert(known)))]
    found += [_change("removed", row, row) for row in _rows(old.filter(gone))]
    pairs = zip(_rows(both_old.filter(differs)), _rows(both_new.filter(differs)), strict=True)
    found += [_change("changed", row, other) for row, other in pairs]
    return iter(sorted(found, key=lambda change: change.key))


_Row: TypeAlias = tuple[str, int, str | None]


def _rows(batch: Batch) -> Iterator[_Row]:
    return zip(*(batch[name].to_pylist() for name in ("key", "size", "version")), strict=True)


def _change(kind: Kind, old: _Row, new: _Row) -> Change:
    before = (None, None) if kind == "added" else old[1:]
    after = (None, None) if kind == "removed" else new[1:]
    return Change(kind, old[0], *before, *after)
