"""The runner's side of rollups: what it has written as segments, written once more in the order of metrics."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

from headrace.base.verdict import judge
from headrace.store import open_store
from headrace.tracking.arrow import Table, as_schema, pa, pq
from headrace.tracking.blocks import Blocks, blocks_of
from headrace.tracking.figures import Tally
from headrace.tracking.judged import at_its_end
from headrace.tracking.points import SCHEMA
from headrace.tracking.record import Status, now
from headrace.tracking.rollups import FOLDER, write_rollup
from headrace.tracking.segments import SEGMENT, publishing
from headrace.tracking.summary import NAME, Summary
from headrace.tracking.totals import Totals

PERIOD_S: Final = 3600.0
"""A rollup an hour: a day's curve is 24 reads."""
MOST_POINTS: Final = 1_000_000
"""Of one rollup, about: who logs more has them more often, so that the runner stays small."""
_FEWEST: Final = 12
"""Segments at the end that are worth a rollup."""


class Rolling:
    """Of the segments in the local folder `segments`; `record`: the folder of its ``summary.json``. One thread."""

    def __init__(self, segments: str, record: str) -> None:
        self._segments, self._record = segments, record
        self._next = 0
        self._waiting = 0
        self._due = time.monotonic() + PERIOD_S
        self._totals, self._tally = Totals(), Tally()

    def tell(self, points: int) -> None:
        """So many more are in segments. What is due is done. Raises OSError: the disk."""
        self._waiting += points
        if self._waiting >= MOST_POINTS or time.monotonic() >= self._due:
            self._due = time.monotonic() + PERIOD_S
            self._roll(fewest=1)
            self.summarise()

    def close(self, status: Status) -> None:
        """Those that are left, and the summary of a run that has ended so. Raises OSError: the disk."""
        self._roll(fewest=_FEWEST)
        self.summarise(status)

    def summarise(self, status: Status | None = None) -> None:
        """Write the summary of what was rolled up. `status`: how the run ended; None: it goes on. Raises OSError."""
        if not self._totals.all:
            return
        figures = self._tally.figures()
        verdict = judge(figures)
        if status is not None:
            verdict = at_its_end(verdict, figures, status, open_store(f"file://{self._record}"), "")
        made = Summary.of(now(), self._next - 1, verdict, figures, self._totals.by_name())
        with publishing(os.path.join(self._record, NAME)) as file:
            file.write(made.as_json())

    def _roll(self, fewest: int) -> None:
        numbers = sorted(
            int(match[1]) for name in os.listdir(self._segments) if (match := SEGMENT.fullmatch(name))
        )  # fmt: skip
        numbers = [number for number in numbers if number >= self._next]
        for first, last, points in self._pieces(numbers):
            enough = last - first + 1 >= fewest
            blocks = write_rollup(os.path.join(self._segments, FOLDER), first, last, points) if enough else None
            self._add(blocks or blocks_of(points)[1])
            self._next, self._waiting = last + 1, 0

    def _pieces(self, numbers: list[int]) -> Iterator[tuple[int, int, Table]]:
        """First and last number, and points, of about so many segments as one rollup holds."""
        tables: list[Table] = []
        first, rows = self._next, 0
        for number in numbers:
            tables.append(_read(os.path.join(self._segments, f"{number:08d}.parquet")))
            rows += tables[-1].num_rows
            if rows >= MOST_POINTS or number == numbers[-1]:
                yield first, number, pa.concat_tables(tables)
                tables, first, rows = [], number + 1, 0

    def _add(self, blocks: Blocks) -> None:
        self._totals.add(blocks)
        self._tally.add(blocks)


def _read(path: str) -> Table:
    """Raises OSError: the disk, or what is there is no segment."""
    try:
        return as_schema(pq.ParquetFile(path).read(use_threads=False), SCHEMA)
    except pa.ArrowException as error:
        raise OSError(f"{path}: {error}") from error
