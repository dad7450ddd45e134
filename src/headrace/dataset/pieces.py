"""Stretches of one buffer by arrays, for stages that take columns: no view is made of what nobody looks at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from headrace.dataset.order import Ints


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

    def __len__(self) -> int:
        return len(self.start)

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self.views())

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> list[memoryview]: ...
    def __getitem__(self, place: int | slice) -> memoryview | list[memoryview]:
        return self.views()[place]
