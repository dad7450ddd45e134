"""A batch as people look at it: what each of its columns is, and its samples side by side.

A batch is a plain ``dict``, and stays one: JAX (``jax.tree``) and PyTorch (``torch.utils._pytree``) look for exactly
that type, and would take a class of ours for a single value. So a batch cannot show itself; `show` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from headrace.base import cards
from headrace.base.errors import InputError
from headrace.catalog import KEY
from headrace.loader.shown.arrays_shown import told
from headrace.loader.shown.showing import Grid

_HINT: Final = "a dict or tuple of columns of one length, a list of samples, a table, or one sample"
_ONE: Final = (str, bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class ColumnShown:
    """One name of a batch, and what stands under it."""

    name: str
    told: str


@dataclass(frozen=True, slots=True, repr=False)
class BatchShown:
    """`count`: samples in the batch; `grid`: the first of them. As text a line for each column, and for each sample."""

    count: int
    columns: tuple[ColumnShown, ...]
    grid: Grid

    def __repr__(self) -> str:
        columns = [f"{one.name}: {one.told}" for one in self.columns]
        return "\n".join([f"{self.count:,} samples", *columns, "", repr(self.grid), *self._rest()])

    def _repr_html_(self) -> str:
        rows = [(one.name, one.told) for one in self.columns]
        table = cards.table(f"{self.count:,} samples", ("name", "what"), rows, note="".join(self._rest()))
        return f"<div>{table}{self.grid._repr_html_()}</div>"  # pyright: ignore[reportPrivateUsage]

    def _rest(self) -> list[str]:
        shown = len(self.grid.samples)
        return [f"the first {shown:,} samples of {self.count:,}"] if shown < self.count else []


def show(batch: Any, n: int = 12) -> BatchShown | Grid:
    """A batch of any loader, to be looked at: its columns, and the first `n` samples, in a notebook as pictures and
    text, else as lines. Samples alone, one or a list of them, are shown as `Dataset.show` does.

    Args:
        batch: a dict or a tuple of columns (arrays of NumPy, PyTorch, JAX, TensorFlow, lists), or a ``pyarrow.Table``.
        n: samples that are shown. Of a batch on a device only these are copied.

    Raises:
        InputError: it is neither.
    """
    if hasattr(batch, "column_names") and hasattr(batch, "to_pylist"):
        table = batch
        columns = tuple(ColumnShown(str(one.name), str(one.type)) for one in table.schema)
        return BatchShown(table.num_rows, columns, Grid(_named(table.slice(0, n).to_pylist())))
    if isinstance(batch, list) and all(isinstance(one, Mapping) for one in cast("list[Any]", batch)):
        return Grid(_named(cast("list[Mapping[str, Any]]", batch)[:n]))
    by_name = _columns(batch)
    if KEY in by_name and isinstance(by_name[KEY], str):
        return Grid([by_name])
    count = _length(by_name)
    first = {name: _first(column, min(n, count)) for name, column in by_name.items()}
    samples = [{name: column[at] for name, column in first.items()} for at in range(min(n, count))]
    columns = tuple(ColumnShown(name, _told(column)) for name, column in by_name.items())
    return BatchShown(count, columns, Grid(_named(samples)))


def _columns(batch: Any) -> dict[str, Any]:
    """By name; those of dicts in dicts with dots. Raises InputError."""
    if isinstance(batch, (tuple, list)):
        batch = {str(number): one for number, one in enumerate(cast("Sequence[Any]", batch))}
    if not isinstance(batch, Mapping) or not batch:
        raise InputError(f"{type(batch).__name__} is no batch", hint=_HINT)
    found: dict[str, Any] = {}
    for name, column in cast("Mapping[Any, Any]", batch).items():
        if isinstance(column, Mapping):
            found |= {f"{name}.{below}": one for below, one in _columns(column).items()}
        else:
            found[str(name)] = column
    return found


def _length(columns: Mapping[str, Any]) -> int:
    """That all columns have. Raises InputError."""
    lengths = {len(one) if _is_column(one) else -1 for one in columns.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise InputError("its columns have no common length", hint=_HINT)
    return lengths.pop()


def _is_column(value: Any) -> bool:
    if isinstance(value, _ONE):
        return False
    shape = getattr(value, "shape", None)
    return len(shape) > 0 if shape is not None else hasattr(value, "__len__")


def _first(column: Any, n: int) -> Any:
    """The first `n` values, in this machine's memory."""
    some = column[:n]
    return some if isinstance(some, (list, tuple, np.ndarray)) else _on_host(some)


def _on_host(tensor: Any) -> np.ndarray[Any, Any]:
    if hasattr(tensor, "detach"):  # PyTorch's, which NumPy cannot take from a device, nor all of its types
        tensor = tensor.detach().cpu()
        try:
            return tensor.numpy()
        except TypeError:
            return tensor.float().numpy()
    return np.asarray(tensor)


def _told(column: Any) -> str:
    if isinstance(column, np.ndarray):
        return told(cast("np.ndarray[Any, Any]", column))
    if hasattr(column, "shape") and hasattr(column, "dtype"):
        device = getattr(column, "device", None)
        shape = " × ".join(map(str, column.shape))
        return f"{type(column).__name__} {column.dtype} {shape}" + (f" on {device}" if device is not None else "")
    kinds = sorted({type(one).__name__ for one in column})
    return f"list of {', '.join(kinds) or 'nothing'}"


def _named(samples: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """With keys: the number of each where there are none."""
    return [one if KEY in one else {KEY: number, **one} for number, one in enumerate(samples)]
