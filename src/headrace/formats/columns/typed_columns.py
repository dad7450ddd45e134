"""Batches of records whose columns have types: a column's form is the data set's, never that of the rows at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, Union, cast

import numpy as np

LIST = "list"
Form: TypeAlias = Union[str, Mapping[str, "Form"]]  # noqa: UP007  a name in quotes is no type of its own
"""What a column is in a batch: an array of that NumPy type, `LIST`, or a dict of such columns."""
Forms: TypeAlias = Mapping[str, Form]


def typed_batch(rows: Sequence[Mapping[str, Any]], forms: Forms) -> dict[str, Any]:
    """One batch: every column that has a form, and whatever else some row has, as lists; see `typed_field`."""
    names = dict.fromkeys(name for row in rows for name in row)
    return typed_columns({name: [row.get(name) for row in rows] for name in names}, len(rows), forms)


def typed_columns(columns: Mapping[str, Sequence[Any]], count: int, forms: Forms) -> dict[str, Any]:
    """As `typed_batch`, of `count` rows by columns."""
    batch = {name: typed_field(values, forms.get(name, LIST)) for name, values in columns.items()}
    for name, form in forms.items():
        if name not in batch:
            batch[name] = typed_field([None] * count, form)
    if "__shard__" in batch:  # last, as in every sample
        batch["__shard__"] = batch.pop("__shard__")
    return batch


def typed_field(values: Sequence[Any], form: Form) -> Any:
    """One column. A value that is missing is NaN in an array of floats, None in a list."""
    if not isinstance(form, str):
        rows = [cast("Mapping[str, Any]", value or {}) for value in values]
        return typed_batch(rows, form)
    if form == LIST:
        return list(values)
    dtype = np.dtype(form)
    if dtype.kind == "f":
        return np.asarray([np.nan if value is None else value for value in values], dtype)
    return np.asarray(values, dtype)
