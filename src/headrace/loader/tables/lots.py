"""Which rows of which row groups come next: positions of an epoch, many at once, cut into lots.

A lot is what is decoded, put into order and handed on together. Where rows come group after group (no shuffle) there is
a lot for each group; where they are mixed, a lot takes of each group what it needs of it, and the larger it is the less
often a group has to be read again. Where rows are neighbours a `range` stands for their numbers: making, comparing and
adding up a few arrays of them takes longer than decoding the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from headrace.formats import TableSamples
from headrace.loader.order.order import Ints, straight
from headrace.loader.pipeline.feeder import Course

MOST_ROWS = 1 << 20  # rows of a lot, at most: narrow rows would make it millions, and their numbers take memory too


class RowTake(NamedTuple):
    """Rows of one group, and their places in the lot. `run`: the rows are neighbours, and can be cut out at once."""

    group: int
    rows: Ints | range
    places: Ints | None
    """None: all of the lot's, in order."""
    run: bool


class Lot(NamedTuple):
    """Rows that are put into order together. `local`: their places in the stripe."""

    local: Ints | range
    takes: list[RowTake]


def lots(course: Course, index: TableSamples, rows_of: Callable[[], int]) -> Iterator[Lot]:
    """All that is left of the course, in order. `rows_of`: how many rows fit into a lot, asked for every time."""
    ahead = np.asarray(sorted(course.progress.ahead), np.int64)
    first, grain = course.progress.frontier, course.stream.grain
    while course.end is None or first < course.end:
        most = max(1, min(rows_of(), MOST_ROWS))
        if 1 < grain <= 4 * most:
            most = max(1, most // grain) * grain
        stop = (first // most + 1) * most
        stop = stop if course.end is None else min(stop, course.end)
        begin = _straight(course, first, stop)
        if begin is not None:
            yield from _in_order(first, range(begin, begin + stop - first), index)
            first = stop
            continue
        local = np.arange(first, stop, dtype=np.int64)
        if len(ahead):
            local = local[~np.isin(local, ahead)]
        first = stop
        if not len(local):
            continue
        _, row = course.stream.locate(course.residual.epoch, course.positions(local))
        yield from cut(local, row, index)


def _straight(course: Course, first: int, stop: int) -> int | None:
    """The row at which places [first, stop) of the stripe begin, if they are neighbouring rows."""
    residual = course.residual
    if residual.stripes > 1 or residual.holes or any(first <= one < stop for one in course.progress.ahead):
        return None
    return straight(course.stream, residual.epoch, first + residual.start, stop + residual.start)


def _in_order(first: int, row: range, index: TableSamples) -> Iterator[Lot]:
    """A lot for each row group."""
    at = row.start
    while at < row.stop:
        number = int(np.searchsorted(index.first, at, side="right")) - 1
        begin, end = int(index.first[number]), min(int(index.first[number + 1]), row.stop)
        local = range(first + at - row.start, first + end - row.start)
        yield Lot(local, [RowTake(number, range(at - begin, end - begin), None, True)])
        at = end


def cut(local: Ints, row: Ints, index: TableSamples) -> Iterator[Lot]:
    """The lots of some rows."""
    groups = index.groups_of(row)
    edges = np.concatenate([[0], np.flatnonzero(np.diff(groups)) + 1, [len(row)]]).tolist()
    numbers = groups[edges[:-1]].tolist()
    within = row - index.first[groups]
    if len(set(numbers)) == len(numbers):
        for number, start, stop in zip(numbers, edges[:-1], edges[1:], strict=True):
            yield Lot(local[start:stop], [_take(number, within[start:stop], None)])
        return
    order = np.argsort(groups, kind="stable")
    sorted_groups = groups[order]
    edges = np.concatenate([[0], np.flatnonzero(np.diff(sorted_groups)) + 1, [len(row)]]).tolist()
    takes = [
        _take(int(sorted_groups[start]), within[order[start:stop]], order[start:stop])
        for start, stop in pairwise(edges)
    ]
    takes.sort(key=_first_place)
    yield Lot(local, takes)


def _take(group: int, rows: Ints, places: Ints | None) -> RowTake:
    run = int(rows[-1] - rows[0]) == len(rows) - 1 and bool((np.diff(rows) == 1).all())
    return RowTake(group, rows, places, run)


def _first_place(take: RowTake) -> int:
    return 0 if take.places is None else int(take.places[0])
