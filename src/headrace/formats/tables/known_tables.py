"""The kinds of table files, by name."""

from __future__ import annotations

from headrace.formats.tables.arrow_file import Ipc
from headrace.formats.tables.parquet import Parquet
from headrace.formats.tables.table_kind import TableKind

PARQUET: TableKind = Parquet()
ARROW: TableKind = Ipc()
KINDS: tuple[TableKind, ...] = (PARQUET, ARROW)


def kind_named(name: object) -> TableKind | None:
    """The kind of that name, None where there is none."""
    return next((kind for kind in KINDS if kind.name == name), None)
