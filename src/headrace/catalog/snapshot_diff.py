"""What differs between two lists of object versions: a streaming merge of two sorted streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Batch, Column, from_numbers, pc, scalar, to_flags, to_numbers
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.listed_places import Listing, listed_here, rows_now
from headrace.catalog.snapshot import Snapshot, snapshot_objects, snapshot_place
from headrace.namespace import Namespace

ChangeKind: TypeAlias = Literal["added", "removed", "changed"]
Numbers: TypeAlias = npt.NDArray[np.int64]
_EMPTY = scalar("")


class Change(NamedTuple):
    """One object that differs. Sizes in bytes; size and version are None on the side where it is absent."""

    kind: ChangeKind
    key: str
    size_before: int | None
    version_before: str | None
    size_after: int | None
    version_after: str | None


class RowsThatDiffer(NamedTuple):
    """Numbers of rows in their own streams, ascending: `added` in the newer one, `removed` in the older one, `changed`
    in both, the older one's first: [n, 2].
    """

    added: Numbers
    removed: Numbers
    changed: Numbers


@dataclass(slots=True)
class Changes:
    """Counts of all changes, and the first of them by key."""

    added: int = 0
    removed: int = 0
    changed: int = 0
    first: list[Change] = field(default_factory=list[Change])

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def diff(a: Snapshot, b: Snapshot, *, settings: Settings, progress: Progress = SILENT) -> Iterator[Change]:
    """What leads from snapshot `a` to snapshot `b`, ascending by key; keys are compared below each one's source.

    Raises CorruptError, and any store error while a manifest is fetched.
    """
    before, after = (snapshot_objects(s, settings, progress) for s in (a, b))
    if before.digest == after.digest:
        return iter(())
    return compare(before.batches(), after.batches())


def verify(
    snapshot: Snapshot,
    *,
    namespace: Namespace,
    settings: Settings,
    progress: Progress = SILENT,
    listing: Listing = listed_here,
) -> Iterator[Change]:
    """List the source again: objects missing now (``removed``), new ones (``added``), and other versions (``changed``).
    `listing`: who lists.

    Raises CorruptError for a damaged manifest, and any store error.
    """
    objects = snapshot_objects(snapshot, settings)
    place = snapshot_place(snapshot, namespace)
    return compare(objects.batches(), rows_now(place, Shelf.of(settings), progress, listing=listing))


def change_summary(changes: Iterable[Change], keep: int = 100) -> Changes:
    """Count changes, keeping the first `keep`."""
    found = Changes()
    for change in changes:
        setattr(found, change.kind, getattr(found, change.kind) + 1)
        if len(found.first) < keep:
            found.first.append(change)
    return found


def compare(before: Iterable[Batch], after: Iterable[Batch]) -> Iterator[Change]:
    """Changes between two streams of `headrace.catalog.manifest.VERSIONED` rows with strictly rising keys.

    Holds about one batch of each. Closes neither stream before its end.
    """
    for old, new in _side_by_side(before, after):
        yield from _compare(old.rows, new.rows)


def compare_rows(before: Iterable[Batch], after: Iterable[Batch]) -> Iterator[RowsThatDiffer]:
    """The same as numbers of rows, a stretch of keys after the other: for tens of millions of changes."""
    for old, new in _side_by_side(before, after):
        found = _differing(old.rows, new.rows)
        shift = np.asarray([old.first, new.first], np.int64)
        yield RowsThatDiffer(found.added + new.first, found.removed + old.first, found.changed + shift)


class _Taken(NamedTuple):
    """Rows of a stream, and the number of the first of them."""

    rows: Batch | None
    first: int


def _side_by_side(before: Iterable[Batch], after: Iterable[Batch]) -> Iterator[tuple[_Taken, _Taken]]:
    """Both streams, cut at common keys."""
    old, new = _Stream(before), _Stream(after)
    while old.fill() | new.fill():
        # Up to the smaller of both last keys, neither stream can have anything more to say.
        limit = min(stream.last for stream in (old, new) if stream.last is not None)
        yield old.take(limit), new.take(limit)


class _Stream:
    def __init__(self, batches: Iterable[Batch]) -> None:
        self._batches = iter(batches)
        self._held: Batch | None = None
        self._first = 0
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

    def take(self, limit: str) -> _Taken:
        """Rows up to and including key `limit`."""
        held, first = self._held, self._first
        if held is None:
            return _Taken(None, first)
        count = held.num_rows if self.last == limit else pc.sum(pc.less_equal(held["key"], scalar(limit))).as_py() or 0
        self._held = held.slice(count)
        self._first += count
        return _Taken(held.slice(0, count), first)


def _differing(old: Batch | None, new: Batch | None) -> RowsThatDiffer:
    if old is None or new is None:
        added, removed = (np.arange(0 if one is None else one.num_rows) for one in (new, old))
        return RowsThatDiffer(added, removed, np.zeros((0, 2), np.int64))
    if old["key"].equals(new["key"]):
        both_new = both_old = np.arange(new.num_rows)
    else:
        at = pc.index_in(new["key"], value_set=old["key"])
        both_new = np.flatnonzero(to_flags(pc.is_valid(at)))
        both_old = to_numbers(at.drop_null()).astype(np.int64)
    differs = ~(_equal(old, new, both_old, both_new, "size") & _equal(old, new, both_old, both_new, "version"))
    changed = np.stack([both_old[differs], both_new[differs]], axis=1)
    return RowsThatDiffer(_others(new.num_rows, both_new), _others(old.num_rows, both_old), changed)


def _equal(old: Batch, new: Batch, at_old: Numbers, at_new: Numbers, name: str) -> npt.NDArray[np.bool_]:
    one, other = _column(old, name).take(from_numbers(at_old)), _column(new, name).take(from_numbers(at_new))
    return to_flags(pc.equal(one, other))


def _column(batch: Batch, name: str) -> Column:
    return batch[name] if name == "size" else pc.fill_null(batch[name], _EMPTY)


def _others(count: int, rows: Numbers) -> Numbers:
    left = np.ones(count, np.bool_)
    left[rows] = False
    return np.flatnonzero(left)


def _compare(old: Batch | None, new: Batch | None) -> Iterator[Change]:
    rows = _differing(old, new)
    found = [_change("added", row, row) for row in _rows(new, rows.added)]
    found += [_change("removed", row, row) for row in _rows(old, rows.removed)]
    pairs = zip(_rows(old, rows.changed[:, 0]), _rows(new, rows.changed[:, 1]), strict=True)
    found += [_change("changed", row, other) for row, other in pairs]
    return iter(sorted(found, key=lambda change: change.key))


_Row: TypeAlias = tuple[str, int, str | None]


def _rows(batch: Batch | None, rows: Numbers) -> Iterator[_Row]:
    if batch is None or not len(rows):
        return iter(())
    some = batch.take(from_numbers(rows))
    return zip(*(some[name].to_pylist() for name in ("key", "size", "version")), strict=True)


def _change(kind: ChangeKind, old: _Row, new: _Row) -> Change:
    before = (None, None) if kind == "added" else old[1:]
    after = (None, None) if kind == "removed" else new[1:]
    return Change(kind, old[0], *before, *after)
