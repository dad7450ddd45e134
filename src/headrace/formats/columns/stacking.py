"""Putting samples together: stacked where shapes and types agree, lists otherwise."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from headrace.base.memory import take

Sample: TypeAlias = Any
"""What a stage hands on: by default a dict of ``__key__``, parts by name and extra columns."""

_FLAT, _BYTES = {memoryview, np.ndarray}, {bytes}
_LARGE = 16 * 1024  # bytes of an array from which on memory is used again
_NUMBERS = (bool, int, float, complex, np.generic)


def collate(samples: Sequence[Sample]) -> Any:
    """One batch of samples, of the samples' own structure.

    Dicts of the same names → a dict; tuples of one length → a tuple, named ones of their kind; arrays (or PyTorch's
    tensors) of one shape and dtype → one with a new first axis; numbers of one type → a 1-D array; anything else
    (bytes, strings, lists, ragged arrays) → a list. As `torch.utils.data.default_collate`, but that lists stay lists,
    and that what cannot be stacked is a list instead of an error. Whether raw bytes, or lists, happen to be of one
    length never matters.
    """
    first = samples[0]
    if isinstance(first, dict):
        names = cast("dict[str, Any]", first).keys()
        if all(type(one) is dict and one.keys() == names for one in samples):
            return {name: collate_field([one[name] for one in samples]) for name in names}
        return _ragged(samples)
    if isinstance(first, tuple):
        rows, kind = cast("Sequence[tuple[Any, ...]]", samples), type(first)
        if all(type(one) is kind and len(one) == len(rows[0]) for one in rows):
            columns = [collate_field(list(column)) for column in zip(*rows, strict=True)]
            return tuple(columns) if kind is tuple else kind(*columns)
        return list(samples)
    return collate_field(list(samples))


def collate_field(values: list[Any]) -> Any:
    """One field of a batch: a stacked array, or the list itself."""
    first = values[0]
    kind = cast("type[object]", type(first))
    if kind is memoryview or kind is str or kind is bytes:
        return values
    if isinstance(first, np.ndarray):
        return _stack(values)
    if isinstance(first, _NUMBERS) and all(type(value) is kind for value in values):
        return np.asarray(values)
    if isinstance(first, (dict, tuple)):
        return collate(values)
    return _stack_tensors(values) if kind.__module__ == "torch" else values


def _stack(values: list[Any]) -> Any:
    first: np.ndarray[Any, Any] = values[0]
    shape, dtype = first.shape, first.dtype
    if dtype.hasobject or not all(
        isinstance(value, np.ndarray) and value.shape == shape and value.dtype == dtype for value in values
    ):
        return own_arrays(values)
    batch = room(len(values) * first.nbytes, dtype).reshape((len(values), *shape))
    for place, value in enumerate(values):
        batch[place] = value
    return batch


def _stack_tensors(values: list[Any]) -> Any:
    """Who has values of PyTorch's has loaded it."""
    torch: Any = sys.modules["torch"]
    first = values[0]
    alike = isinstance(first, torch.Tensor) and all(
        isinstance(one, torch.Tensor) and (one.shape, one.dtype, one.device) == (first.shape, first.dtype, first.device)
        for one in values
    )
    return torch.stack(values) if alike else values


def own_arrays(value: Any) -> Any:
    """A sample, or a value of one, with arrays that may be changed: those that share the read-only memory of what was
    read are copied.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.writeable else value.copy()
    if type(value) is dict:
        return {name: own_arrays(one) for name, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [own_arrays(one) for one in cast("list[Any]", value)]
    if type(value) is tuple:
        return tuple([own_arrays(one) for one in cast("tuple[Any, ...]", value)])
    return value


def join_rows(pieces: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
    """One field of a batch from arrays whose rows are its values: the same as `collate_field` of these. None where
    they do not agree in shape and type.
    """
    first, count = pieces[0], sum(map(len, pieces))
    shape, dtype = first.shape[1:], first.dtype
    if dtype.hasobject or any(one.shape[1:] != shape or one.dtype != dtype for one in pieces):
        return None
    batch = room(count * (first.nbytes // len(first)), dtype).reshape((count, *shape))
    at = 0
    for one in pieces:
        batch[at : at + len(one)] = one
        at += len(one)
    return batch


def room(size: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An array of `size` bytes. Large ones are of memory used before, which comes back when the batch is gone: fresh
    pages take longer than what is copied into them.
    """
    return np.frombuffer(take(size), dtype) if size >= _LARGE else np.empty(size // max(dtype.itemsize, 1), dtype)


def _ragged(samples: Sequence[Sample]) -> Any:
    """Dicts whose names differ: lists by name, None where a sample has no such name; anything else: a list."""
    if not all(isinstance(one, Mapping) for one in samples):
        return list(samples)
    names = dict.fromkeys(name for one in samples for name in one)
    return {name: collate_field([one.get(name) for one in samples]) for name in names}


def size_of(value: Any) -> int:
    """Bytes held by the arrays and buffers of a sample; everything else counts as nothing."""
    if isinstance(value, dict):
        total = 0
        for one in cast("dict[Any, Any]", value).values():
            if type(one) is memoryview:
                total += one.nbytes
            elif type(one) is not str:
                total += size_of(one)
        return total
    if isinstance(value, (memoryview, np.ndarray)):
        return value.nbytes
    if isinstance(value, (bytes, bytearray)):
        return len(value)
    if isinstance(value, (list, tuple)):
        values = cast("list[Any]", value)
        kinds = set(map(type, values))
        if kinds <= _FLAT:
            return sum([one.nbytes for one in values])
        if kinds == _BYTES:
            return sum(map(len, values))
        return sum(size_of(one) for one in values)
    nbytes = getattr(value, "nbytes", 0)
    return nbytes if isinstance(nbytes, int) else 0
