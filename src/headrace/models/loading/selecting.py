"""What is wanted of tensors, as bytes: an index as NumPy takes it, and the pieces of the file that hold what it names.

What lies together is read as it lies. Of rows that are wanted in part, whole rows are read and cut where the bytes
between cost less than another request, else each stretch for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from types import EllipsisType
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.base.errors import InputError, UnsupportedError
from headrace.models.loading.header import BITS, Tensor
from headrace.models.loading.runs import PART, Piece, contiguous
from headrace.store.protocol import Buffer

Index: TypeAlias = "slice | int | EllipsisType | tuple[slice | int | EllipsisType, ...]"
_Bounds: TypeAlias = "tuple[tuple[int, int], ...]"
_GAP: Final = 512 << 10
"""Bytes that are worth a request of their own when they need not be read."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is wanted of a tensor. `bounds`: (first, last) of each axis; `shape`: of the result."""

    tensor: Tensor
    bounds: _Bounds
    shape: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor, index: Index | None = None, path: str | None = None) -> Wanted:
        """All of it, or what an index names.

        Raises:
            InputError: the index is out of bounds, has too many axes, or steps. UnsupportedError: elements of less than
            a byte.
        """
        if index is None:
            return Wanted(tensor, tuple((0, extent) for extent in tensor.shape), tensor.shape)
        if BITS[tensor.dtype] % 8:
            raise UnsupportedError(f"tensor {tensor.name!r} of {tensor.dtype} cannot be read in slices", path=path)
        axes = _axes(tensor, index, path)
        bounds = tuple(
            _bound(tensor, number, extent, axis, path)
            for number, (axis, extent) in enumerate(zip(axes, tensor.shape, strict=True))
        )
        kept = zip(bounds, axes, strict=True)
        return Wanted(tensor, bounds, tuple(last - first for (first, last), axis in kept if isinstance(axis, slice)))

    @property
    def whole(self) -> bool:
        """Whether it is all of the tensor."""
        return all(one == (0, extent) for one, extent in zip(self.bounds, self.tensor.shape, strict=True))

    @property
    def size(self) -> int:
        """Bytes."""
        return self.tensor.size if self.whole else prod(self.shape) * BITS[self.tensor.dtype] // 8

    def together(self) -> tuple[int, int] | None:
        """Where it lies in the file, if it lies together: (start, stop) in bytes."""
        if self.whole or not self.size:
            return self.tensor.start, self.tensor.start + self.size
        pieces = list(self.pieces())
        if any(one.put is not None for one in pieces):
            return None
        joined = all(one.stop == two.start for one, two in pairwise(pieces))
        return (pieces[0].start, pieces[-1].stop) if joined else None

    def pieces(self) -> Iterator[Piece]:
        """What brings it into memory of its `size`."""
        if self.whole:
            yield from contiguous(self.tensor.start, self.tensor.stop)
        elif self.size:
            item = BITS[self.tensor.dtype] // 8
            yield from _pieces(self.tensor.start, self.tensor.shape, self.bounds, item, 0)


def _axes(tensor: Tensor, index: Index, path: str | None) -> list[slice | int]:
    given: list[Any] = list(index) if isinstance(index, tuple) else [index]
    if given.count(...) > 1:
        raise InputError(f"the index of {tensor.name!r} has more than one ellipsis", path=path)
    missing = len(tensor.shape) - len(given) + given.count(...)
    if missing < 0:
        raise InputError(f"{tensor.name!r} has {len(tensor.shape)} axes, its index {len(given)}", path=path)
    at = given.index(...) if ... in given else len(given)
    return [*given[:at], *[slice(None)] * missing, *given[at + 1 :]]


def _bound(tensor: Tensor, number: int, extent: int, axis: slice | int, path: str | None) -> tuple[int, int]:
    if isinstance(axis, slice):
        first, last, step = axis.indices(extent)
        if step != 1:
            hint = "read it with step 1, and index the result"
            raise InputError(f"the index of {tensor.name!r} has step {step} on axis {number}", path=path, hint=hint)
        return first, max(first, last)
    place = axis + extent if axis < 0 else axis
    if not 0 <= place < extent:
        raise InputError(f"index {axis} is outside axis {number} of {tensor.name!r}, which has {extent}", path=path)
    return place, place + 1


def _pieces(base: int, shape: Sequence[int], bounds: _Bounds, item: int, at: int) -> Iterator[Piece]:
    """Of a tensor that begins at byte `base`, to byte `at` of the memory."""
    while shape and bounds[0][1] - bounds[0][0] == 1:
        base += bounds[0][0] * prod(shape[1:]) * item
        shape, bounds = shape[1:], bounds[1:]
    row = prod(shape[1:]) * item
    wanted = prod(last - first for first, last in bounds[1:]) * item
    first, last = bounds[0] if bounds else (0, 1)
    if wanted == row:
        start, stop = base + first * row, base + last * row
        yield from (one.moved(at) for one in contiguous(start, stop))
    elif row - wanted >= _GAP or row > PART:
        for number in range(first, last):
            yield from _pieces(base + number * row, shape[1:], bounds[1:], item, at + (number - first) * wanted)
    else:
        together = max(1, PART // row)
        for number in range(first, last, together):
            until = min(number + together, last)
            put = partial(_cut, tuple(shape[1:]), bounds[1:], item, at + (number - first) * wanted)
            yield Piece(base + number * row, base + until * row, put=put)


def _cut(shape: tuple[int, ...], bounds: _Bounds, item: int, at: int, memory: memoryview, data: Buffer) -> None:
    """Of whole rows, what `bounds` name, to byte `at` of the memory."""
    of = np.dtype((np.void, item))
    whole = np.frombuffer(data, of).reshape(-1, *shape)
    cut = whole[(slice(None), *(slice(first, last) for first, last in bounds))]
    np.frombuffer(memory, of, cut.size, at).reshape(cut.shape)[...] = cut
