"""Columns that are folders: ``year=2024/month=1/part-0.parquet``, as Hive and Spark lay them out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np

from headrace.base.arrow import Column, from_numbers, from_texts, pa
from headrace.base.errors import CorruptError

_NULL = "__HIVE_DEFAULT_PARTITION__"
_WHOLE = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True)
class Partitions:
    """The folders' columns. `values`: of each file, in the order of `names`; ints or strings, None: null."""

    names: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]

    def type_of(self, name: str) -> Any:
        """Arrow's type: int64 where all values are whole numbers, else string."""
        at = self.names.index(name)
        numbers = any(isinstance(row[at], int) for row in self.values)
        return pa.int64() if numbers else pa.string()

    def constant(self, file: int, name: str, rows: int) -> Column:
        """The column of one file's row group."""
        value, kind = self.values[file][self.names.index(name)], self.type_of(name)
        if value is None:
            return pa.nulls(rows, kind)
        if isinstance(value, int):
            return from_numbers(np.full(rows, value, np.int64))
        return pa.repeat(from_texts([value]).cast(kind)[0], rows)


def partitions_of(files: Sequence[str]) -> Partitions:
    """Those of files named by their keys below the root.

    Raises:
        CorruptError: a file lies in other folders than the first.
    """
    rows: list[tuple[str | None, ...]] = []
    names: tuple[str, ...] = ()
    for file in files:
        pairs = [folder.split("=", 1) for folder in file.split("/")[:-1] if "=" in folder]
        found = tuple(name for name, _ in pairs)
        if not rows:
            names = found
        if found != names:
            raise CorruptError(
                f"lies in folders of ({', '.join(found)}), where {files[0]} has ({', '.join(names)})",
                path=file,
                hint="open the folder above which all files are laid out alike",
            )
        rows.append(tuple(None if value == _NULL else unquote(value) for _, value in pairs))
    whole = [all(row[at] is None or _WHOLE.fullmatch(row[at] or "") for row in rows) for at in range(len(names))]
    whole = [is_whole and any(row[at] is not None for row in rows) for at, is_whole in enumerate(whole)]
    return Partitions(names, tuple(tuple(map(_value, row, whole)) for row in rows))


def _value(text: str | None, is_whole: bool) -> int | str | None:
    return int(text) if is_whole and text is not None else text
