"""Samples of whole objects that the node's cache holds: planned and read some dozens at a time.

For a single small object that lies on the local disk, a slot, reads and their answers cost more than reading it. Here
nothing is made for a single one as long as all of a group is in the cache. What is not, goes the way of all others: see
`headrace.loader.pipeline.feeder.separate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.catalog import CachedSamples, Rows, TakesColumns
from headrace.loader.pipeline.slots import Planned


class ObjectGroup(Planned):
    """Consecutive samples, to be filled from the cache on one thread, and opened on the same or another."""

    __slots__ = ("_data", "kept")

    def __init__(self, number: int, kept: CachedSamples, leaf: int, local: list[int], rows: Rows) -> None:
        super().__init__(number, int(kept.entries.sizes.sum()), leaf, local, rows)
        self.kept = kept
        self._data: Sequence[Any] = ()

    def fill(self, data: Sequence[memoryview]) -> None:
        """The bytes of all parts."""
        self._data = data

    def forget(self) -> None:
        super().forget()
        self._data = ()

    def open(self) -> None:
        """Make the samples; a second call does nothing."""
        if not self.slots and self.open_columns(()):
            self.spread()

    def open_columns(self, stages: Sequence[TakesColumns]) -> bool:
        keys, names, _, extra = self.kept
        step = len(names)
        columns: dict[str, Sequence[Any]] = {"__key__": keys}
        for place, name in enumerate(names):
            columns[name] = list(self._data[place::step])
        columns.update(extra)
        if not self.through(stages, columns):
            return False
        self._data = ()
        return True


def groups_of(
    kept: CachedSamples, leaf: int, local: list[int], rows: Rows, first: int, limit: int
) -> list[ObjectGroup]:
    """The samples at `rows`, which are `kept`, in groups of `limit`, the first numbered `first`."""
    groups: list[ObjectGroup] = []
    for start in range(0, len(local), limit):
        stop = min(start + limit, len(local))
        part = slice(start, stop)
        groups.append(ObjectGroup(first + len(groups), kept.part(start, stop), leaf, local[part], rows[part]))
    return groups
