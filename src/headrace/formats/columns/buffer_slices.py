"""Stretches of one buffer by arrays, for stages that take columns: no view is made of what nobody looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from headrace.catalog import Ints


class Pieces(Sequence[memoryview]):
    """`data[start[i]:stop[i]]` for each i. `start`, `stop`: int64 [n], offsets in bytes. Immutable; any thread."""

    __slots__ = ("_views", "data", "start", "stop")

    def __init__(self, data: memoryview, start: Ints, stop: Ints) -> None:
        self.data, self.start, self.stop = data, start, stop
        self._views: list[memoryview] | None = None

    def views(self) -> list[memoryview]:
        """All of them; made once."""
        if self._views is None:
            data = self.data
            self._views = [data[a:b] for a, b in zip(self.start.tolist(), self.stop.tolist(), strict=True)]
        return self._views

    def part(self, start: int, stop: int) -> Pieces:
        """The same stretch of each. It has to lie within each."""
        return Pieces(self.data, self.start + start, self.start + stop)

    def size(self) -> int | None:
        """Bytes of each of them; None where they differ, or there are none."""
        sizes = self.stop - self.start
        return int(sizes[0]) if len(sizes) and (sizes == sizes[0]).all() else None

    def matrix(self) -> npt.NDArray[np.uint8] | None:
        """All of them as rows of one array [n, size], a view, where they are of one size and lie in even steps, as the
        records of a shard mostly do that are read in their order; None for others.
        """
        size = self.size()
        if size is None:
            return None
        steps = np.diff(self.start)
        step = int(steps[0]) if len(steps) else size
        if step < 0 or (steps != step).any():
            return None
        if not size:
            return np.empty((len(self), 0), np.uint8)
        data = np.frombuffer(self.data, np.uint8)
        return np.ndarray((len(self), size), np.uint8, data, int(self.start[0]), (step, 1))

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.views())

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> list[memoryview]: ...
    def __getitem__(self, place: int | slice) -> memoryview | list[memoryview]:
        if self._views is None and not isinstance(place, slice):
            return self.data[int(self.start[place]) : int(self.stop[place])]
        return self.views()[place]


class Weighed(list[Any]):
    """A list whose values hold so many bytes: to count them again would take as long as making them."""

    __slots__ = ("nbytes",)

    def __init__(self, values: Sequence[Any], nbytes: int) -> None:
        super().__init__(values)
        self.nbytes = nbytes
