"""What shards are to be made: plain values, from which any process that reaches the stores comes to the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.base.errors import ChangedError, UnsupportedError
from headrace.base.settings import Settings
from headrace.formats import OpenOptions, ScannedShard, open_source
from headrace.loader import Dataset
from headrace.namespace import Namespace
from headrace.pack.journal import Record
from headrace.pack.options import PackOptions
from headrace.pack.plan import Cuts, Plan, planned
from headrace.pack.schema import Schema

_AT_ONCE = 256 << 20
"""Bytes of shards that are made one after the other: seconds."""
_SHARES = 64
"""A packing is cut into so many pieces at least, as far as it has shards, so that all have some."""


@dataclass(frozen=True, eq=False)
class Orders:
    """A packing that has been planned. Pickles where `function` does.

    `source`, `destination`: as written for every process; `form`: the source's format; `terms`: of the plan; `schema`:
    the columns, where there are any; `function`: the user's.
    """

    source: str
    destination: str
    form: str | None
    options: PackOptions
    cuts: Cuts
    terms: Mapping[str, Any]
    schema: Schema | None
    function: Callable[[Any], Any] | None

    def plan(self, namespace: Namespace, settings: Settings) -> Plan:
        """The plan, over the source as this process finds it. Raises as `Dataset.open`."""
        options = OpenOptions(self.options.by, self.form)
        index = open_source(self.source, options, namespace=namespace, settings=settings)
        return planned(Dataset.of(index, self.source), self.options, self.cuts)

    def check(self, terms: Mapping[str, Any]) -> None:
        """That a plan made here is the one that was ordered.

        Raises:
            ChangedError: it has other samples. UnsupportedError: another pyarrow would write it.
        """
        other = {name for name, value in self.terms.items() if terms.get(name) != value}
        if other == {"writer"}:
            raise UnsupportedError(
                f"Parquet would be written by {terms['writer']} here, and by {self.terms['writer']} elsewhere",
                hint="have the same pyarrow on all nodes, and where the command is given",
            )
        if other:
            raise ChangedError(
                "holds other samples than when the packing was planned",
                path=self.source,
                hint="a source that changes is best packed from a snapshot: name@version",
            )


@dataclass(frozen=True, slots=True)
class Made:
    """A shard that is finished. `rows`: its index, where that is asked for and there is one."""

    record: Record
    rows: ScannedShard | None = None


def pieces_of(numbers: Sequence[int], shard_size: int) -> list[tuple[int, ...]]:
    """Shards cut into pieces of work: each some 256 MB, and no fewer pieces than 64 where there are as many shards."""
    each = max(1, min(_AT_ONCE // shard_size, len(numbers) // _SHARES))
    return [tuple(numbers[start : start + each]) for start in range(0, len(numbers), each)]
