"""Batches of samples as Arrow tables, in the way of Ray Data: arrays of one shape are tensors of its own type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from headrace.base.arrow import Schema, Table, pa

ITEM: Final = "item"
"""The column of samples that are no dicts, as Ray Data names it."""


def block_of(ray_data: Any, batch: Any, schema: Schema | None = None) -> Table:
    """The block of a batch as `formats.columns.stacking.collate` makes it. `schema`: types of columns that are known;
    others are as Ray finds them for these values.
    """
    columns = {name: _rows(values) for name, values in _columns(batch).items()}
    typed = {name: _typed(schema, name, values) for name, values in columns.items()}
    free = {name: values for name, values in columns.items() if typed[name] is None}
    found: Any = ray_data.block.BlockAccessor.batch_to_block(free) if free else None
    return pa.table({name: found[name] if column is None else column for name, column in typed.items()})


def _columns(batch: Any) -> Mapping[str, Any]:
    if isinstance(batch, Mapping):
        return {str(name): values for name, values in cast("Mapping[Any, Any]", batch).items()}
    if isinstance(batch, tuple):
        return {str(number): values for number, values in enumerate(cast("tuple[Any, ...]", batch))}
    return {ITEM: batch}


def _typed(schema: Schema | None, name: str, values: Any) -> Any:
    """The column, of its type in the table it comes from; None: it comes from none, or holds other values by now."""
    if schema is None or name not in schema.names or (isinstance(values, np.ndarray) and values.ndim > 1):
        return None
    try:
        return pa.array(values, schema.field(name).type)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def _rows(values: Any) -> Any:
    """A column with a value a row: what was collated below a name, as dicts or lists again."""
    if isinstance(values, np.ndarray):
        return cast("np.ndarray[Any, Any]", values)
    if isinstance(values, Mapping):
        inner = {str(name): _rows(one) for name, one in cast("Mapping[Any, Any]", values).items()}
        return [dict(zip(inner, row, strict=True)) for row in zip(*inner.values(), strict=True)]
    if isinstance(values, tuple):
        return [list(row) for row in zip(*map(_rows, cast("tuple[Any, ...]", values)), strict=True)]
    return [_plain(one) for one in cast("Sequence[Any]", values)]


def _plain(value: Any) -> Any:
    """The same with bytes for memory of what was read, which cannot travel."""
    if isinstance(value, (memoryview, bytearray)):
        return bytes(cast("memoryview", value))
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in cast("Sequence[Any]", value)]
    return value
