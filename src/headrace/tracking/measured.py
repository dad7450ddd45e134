"""All that a run has logged, however much that is, without its points in memory: blocks of what is rolled up, mapped
from files of this node, and the points that came since.

A run that nobody has rolled up (an older one, or one that logs very much) is rolled up here, into the same folder. All
that lies there can be made anew from the bucket.
"""

from __future__ import annotations

import os
import shutil
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from headrace.base.errors import CorruptError, NotFoundError, UnsupportedError
from headrace.base.figures import Figures
from headrace.store import open_store
from headrace.store.protocol import Store
from headrace.tracking.arrow import Table, pa, to_array, to_valid
from headrace.tracking.blocks import BLOCK, Array, Blocks, blocks_of, points_of
from headrace.tracking.curves import MOST, Axis, Curve, axis_of, curve_of, inside
from headrace.tracking.figures import NAMES, Tally
from headrace.tracking.mapped import mapped
from headrace.tracking.points import table
from headrace.tracking.reading import SegmentReader
from headrace.tracking.rollups import FOLDER, Rollup, rollups, write_rollup
from headrace.tracking.stretches import Stretches
from headrace.tracking.totals import Total, Totals

_AT_ONCE: Final = 256
"""Segments that are asked for before it is seen how much they hold."""
_MOST_ROWS: Final = 200_000  # points
_MOST_SEGMENTS: Final = 720
"""What has come since the last rollup, at most: about 20 MB."""
_LOOKED_EVERY: Final = 12
"""Polls between two listings: a rollup may have come."""
_NEAR: Final = 8
"""Rollups, mostly of an hour, of which each point is looked at for stretches."""
_KEPT: Final = 8 << 20
"""Bytes of points that were read for a closer look."""


@dataclass(frozen=True)
class Piece:
    """A stretch of the run: a rollup, in short."""

    rollup: Rollup
    blocks: Blocks

    @cached_property
    def places(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Where the blocks of a metric of a rank lie."""
        found: dict[tuple[str, int], tuple[int, int]] = {}
        at = 0
        for name, rank, array in self.blocks.groups():
            found[name, rank] = at, at + len(array)
            at += len(array)
        return found

    @cached_property
    def times(self) -> tuple[int, int]:
        """Of its first and last point, microseconds since the epoch."""
        array = self.blocks.array
        return int(array["time0"].min(initial=1 << 62)), int(array["time"].max(initial=0))

    def of(self, name: str, rank: int) -> Array:
        """The blocks of a metric of a rank."""
        start, stop = self.places.get((name, rank), (0, 0))
        return self.blocks.array[start:stop]


@dataclass(frozen=True, slots=True)
class _Known:
    """At one time. `tail`: a block a point. `totals`, `tally`: of all of it."""

    pieces: tuple[Piece, ...] = ()
    tail: Blocks = field(default_factory=lambda: Blocks((), np.zeros(0, BLOCK)))
    totals: Totals = field(default_factory=Totals)
    tally: Tally = field(default_factory=Tally)

    def tail_of(self, name: str, rank: int) -> Array:
        """The blocks of a metric of a rank in the tail."""
        array = self.tail.array
        code = self.tail.names.index(name) if name in self.tail.names else -1
        return array[(array["code"] == code) & (array["rank"] == rank)]


class Measured:
    """Of one run. `refresh` one thread at a time; all else any thread, beside it.

    Args:
        store: where the run is.
        prefix: ``<home>/runs/<id>/metrics/``.
        folder: where it keeps what it can make anew; made if need be.
    """

    def __init__(self, store: Store, prefix: str, folder: str) -> None:
        self._store, self._prefix, self._folder = store, prefix, folder
        self._known = _Known()
        self._base = _Known()
        """Of the pieces alone."""
        self._segments: SegmentReader | None = None
        self._tail: dict[int, Table] = {}
        self._polls = 0
        self._is_stale = False
        """Whether something was found that `_known` lacks."""
        self._close: OrderedDict[tuple[str, int, int], Array] = OrderedDict()
        self.version = 0
        """Another one after each `refresh` that found something."""

    def refresh(self) -> None:
        """Ask the store for what is new. Raises any store error, CorruptError, UnsupportedError, OSError: the disk."""
        if self._polls % _LOOKED_EVERY == 0:
            self._take(rollups(self._store, self._prefix, after=self._upto))
            if self._segments is None:
                self._take_own()
                self._segments = SegmentReader(self._store, self._prefix, after=self._upto)
        self._polls += 1
        assert self._segments is not None
        try:
            while new := self._segments.poll(_AT_ONCE):
                self._is_stale = True
                self._tail |= {number: one for number, one in new.items() if number > self._upto}
                self._roll_up()
            self._roll_up()  # what a full disk has kept waiting
        finally:  # what was read before something failed is not read again
            if self._is_stale:
                self._know()

    # what there is

    @property
    def metrics(self) -> dict[str, Total]:
        """By name, of each that of the lowest rank that logged it."""
        return self._known.totals.by_name()

    @property
    def totals(self) -> dict[tuple[str, int], Total]:
        """By name and rank."""
        return dict(self._known.totals.all)

    @property
    def ranks(self) -> list[int]:
        """Of all processes that logged anything."""
        return sorted({rank for _, rank in list(self._known.totals.all)})

    @property
    def span(self) -> tuple[int, int] | None:
        """Times of the first and the last point, microseconds since the epoch; None: there is none."""
        known = self._known
        times = [one.times for one in known.pieces if len(one.blocks.array)]
        if len(known.tail.array):
            times.append((int(known.tail.array["time"].min()), int(known.tail.array["time"].max())))
        return (min(first for first, _ in times), max(last for _, last in times)) if times else None

    def figures(self, rank: int | None = None) -> Figures:
        """Of all of the run; what its processes tell of one rank only. None: of all."""
        known = self._known
        if rank is None:
            return known.tally.figures()
        tally = Tally(rank)
        for one in (*(piece.blocks for piece in known.pieces), known.tail):
            tally.add(one)
        return tally.figures()

    def curve(
        self, name: str, axis: Axis = "step", *, start: float | None = None, stop: float | None = None, most: int = MOST
    ) -> Curve:
        """A metric as it is drawn, of the lowest rank that logged it: `headrace.tracking.curves.curve`.

        Where fewer blocks than `most` lie in the stretch their points are read. Raises any store error, CorruptError.
        """
        known = self._known
        rank = min((rank for named, rank in list(known.totals.all) if named == name), default=0)
        tail = known.tail_of(name, rank)
        parts = [one.of(name, rank) for one in known.pieces]
        stands: Axis = axis if any(axis_of(part, axis) == axis for part in (*parts, tail)) else "time"
        wanted = [inside(part, stands, start, stop) for part in parts]
        total = sum(int(part["points"].sum()) for part in parts) + len(tail)
        if sum(int(one.sum()) for one in wanted) < most:
            some = zip(known.pieces, parts, wanted, strict=True)
            parts = [self._closer(piece, part[one]) for piece, part, one in some]
        return curve_of(name, [*parts, tail], stands, start=start, stop=stop, most=most, total=total)

    def around(self, name: str, rank: int, step: int) -> tuple[Array, int]:
        """The points of a metric just before a step, and from it on, a block each; and how often the step was reached:
        more than once where steps begin again, of which the last counts. Where it was not, the last point there is.

        Raises any store error, CorruptError.
        """
        known = self._known
        parts: list[tuple[Piece | None, Array]] = [(one, one.of(name, rank)) for one in known.pieces]
        parts.append((None, known.tail_of(name, rank)))
        every = np.concatenate([part for _, part in parts])
        before = np.append(-np.inf, every["step"])[:-1]  # within a block steps only rise
        reached = np.flatnonzero((every["step"] >= step) & (np.fmin(before, every["step0"]) < step))
        at = int(reached[-1]) if reached.size else len(every) - 1
        near, start = [every[:0]], 0
        for piece, part in parts:
            some = part[max(0, at - 1 - start) : max(0, at + 1 - start)]
            near.append(some if piece is None else self._closer(piece, some))
            start += len(part)
        points = np.concatenate(near)
        first = np.flatnonzero((points["step"] >= step) & (np.append(-np.inf, points["step"])[:-1] < step))
        if not first.size:
            return points[-1:], 0
        end = int(first[-1])
        return points[max(0, end - 1) : end + 1], len(reached)

    def stretches(self, edges: Array, rank: int | None = None) -> Stretches:
        """What `headrace why` judges of each stretch between two `edges`, microseconds since the epoch.

        `rank`: what the processes tell of this one only. Raises any store error, CorruptError.
        """
        found = Stretches(edges, rank)
        known = self._known
        pieces = [one for one in known.pieces if one.times[1] >= edges[0] and one.times[0] < edges[-1]]
        near = len(pieces) <= _NEAR  # else a stretch is many times as long as a block, which counts where it ends
        for one in pieces:
            blocks = one.blocks
            if near:
                with suppress(NotFoundError):  # it was deleted: what is known in short is exact too
                    blocks = blocks_of(one.rollup.read(NAMES), longest=1)[1]
            found.add(blocks)
        found.add(known.tail)
        return found

    def _closer(self, piece: Piece, blocks: Array) -> Array:
        """The points of neighbouring blocks of one metric; these themselves, where the rollup was deleted."""
        if not len(blocks) or int(blocks["points"].max()) == 1:
            return blocks
        first, last = int(blocks["row"][0]), int(blocks["row"][-1] + blocks["points"][-1])
        key = piece.rollup.key, first, last
        if key not in self._close:
            try:
                self._close[key] = _points(piece.rollup.rows(first, last))
            except NotFoundError:
                return blocks
            while sum(one.nbytes for one in list(self._close.values())) > _KEPT and len(self._close) > 1:
                self._close.popitem(last=False)
        return self._close.get(key, blocks)

    # what comes

    @property
    def _upto(self) -> int:
        return self._base.pieces[-1].rollup.last if self._base.pieces else -1

    def _take(self, found: list[Rollup]) -> None:
        """Those that go on where the last piece ends."""
        for one in found:
            self._append(Piece(one, mapped(one, self._folder)))

    def _take_own(self) -> None:
        """Those of this node; where one is damaged all are made anew."""
        try:
            self._take(rollups(open_store(f"file://{self._folder}"), "", after=self._upto))
        except (CorruptError, UnsupportedError):
            shutil.rmtree(os.path.join(self._folder, FOLDER), ignore_errors=True)

    def _append(self, piece: Piece) -> None:
        totals, tally = self._base.totals.copy(), self._base.tally.copy()
        totals.add(piece.blocks)
        tally.add(piece.blocks)
        self._base = _Known((*self._base.pieces, piece), totals=totals, tally=tally)
        self._is_stale = True
        self._tail = {number: one for number, one in self._tail.items() if number > piece.rollup.last}

    def _roll_up(self) -> None:
        """What has grown too long since, but for what may still come between."""
        assert self._segments is not None
        rows = sum(one.num_rows for one in self._tail.values())
        if rows < _MOST_ROWS and len(self._tail) < _MOST_SEGMENTS:
            return
        missing = min(self._segments.missing, default=1 << 62)
        numbers = sorted(number for number in self._tail if number < missing)
        if not numbers:
            return
        points = pa.concat_tables([self._tail[number] for number in numbers])
        write_rollup(os.path.join(self._folder, FOLDER), self._upto + 1, numbers[-1], points)
        self._take_own()

    def _know(self) -> None:
        tail = blocks_of(pa.concat_tables([table(()), *self._tail.values()]), longest=1)[1]
        totals, tally = self._base.totals.copy(), self._base.tally.copy()
        totals.add(tail)
        tally.add(tail)
        self._known = _Known(self._base.pieces, tail, totals, tally)
        self._is_stale = False
        self.version += 1


def _points(read: Table) -> Array:
    whole = read.combine_chunks()
    time, step, value = (whole.column(name).chunk(0) for name in ("time", "step", "value"))
    steps = np.where(to_valid(step), to_array(step, np.int64).astype(np.float64), np.nan)
    return points_of(steps, to_array(time, "i8"), to_array(value, np.float64))
