"""Bytes that came in several buffers: put together only as far as somebody looks at them in one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from headrace.base.memory import copy, take


class Spread:
    """The bytes of `buffers`, one behind the other. Immutable; any thread."""

    __slots__ = ("_buffers", "_ends")

    def __init__(self, buffers: Sequence[memoryview]) -> None:
        self._buffers = [one for one in buffers if len(one)]
        self._ends = list(accumulate(map(len, self._buffers)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, where: slice) -> memoryview:
        """A view where they lie in one buffer, else a copy, read-only. `where`: bytes, without a step."""
        start, stop, _ = where.indices(len(self))
        pieces = self.pieces(start, stop)
        if len(pieces) == 1:
            return pieces[0]
        whole = take(max(0, stop - start))
        self.copy(start, [whole])
        return whole.toreadonly()

    def pieces(self, start: int, stop: int) -> list[memoryview]:
        """Bytes [start, stop), in views of as many buffers as they lie in."""
        found: list[memoryview] = []
        at = bisect_right(self._ends, start)
        while start < stop:
            first = self._ends[at] - len(self._buffers[at])
            found.append(self._buffers[at][start - first : stop - first])
            start, at = self._ends[at], at + 1
        return found

    def copy(self, start: int, targets: Iterable[memoryview]) -> None:
        """Fill `targets`, one after another, with what lies from `start` on."""
        for target in targets:
            at = 0
            for piece in self.pieces(start, start + len(target)):
                copy(target[at : at + len(piece)], piece)
                at += len(piece)
            start += len(target)
