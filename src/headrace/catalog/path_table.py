"""Samples from a CSV or Parquet table with a ``path`` column: one row an object, the other columns become extra fields.

Paths are relative to the table's own folder (``../images/1.png`` is fine), or all absolute: namespace paths or URLs
within one store. Rows that share a stem make one sample, which takes its extra fields from the first of them; samples
keep the table's order. A column ``__key__`` gives them keys (`catalog.record_keys`). Nothing is listed: a part's
size is -1 and its version None.
"""

from __future__ import annotations

import hashlib
import posixpath
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import (
    Column,
    Table,
    csv,
    from_flags,
    from_numbers,
    from_texts,
    pa,
    pc,
    pq,
    scalar,
    to_flags,
    to_numbers,
)
from headrace.base.errors import CorruptError, InputError
from headrace.base.settings import Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.manifest import VERSIONED
from headrace.catalog.object_index import build_objects
from headrace.catalog.object_samples import Extras, ObjectSamples
from headrace.catalog.record_keys import KEY
from headrace.catalog.sample_grouping import open_groups
from headrace.namespace import Namespace
from headrace.store.protocol import Store

COLUMN = "path"
_EMPTY = scalar("")
_HINT = "a table needs a column named path, with one object's path a row"
_ROWS = f'{_HINT}; format="csv" takes its rows for samples'


def is_table(target: str) -> bool:
    """Whether a path or URL is taken for a table, by its name alone."""
    return target.lower().endswith((".csv", ".parquet"))


def open_table(target: str, *, by: str, namespace: Namespace, settings: Settings) -> ObjectSamples:
    """The samples that a table names.

    Raises:
        InputError: no ``path`` column, an empty or repeated path, paths of several stores. CorruptError: unreadable.
        NotFoundError: no such table. Objects are not looked for.
    """
    data = namespace.read(target)
    table = _parse(target, data)
    paths = _paths(target, table)
    store, prefix, keys = _resolve(target, paths, namespace)
    if by != "object":
        _refuse_repeats(target, keys)
    shelf = Shelf.of(settings)
    count = len(keys)
    rows = pa.record_batch(
        [keys, from_numbers(np.full(count, -1, np.int64)), pa.nulls(count, pa.large_string())], schema=VERSIONED
    )
    objects = build_objects(shelf, [rows])
    groups = open_groups(shelf, objects, by, keep_order=True)
    digest = hashlib.sha256(data).hexdigest()[:32]
    return ObjectSamples(
        store,
        prefix,
        objects,
        groups,
        fingerprint=f"{by}-table-{digest}-{objects.digest[:16]}{'-named' if KEY in table.column_names else ''}",
        pinned=False,
        extras=_extras(shelf, digest, table.drop_columns([COLUMN])),
        sorted_by_key=False,
    )


def _parse(target: str, data: memoryview) -> Table:
    source = pa.BufferReader(pa.py_buffer(data))
    try:
        if target.lower().endswith(".csv"):
            # Left to itself, Arrow would read 007 as a number.
            texts = dict.fromkeys((COLUMN, KEY), pa.large_string())
            return csv.read_csv(source, convert_options=csv.ConvertOptions(column_types=texts))
        with pq.ParquetFile(source) as file:
            return file.read()
    except pa.ArrowException as error:
        raise CorruptError(f"cannot be read: {str(error).splitlines()[0]}", path=target, hint=_HINT) from error


def _paths(target: str, table: Table) -> Column:
    if COLUMN not in table.column_names:
        known = ", ".join(table.column_names)
        hint = _ROWS if target.lower().endswith(".csv") else _HINT
        raise InputError(f"has no column {COLUMN!r} (it has: {known})", path=target, hint=hint)
    try:
        column = table[COLUMN].cast(pa.large_string()).combine_chunks()
    except pa.ArrowException as error:
        raise InputError(f"column {COLUMN!r} holds {table[COLUMN].type}, not text", path=target, hint=_HINT) from error
    if isinstance(column, pa.ChunkedArray):  # more than one buffer can hold
        column = pa.concat_arrays(column.chunks)
    empty = to_flags(pc.equal(column.fill_null(_EMPTY), _EMPTY))
    if len(column) == 0:
        raise InputError("the table has no rows", path=target, hint=_HINT)
    if empty.any():
        row = int(np.flatnonzero(empty)[0])
        raise InputError(f"row {row} has no path (rows are counted from 0)", path=target, hint=_HINT)
    return column


def _resolve(target: str, paths: Column, namespace: Namespace) -> tuple[Store, str, Column]:
    absolute = pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, "://"))
    if pc.all(absolute).as_py():
        return _absolute(target, paths, namespace)
    if pc.any(absolute).as_py():
        raise InputError("mixes relative and absolute paths", path=target, hint="make all of them relative, or none")
    at = namespace.resolve(target)
    folder = at.key[: at.key.rfind("/") + 1]
    up = pc.match_substring_regex(paths, r"(^|/)\.\.?(/|$)")
    if not pc.any(up).as_py():
        return at.store, folder, paths
    keys = [posixpath.normpath(folder + path) for path in paths.to_pylist()]
    outside = next((key for key in keys if key.startswith("../") or key == ".."), None)
    if outside is not None:
        raise InputError(f"{outside!r} lies above the store's root", path=target, hint="use absolute paths")
    if all(key.startswith(folder) for key in keys):
        return at.store, folder, from_texts([key[len(folder) :] for key in keys])
    return at.store, "", from_texts(keys)


def _absolute(target: str, paths: Column, namespace: Namespace) -> tuple[Store, str, Column]:
    first = paths[0].as_py()
    at = namespace.resolve(first)
    root = first[: len(first) - len(at.key)]
    inner = [m.path + "/" for m in namespace.mounts() if m.path.startswith(root) and root.startswith("/")]
    strangers = [pc.invert(pc.starts_with(paths, root)), *[pc.starts_with(paths, path) for path in inner]]
    for mask in strangers:
        if pc.any(mask).as_py():
            other = paths.filter(mask)[0].as_py()
            raise InputError(
                f"{first} and {other} lie in different stores", path=target, hint="make one table for each store"
            )
    return at.store, "", pc.utf8_slice_codeunits(paths, start=len(root))


def _refuse_repeats(target: str, keys: Column) -> None:
    counts = pc.value_counts(keys)
    repeated = counts.field("values").filter(from_flags(to_numbers(counts.field("counts")) > 1))
    if len(repeated):
        raise InputError(
            f"names {repeated[0].as_py()!r} more than once", path=target, hint='repeated rows need by="object"'
        )


def _extras(shelf: Shelf, digest: str, table: Table) -> Extras | None:
    """The other columns, as a mapped file: `rows` are rows of the table."""
    if not table.num_columns:
        return None

    def build(folder: Path) -> dict[str, Any]:
        with pa.OSFile(str(folder / "columns"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table.combine_chunks())
        return {"rows": table.num_rows}

    folder, _ = shelf.get(f"table-{digest}", build)
    mapped = pa.ipc.open_file(pa.memory_map(str(folder / "columns"))).read_all()

    def take(rows: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        return mapped.take(from_numbers(rows)).to_pylist()

    return take
