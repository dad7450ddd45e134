"""A sample index some of whose parts are left to be read where somebody looks: `Dataset.open(lazy=)`."""

from __future__ import annotations

import dataclasses

from headrace.base.errors import InputError
from headrace.catalog.sample_abilities import Abilities
from headrace.catalog.sample_index import Rows, SampleIndex, SampleSpec
from headrace.catalog.stored_object import StoredObject


class LazySamples:
    """A `headrace.catalog.sample_index.SampleIndex`: that of `index`, where parts whose name ends in one of `suffixes`
    are `StoredObject`s instead of bytes. The same samples, so a loader's state fits both. Any thread; survives fork.

    Raises:
        InputError: samples are no single objects, or those that changed are to be reported.
    """

    def __init__(self, index: SampleIndex, suffixes: tuple[str, ...]) -> None:
        able = index.abilities
        if able.ranges is not None or able.table is not None:
            raise InputError("lazy= is for single objects; samples of shards and rows are read as they lie")
        if able.reports:
            raise InputError('lazy= and on_change="report"', hint='on_change="refuse"')
        self.index, self.suffixes = index, suffixes
        self.store, self.fingerprint = index.store, index.fingerprint
        self.pinned, self.classes = index.pinned, index.classes

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        return f"{self.index!r}, {', '.join(self.suffixes)} not read"

    @property
    def abilities(self) -> Abilities:
        """See `SampleIndex.abilities`. They are not read as whole objects."""
        return dataclasses.replace(self.index.abilities, objects=None, lazy=self)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        return [self._left(spec) for spec in self.index.specs(rows)]

    def _left(self, spec: SampleSpec) -> SampleSpec:
        key, parts, extra = spec
        left = [part for part in parts if part.name.rpartition(".")[2].lower() in self.suffixes]
        if not left:
            return spec
        fields = {part.name: StoredObject(self.store, part, pinned=self.pinned) for part in left}
        return key, tuple(part for part in parts if part.name not in fields), {**extra, **fields}

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`: of all parts, whoever reads them."""
        return self.index.sizes(rows)


def lazy_of(index: SampleIndex) -> LazySamples | None:
    """What leaves parts of an index to be read later; None where all are read."""
    found = index.abilities.lazy
    return found if isinstance(found, LazySamples) else None
