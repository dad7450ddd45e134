"""Samples of whole objects that the node's cache holds: planned and read some dozens at a time.

For a single small object that lies on the local disk, a slot, reads and their answers cost more than reading it. Here
nothing is made for a single one as long as all of a group is in the cache. What is not, goes the way of all others: see
`headrace.dataset.feed.separate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.cache import DIGEST, Digests
from headrace.dataset.abilities import CachedSamples
from headrace.dataset.slots import Planned
from headrace.dataset.source import Rows
from headrace.dataset.stages import TakesColumns

_MOST_KNOWN = 1 << 21
"""Objects: 32 MB of digests."""
_MOST_KINDS = 255


class Wholes(NamedTuple):
    """Samples whose parts have the same names. `keys`: their ``__key__``, [n]; `names`: of the parts. Key in the store,
    version and size in bytes of every part, sample after sample, [n · len(names)]; `extra`: values by name, [n] each.
    """

    keys: list[str]
    names: tuple[str, ...]
    objects: list[str]
    versions: list[str]
    sizes: list[int]
    extra: dict[str, list[Any]]


class Known:
    """What was worked out of samples before: the names of their parts, and what the cache calls these. 16 bytes an
    object, of which only what was asked for is taken; nothing where there are too many objects. Any thread.
    """

    def __init__(self, samples: int, objects: int) -> None:
        few = objects <= _MOST_KNOWN
        self.digests: Digests = np.zeros((objects if few else 0, DIGEST), np.uint8)
        """By row of the objects, [objects, 16]; of samples that `names` knows."""
        self._kinds = np.zeros(samples if few else 0, np.uint8)
        self._names: list[tuple[str, ...]] = []

    def names(self, rows: Rows) -> tuple[str, ...] | None:
        """The names that the parts of all these samples have; None where they differ, or one is not known."""
        if not len(self._kinds) or not len(rows):
            return None
        kinds = self._kinds[rows]
        kind = int(kinds[0])
        return self._names[kind - 1] if kind and (kinds == kind).all() else None

    def note(self, rows: Rows, objects: Rows, names: tuple[str, ...], digests: Digests) -> None:
        """The samples at `rows` have parts of these names, the objects at `objects`, one sample after the other."""
        if not len(self._kinds):
            return
        if names not in self._names:
            if len(self._names) == _MOST_KINDS:
                return
            self._names.append(names)
        self.digests[objects] = digests
        self._kinds[rows] = self._names.index(names) + 1  # last: others may be looking


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
