"""The kinds of table files, by name."""

from __future__ import annotations

from headrace.dataset.tables.ipc import Ipc
from headrace.dataset.tables.kind import Kind
from headrace.dataset.tables.parquet import Parquet

PARQUET: Kind = Parquet()
ARROW: Kind = Ipc()
KINDS: tuple[Kind, ...] = (PARQUET, ARROW)


def kind_named(name: object) -> Kind | None:
    """The kind of that name, None where there is none."""
    return next((kind for kind in KINDS if kind.name == name), None)
