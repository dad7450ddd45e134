"""The run of tables that nobody looks at row by row: row groups in (`bringing`), batches out, columns at a time.

It hands out the same rows in the same batches, and the same states, as `loader.pipeline.pipeline.Pipeline`, and wants
the same byte window. Batches are cut out of lots, mostly without a copy.
"""

from __future__ import annotations

import time
from functools import partial
from typing import cast

from headrace.fetch import Fetcher
from headrace.formats import TableSamples, as_table
from headrace.loader.order.progress_state import Progress
from headrace.loader.pipeline.bad_samples import Skipped
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.decode_effort import Effort, Spent
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.pipeline import FINISHED, Finished, Pipeline, Plan
from headrace.loader.pipeline.stats import Meter, Stats, summarise
from headrace.loader.pipeline.worker_processes import Workers
from headrace.loader.tables.bringing import THREADS, Bringing, Piece
from headrace.loader.tables.stretch import Cut, Stretch, batch_of


def start(
    plan: Plan, course: Course, fetcher: Fetcher, ledger: list[Skipped], workers: Workers | None = None
) -> Pipeline | ColumnarRun:
    """One epoch's run in this process: by columns where that can be."""
    index = index_of(plan)
    if index is None:
        return Pipeline(plan, course, fetcher, ledger, workers)
    return ColumnarRun(plan, course, fetcher, index, arrow=False)


def index_of(plan: Plan) -> TableSamples | None:
    """The table whose rows a plan hands on as they are; None where it does more, or has more sources than one."""
    if len(plan.leaves) != 1 or plan.stages or plan.batch is None or plan.skip is not None:
        return None
    if plan.packing is not None or plan.after:
        return None
    leaf = plan.leaves[0]
    table = as_table(leaf.index)
    return table if table is not None and leaf.window is None and leaf.stages == table.stages else None


class ColumnarRun:
    """A `headrace.loader.loader.Running` over one table. One consumer; `close` from any thread."""

    def __init__(self, plan: Plan, course: Course, fetcher: Fetcher, index: TableSamples, *, arrow: bool) -> None:
        self.meter = Meter(partial(fetcher.metrics.get, "cache.bytes_filled"))
        self._plan, self._course, self._fetcher = plan, course, fetcher
        self._before = fetcher.stats().counters
        self._batch = plan.batch or 1
        self._bringing = Bringing(plan, course, fetcher, index, self.meter, arrow=arrow)
        self._cuts: list[Cut] = []
        self._rows = 0
        self._ahead = sorted(course.progress.ahead)
        self._even = course.progress.even
        self._trailing = False  # rows were left out after the last one that was handed out
        self._used: list[Piece] = []

    def take(self) -> Delivery | Finished:
        """The next batch. Blocks. Raises whatever ended the run."""
        self.meter.asking(self._bringing.undecoded, self._bringing.ready)
        began = time.perf_counter()
        while self._rows < self._batch:
            piece = self._bringing.next()
            if piece is None:
                break
            if piece.error is not None:
                self.close()
                raise piece.error
            self._used.append(piece)
            self._begin(cast("Stretch", piece.stretch))
        return self._deliver(began)

    def _begin(self, stretch: Stretch) -> None:
        if stretch.rows:
            self._cuts.append(Cut(stretch, 0, stretch.rows))
            self._rows += stretch.rows
        else:
            self._trailing = True

    def _deliver(self, began: float) -> Delivery | Finished:
        last = self._rows < self._batch
        if last and (not self._rows or self._plan.drop_last):
            self.meter.ended = time.perf_counter()
            self._settle(len(self._used))
            return FINISHED
        taken: list[Cut] = []
        wanted = min(self._batch, self._rows)
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
        count = sum(cut.stop - cut.start for cut in taken)
        self._rows -= count
        frontier = self._course.end if last and self._course.end is not None else self._frontier(taken[-1])
        fetched_at = done_at = 0.0
        for piece in self._used:
            fetched_at, done_at = max(fetched_at, piece.fetched_at), max(done_at, piece.done_at)
        raw, held = self._settle(len(self._used) - (1 if self._cuts else 0))
        delivery = Delivery(batch_of(taken), self._progress(frontier), (), count, raw, held, fetched_at, done_at)
        self.meter.account(began, time.perf_counter(), delivery)
        return delivery

    def _frontier(self, cut: Cut) -> int:
        return int(cut.stretch.local[cut.stop - 1]) + 1

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
        """Give back the window of the first pieces in use. Returns their stored bytes, and what they held."""
        if not count:
            return 0, 0
        done, self._used = self._used[:count], self._used[count:]
        self._bringing.settle(done)
        return sum(piece.raw for piece in done), sum(piece.held for piece in done)

    def stats(self) -> Stats:
        """Figures so far. Any thread."""
        now = self._fetcher.stats().counters
        counters = {name: value - self._before.get(name, 0.0) for name, value in now.items()}
        brought = self._bringing
        return summarise(
            self.meter,
            decode=Effort(THREADS, Spent(brought.busy_s)),
            held=brought.held,
            counters=counters,
        )

    def close(self) -> None:
        """Stop: cancel reads, wake everyone, wait for the threads (at most 1.8 s)."""
        self._bringing.close()
