"""What leads from one snapshot to another, worked out once a node and mapped: any change of millions at once.

Files of the folder on the shelf: ``added`` (int64 LE, rows of the newer snapshot's objects), ``removed`` (of the older
one's), ``changed`` (int64 LE [n, 2], rows of both).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.base.arrow import pa
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.object_index import Objects
from headrace.catalog.snapshot import Snapshot, snapshot_objects
from headrace.catalog.snapshot_diff import Change, ChangeKind, Numbers, compare_rows

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Differing:
    """Frozen, over mapped files; any thread. `before`, `after`: all objects of either snapshot; rows are theirs, and
    ascend: `added` [n] of `after`, `removed` [n] of `before`, `changed` [n, 2] of both.
    """

    before: Objects
    after: Objects
    added: Numbers
    removed: Numbers
    changed: Numbers

    def count(self, kind: ChangeKind) -> int:
        """Objects that differ so."""
        return len(self._rows(kind))

    def rows(self, kind: ChangeKind, start: int, stop: int) -> tuple[Numbers | None, Numbers | None]:
        """Rows in `before` and in `after` of these changes, counted in the order of keys; None: it is not there."""
        rows = self._rows(kind)[start:stop]
        if kind == "changed":
            return rows[:, 0], rows[:, 1]
        return (None, rows) if kind == "added" else (rows, None)

    def changes(self, kind: ChangeKind, start: int, stop: int) -> list[Change]:
        """These changes themselves; a few microseconds each."""
        old, new = self.rows(kind, start, stop)
        was = self.before.read(old) if old is not None else repeat(None)
        now = self.after.read(new) if new is not None else repeat(None)
        return [_change(kind, one, other) for one, other in zip(was, now, strict=False)]

    def _rows(self, kind: ChangeKind) -> Numbers:
        return {"added": self.added, "removed": self.removed, "changed": self.changed}[kind]


def kept_diff(a: Snapshot, b: Snapshot, *, settings: Settings, progress: Progress = SILENT) -> Differing:
    """What leads from `a` to `b`: worked out by one process of the node, then mapped. Ten million objects take seconds,
    and memory for one batch of each.

    `progress`: told of the rows of manifests that are indexed, then of those that are compared.

    Raises CorruptError, and any store error while a manifest is fetched.
    """
    before, after = (snapshot_objects(one, settings, progress) for one in (a, b))

    def build(folder: Path) -> dict[str, Any]:
        progress.total(len(before) + len(after))
        with (
            (folder / "added").open("wb") as added,
            (folder / "removed").open("wb") as removed,
            (folder / "changed").open("wb") as changed,
        ):
            for some in compare_rows(_told(before, progress), _told(after, progress)):
                for file, rows in zip((added, removed, changed), some, strict=True):
                    file.write(np.ascontiguousarray(rows, "<i8").data)
        pa.default_memory_pool().release_unused()
        return {"format": FORMAT}

    name = f"diff{FORMAT}-{before.digest[:40]}-{after.digest[:40]}"
    folder, _ = Shelf.of(settings).get(name, build)
    added, removed, changed = (_mapped(folder / one) for one in ("added", "removed", "changed"))
    return Differing(before, after, added, removed, changed.reshape(-1, 2))


def _told(objects: Objects, progress: Progress) -> Any:
    for batch in objects.batches():
        yield batch
        progress.advance(batch.num_rows)


def _mapped(path: Path) -> Numbers:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.zeros(0, np.int64)
    return np.memmap(path, dtype="<i8", mode="r").view(np.ndarray)


def _change(
    kind: ChangeKind, was: tuple[str, int, int, str | None] | None, now: tuple[str, int, int, str | None] | None
) -> Change:
    one = was or now
    assert one is not None
    before, after = (side[2:] if side else (None, None) for side in (was, now))
    return Change(kind, one[0], *before, *after)
