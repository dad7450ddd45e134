"""Some row groups of a set of tables, which travel by value: footers, and where the bytes lie."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import numpy as np

from headrace.catalog import Abilities, Rows, Stage
from headrace.formats.tables.row_group import RowGroup
from headrace.formats.tables.table_samples import TableSamples
from headrace.store.protocol import Store


@dataclasses.dataclass(frozen=True)
class Groups:
    """Row groups, and the stored bytes of each. Pickles."""

    groups: tuple[RowGroup, ...]
    sizes: Rows

    @staticmethod
    def of(index: TableSamples, rows: Rows) -> tuple[Groups, Rows]:
        """Those in which `rows` lie, and where the same rows are among theirs."""
        numbers = index.groups_of(rows)
        chosen, at = np.unique(numbers, return_inverse=True)
        footers: dict[str, bytes] = {}
        groups = tuple(_alone(index.group(number), footers) for number in chosen.tolist())
        found = Groups(groups, index.sizes_of_groups[chosen])
        return found, found.first[at] + rows - index.first[numbers]

    @cached_property
    def first(self) -> Rows:
        """Int64 [groups+1]: each one's first row."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum([one.rows for one in self.groups], dtype=np.int64)])


class TablePart(TableSamples):
    """The rows of some row groups. Any thread. No footer is read for it."""

    def __init__(self, store: Store, stages: tuple[Stage, ...], chosen: Groups, fingerprint: str) -> None:
        self.store, self.stages, self.fingerprint = store, stages, fingerprint
        self.scheme = chosen.groups[0].scheme
        self.first, self.sizes_of_groups = chosen.first, chosen.sizes
        self._chosen = chosen.groups
        self.group = self._chosen.__getitem__

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {len(self._chosen):,} row groups>"

    @property
    def abilities(self) -> Abilities:
        """See `SampleIndex.abilities`."""
        return Abilities(table=self, stages=self.stages, shares=True)


def _alone(group: RowGroup, footers: dict[str, bytes]) -> RowGroup:
    """The group with bytes of its file's footer, which are one object for all groups of the file."""
    footer = footers.setdefault(group.file.key, b"")
    if not footer:
        footer = footers[group.file.key] = bytes(group.footer)
    return dataclasses.replace(group, footer=footer)
