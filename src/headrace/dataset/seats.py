"""Large rows put where their batch wants them by the thread that read them, while they are in its processor's cache.

Which batch a sample will be in, and where, is known before it is read, unless one before it is left out. So this is a
guess: `seated` looks whether it came true, and who puts batches together copies once more where it did not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dataset.batch import room

_LEAST = 64 << 10
_OPEN = 8


class Seat(NamedTuple):
    """Rows ``[at, at + held)`` of `batch`, an array of the batch's samples."""

    batch: np.ndarray[Any, Any]
    at: int
    held: int


class Seats:
    """Arrays of batches of `size` samples that are being filled; of the last few batches. Any thread."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._batches: dict[int, dict[str, list[Any]]] = {}
        """By number of the batch and name: the array, and how many of its rows are still to come."""

    def take(self, name: str, rows: np.ndarray[Any, Any], first: int) -> Seat | None:
        """Copy `rows` to their seat; `first`: the number of the first of these samples since the beginning. None: they
        are in two batches, or small, or unlike others of their batch.
        """
        seat = None
        if rows.nbytes >= _LEAST and not rows.dtype.hasobject:
            seat = self.reserve(name, rows.dtype, rows.shape[1:], first, len(rows))
        if seat is not None:
            seat.batch[seat.at : seat.at + seat.held] = rows
            self.done(name, first, len(rows))
        return seat

    def reserve(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], first: int, count: int) -> Seat | None:
        """As `take`, for `count` rows of that `shape` that whoever asks puts there, and says `done`, or does not."""
        number, at = divmod(first, self._size)
        if at + count > self._size:
            return None
        batch = self._batch(number, name, dtype, shape)
        return Seat(batch, at, count) if batch.shape[1:] == shape and batch.dtype == dtype else None

    def done(self, name: str, first: int, count: int) -> None:
        """These rows are in their seats."""
        number = first // self._size
        with self._lock:
            arrays = self._batches.get(number, {})
            if name in arrays:
                arrays[name][1] -= count
                if arrays[name][1] <= 0:  # what the consumer drops is to be free
                    del arrays[name]
            if not arrays:
                self._batches.pop(number, None)

    def _batch(self, number: int, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        with self._lock:
            if number not in self._batches:
                while len(self._batches) >= _OPEN:
                    del self._batches[min(self._batches)]
            arrays = self._batches.setdefault(number, {})
            if name not in arrays:
                size = dtype.itemsize * math.prod(shape) * self._size
                arrays[name] = [room(size, dtype).reshape((self._size, *shape)), self._size]
            return arrays[name][0]


def seated(seats: Sequence[Seat | None]) -> np.ndarray[Any, Any] | None:
    """The batch of which these are all seats, in order; None where they are not."""
    first = seats[0]
    at = 0
    for seat in seats:
        if seat is None or first is None or seat.batch is not first.batch or seat.at != at:
            return None
        at += seat.held
    return first.batch if first is not None and at == len(first.batch) else None
