"""Rows of tables by class: by the values of a column, of which no other is read. Kept as classes of folders are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from headrace.base.arrow import Column, from_numbers, pa, pc, to_numbers
from headrace.base.errors import InputError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog import CLASSES_FORMAT, MOST_CLASSES, OUTSIDE_ALL, Classes, SampleIndex, Shelf, mapped_classes
from headrace.fetch import Fetcher
from headrace.formats import OpenOptions, TableSamples, open_source
from headrace.loader.dataset import Dataset
from headrace.namespace import Namespace

_ROWS: Final = 1 << 16  # rows read at a time: one column of so many takes a megabyte or so


def class_columns(index: SampleIndex) -> tuple[str, ...]:
    """Columns of a table whose values may be classes: whole numbers, texts, yes and no. Empty: it is none."""
    if not isinstance(index, TableSamples):
        return ()
    return tuple(field.name for field in index.scheme.schema_out if _tells(field.type))


def open_column_classes(
    target: str, column: str, *, namespace: Namespace, settings: Settings, fetcher: Fetcher,
    progress: Progress = SILENT,
) -> Classes | None:  # fmt: skip
    """The rows of a snapshot's tables by the values of `column`; None: more than `MOST_CLASSES` different ones.

    The first process of a node reads that column, in bounded memory. `progress`: told of rows.

    Raises InputError: there is no such column of values that may be classes. As the loader.
    """
    index = open_source(target, namespace=namespace, settings=settings)
    if column not in class_columns(index):
        hint = f"columns that may: {', '.join(class_columns(index)) or 'none'}"
        raise InputError(f"{column!r} tells no classes", path=target, hint=hint)

    def build(folder: Path) -> dict[str, Any]:
        only = open_source(target, OpenOptions(columns=[column]), namespace=namespace, settings=settings)
        progress.total(len(only))
        batches = Dataset.of(only, target).batch(_ROWS).to_arrow().loader(prefetch=64 << 20, fetcher=fetcher)
        return {"folders": _write((one[column] for one in batches), folder, progress), "depth": None}

    name = f"classes{CLASSES_FORMAT}-{index.fingerprint}-{column.encode().hex()[:80]}"
    found = Shelf.of(settings).get(name, build)
    return mapped_classes(*found, by_folder=False)


def _tells(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind) for test in tests)


def _write(columns: Iterator[Any], folder: Path, progress: Progress) -> list[str] | None:
    """The names of all values, in the order of their numbers; None: there are too many."""
    numbers: dict[str, int] = {}
    rows, last = 0, -1
    with (folder / "first").open("wb") as first, (folder / "folder").open("wb") as file:
        for column in columns:
            for chunk in column.chunks:
                values = _numbered(chunk, numbers)
                if len(numbers) > MOST_CLASSES:
                    return None
                begins = np.flatnonzero(np.diff(values, prepend=last))
                first.write((begins + rows).astype("<i8").data)
                file.write(values[begins].data)
                rows, last = rows + len(values), int(values[-1]) if len(values) else last
                progress.advance(len(values))
        first.write(np.asarray([rows], "<i8").data)
    return list(numbers)


def _numbered(chunk: Column, numbers: dict[str, int]) -> Any:
    """The number of each value, int32 [rows]; new ones get the next. What is missing counts as a class of its own."""
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    encoded = chunk.dictionary_encode()
    names = [_written(value) for value in encoded.dictionary.to_pylist()]
    codes = [numbers.setdefault(name, len(numbers)) for name in names]
    places = encoded.indices
    if places.null_count:
        codes.append(numbers.setdefault(OUTSIDE_ALL, len(numbers)))
        places = pc.if_else(pc.is_null(places), from_numbers(np.asarray([len(codes) - 1], "<i4"))[0], places)
    return np.asarray(codes, "<i4")[to_numbers(places)] if codes else np.zeros(0, "<i4")


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
