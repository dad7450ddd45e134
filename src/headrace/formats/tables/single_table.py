"""One table named by itself, ``…/clicks.parquet``: its rows, unless it is a table of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from headrace.base.arrow import pa
from headrace.base.errors import InputError, NotFoundError
from headrace.base.progress import Progress
from headrace.base.settings import Settings
from headrace.catalog import Shelf
from headrace.formats.index.index_job import Shard
from headrace.formats.open_options import Columns, OpenOptions
from headrace.formats.tables.footers import Job
from headrace.formats.tables.known_tables import PARQUET, kind_named
from headrace.formats.tables.row_filter import where_of
from headrace.formats.tables.table_kind import TableKind
from headrace.formats.tables.table_samples import TableSamples
from headrace.formats.tables.table_view import Wanted
from headrace.namespace import Namespace

_PATHS = "path"


class _Asked(NamedTuple):
    target: str
    options: OpenOptions
    wanted: Wanted
    namespace: Namespace
    settings: Settings
    progress: Progress


class Single(_Asked):
    """What was asked for, where that may be one table. One thread."""

    @property
    def _kind(self) -> TableKind | None:
        """What the object would be, by the format asked for, else by its name."""
        if self.options.format is not None:
            kind = kind_named(self.options.format)
            return kind if kind is not None and self.target.lower().endswith(kind.suffixes) else None
        return PARQUET if self.target.lower().endswith(".parquet") and self.options.by == "stem" else None

    @cached_property
    def _file(self) -> Shard | None:
        at = self.namespace.resolve(self.target)
        try:
            info = at.store.head(at.key)
        except NotFoundError:
            return None
        return Shard(at.key, info.size, info.version)

    @property
    def is_folder(self) -> bool:
        """Whether it is named like a Parquet file and yet no object: Spark names its folders so."""
        return self.target.lower().endswith(".parquet") and self._file is None

    def samples(self) -> TableSamples | None:
        """Its rows; None where it is no such object, or a table of paths.

        Raises as `headrace.formats.tables.table_view.open_view`.
        """
        kind = self._kind
        if kind is None or self._file is None:
            return None
        by = self.options.by
        if by != "stem":
            raise InputError(f"by={by!r} is about objects, not about rows", path=self.target, hint="leave it out")
        store, key = self.namespace.resolve(self.target).store, self._file.key
        prefix = key[: key.rfind("/") + 1]
        rows = TableSamples(
            Job(store, prefix, kind, [self._file], self.settings, self.progress), self.wanted, Shelf.of(self.settings)
        )
        if self.options.format is None and self.wanted == Wanted() and _names_paths(rows):
            return None
        return rows


def wanted_of(columns: Columns | None, where: Sequence[Any] | None) -> Wanted:
    """What the user wrote. Raises InputError for anything but names, or names and types, and terms."""
    if columns is None:
        return Wanted(None, where_of(where))
    if isinstance(columns, Mapping):
        return Wanted(None, where_of(where), dict(columns))
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise InputError(f"columns={columns!r}", hint='a list of names: columns=["label", "i1"]')
    return Wanted(tuple(columns), where_of(where))


def _names_paths(rows: TableSamples) -> bool:
    schema = rows.scheme.schema
    if _PATHS not in schema.names:
        return False
    kind = schema.field(_PATHS).type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
