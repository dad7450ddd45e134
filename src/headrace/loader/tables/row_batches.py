"""Batches out of lots of rows, mostly without a copy: what the batcher's thread does where rows come as columns.

The rows, batches and states are those that `headrace.loader.pipeline.batch_builder.Builder` makes of single samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.formats import RowGroup
from headrace.loader.order.progress_state import Progress
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.slots import Group, Slot
from headrace.loader.tables.lots import Lot
from headrace.loader.tables.stretch import Cut, Stretch, batch_of


class LotGroup(Group):
    """A lot on its way, of `count` planned rows. `stretch`: its rows, once finished; or `error`, why there are none."""

    __slots__ = ("error", "groups", "left", "loads", "lot", "parts", "stretch")

    def __init__(self, number: int, lot: Lot) -> None:
        super().__init__(number, [], 0)
        self.count = len(lot.local)
        self.lot = lot
        self.groups: list[RowGroup] = []
        self.loads: list[Any] = []
        """Row groups whose memory its rows are views of."""
        self.parts: list[Any] = [None] * len(lot.takes)
        self.left = len(lot.takes)
        self.stretch: Stretch | None = None
        self.error: BaseException | None = None

    def forget(self) -> None:
        super().forget()
        self.parts, self.loads, self.stretch = [], [], None


class RowBatches:
    """A `headrace.loader.pipeline.batching.BatchMaker`. One thread.

    `release`: told of a lot whose rows are all in batches; returns the bytes of the window that go with the last one.
    """

    def __init__(
        self, size: int, course: Course, *, drop_last: bool, release: Callable[[LotGroup], int]
    ) -> None:
        self._size, self._end, self._drop_last, self._release = size, course.end, drop_last, release
        self._used: list[LotGroup] = []
        self._cuts: list[Cut] = []
        self._rows = 0
        self._ahead = sorted(course.progress.ahead)
        self._even = course.progress.even
        self._trailing = False  # rows were left out after the last one that was handed out

    @property
    def waiting(self) -> int:
        """Rows that wait for their batch to be full."""
        return self._rows

    def add(self, group: Group, _: Callable[[Slot, int], None]) -> Iterator[Delivery]:
        """Take a finished lot; the batches it completes."""
        assert isinstance(group, LotGroup)
        assert group.stretch is not None
        stretch, group.stretch = group.stretch, None
        self._used.append(group)
        if stretch.rows:
            self._cuts.append(Cut(stretch, 0, stretch.rows))
            self._rows += stretch.rows
        else:
            self._trailing = True
        while self._rows >= self._size:
            yield self._deliver(last=False)

    def finish(self) -> list[Delivery]:
        """The last, short batch."""
        return [self._deliver(last=True)] if self._rows and not self._drop_last else []

    def _deliver(self, *, last: bool) -> Delivery:
        taken: list[Cut] = []
        wanted = count = min(self._size, self._rows)
        while wanted:
            stretch, start, stop = self._cuts[0]
            end = min(stop, start + wanted)
            taken.append(Cut(stretch, start, end))
            wanted -= end - start
            if stretch.dropped is not None or self._trailing:
                self._note_dropped(stretch, end)
            if end < stop:
                self._cuts[0] = Cut(stretch, end, stop)
            else:
                self._cuts.pop(0)
        if last:
            self._even = self._even and not self._trailing
        self._rows -= count
        frontier = self._end if last and self._end is not None else _frontier(taken[-1])
        fetched_at = max(group.fetched_at for group in self._used)
        done_at = max(group.done_at for group in self._used)
        raw, held = self._settle(len(self._used) - (1 if self._cuts else 0))
        return Delivery(batch_of(taken), self._progress(frontier), (), count, raw, held, fetched_at, done_at)

    def _note_dropped(self, stretch: Stretch, until: int) -> None:
        """Rows left out after the last one of a stretch belong to what comes next, as they do row by row."""
        dropped = stretch.dropped
        self._even = self._even and not self._trailing and (dropped is None or not dropped[until - 1])
        self._trailing = dropped is not None and until == stretch.rows and dropped[-1] > dropped[until - 1]

    def _progress(self, frontier: int) -> Progress:
        ahead = self._ahead
        while ahead and ahead[0] <= frontier:
            frontier = max(frontier, ahead.pop(0) + 1)
        return Progress(frontier, tuple(ahead), self._even and not ahead)

    def _settle(self, count: int) -> tuple[int, int]:
        """Of the first lots in use: their stored bytes, and those of the window that they give back."""
        done, self._used = self._used[:count], self._used[count:]
        return sum(group.raw for group in done), sum(self._release(group) for group in done)


def _frontier(cut: Cut) -> int:
    return int(cut.stretch.local[cut.stop - 1]) + 1
