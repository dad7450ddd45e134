"""Samples of whole objects that the node's cache holds: planned and read some dozens at a time.

For a single small object that lies on the local disk, a slot, reads and their answers cost more than reading it. Here
nothing is made for a single one as long as all of a group is in the cache. What is not, goes the way of all others: see
`headrace.dataset.feed.separate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard

from headrace.dataset.slots import Planned
from headrace.dataset.source import Rows, SampleIndex
from headrace.dataset.stages import TakesColumns
from headrace.store.protocol import Store


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


class HasWholes(Protocol):
    """A `headrace.dataset.source.SampleIndex` whose samples are whole objects. Any thread."""

    @property
    def store(self) -> Store: ...

    def wholes(self, rows: Rows) -> Wholes | None:
        """The samples at `rows`. None where names of parts or extra fields differ, or an object's size or version is
        not known. Raises IndexError for a row out of range.
        """
        ...


def has_wholes(index: SampleIndex) -> TypeGuard[HasWholes]:
    """Whether it says of itself that it is one."""
    return getattr(index, "wholes", None) is not None


class ObjectGroup(Planned):
    """Consecutive samples, to be filled from the cache on one thread, and opened on the same or another."""

    __slots__ = ("_data", "store", "wholes")

    def __init__(self, number: int, store: Store, wholes: Wholes, leaf: int, local: list[int], rows: Rows) -> None:
        super().__init__(number, sum(wholes.sizes), leaf, local, rows)
        self.store, self.wholes = store, wholes
        self._data: Sequence[Any] = ()

    def fill(self, data: Sequence[memoryview]) -> None:
        """The bytes of all parts."""
        self._data = data

    def open(self) -> None:
        """Make the samples; a second call does nothing."""
        if not self.slots and self.open_columns(()):
            self.spread()

    def open_columns(self, stages: Sequence[TakesColumns]) -> bool:
        keys, names, *_, extra = self.wholes
        step = len(names)
        columns: dict[str, Sequence[Any]] = {"__key__": keys}
        for place, name in enumerate(names):
            columns[name] = list(self._data[place::step])
        columns.update(extra)
        if not self.through(stages, columns):
            return False
        self._data = ()
        return True


def groups_of(index: HasWholes, leaf: int, local: list[int], rows: Rows, first: int, limit: int) -> list[ObjectGroup]:
    """The samples at `rows`, in groups of `limit`, the first numbered `first`; none where that cannot be done."""
    groups: list[ObjectGroup] = []
    for start in range(0, len(local), limit):
        part = slice(start, start + limit)
        wholes = index.wholes(rows[part])
        if wholes is None:
            return []
        groups.append(ObjectGroup(first + len(groups), index.store, wholes, leaf, local[part], rows[part]))
    return groups
