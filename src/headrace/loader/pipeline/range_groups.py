"""Samples of shards on their way, planned by arrays: nothing is made for a single one until its whole group is here.

What `joining` does sample by sample for windows and mixtures, this does for the samples of one index some thousands at
a time: their ranges are put in the order in which they lie, runs without large gaps become reads, and consecutive
samples become groups that wait for the reads they touch. A group makes its samples when it is opened, on whatever
thread wants them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.catalog import Ranged, Ranges, Rows, TakesColumns
from headrace.fetch import Read
from headrace.formats import Pieces
from headrace.loader.joining_limits import GAP, MOST_JOINED
from headrace.loader.order.order import Ints, distinct
from headrace.loader.pipeline.joined_reads import range_error, short_answer
from headrace.loader.pipeline.slots import Planned, Slot
from headrace.store.protocol import Blob

_SHIFT = np.int64(48)
"""Offsets lie below 2**48, so that an object's number and an offset in it are one number."""

_ODD_PARTS = 4
"""Times in a group that the number of parts may change, for the group to be cut there."""


class Answer:
    """The bytes of one read, or why there are none; and the groups that wait for it."""

    __slots__ = ("data", "error", "groups")

    def __init__(self) -> None:
        self.data: Any = None
        self.error: HeadraceError | None = None
        self.groups: list[RangedGroup] = []

    def settle(self, read: Read, result: Blob | HeadraceError) -> list[RangedGroup]:
        """Take what came. Returns the groups that have everything now. Runs on a fetch thread."""
        if isinstance(result, Blob):
            if len(result.data) == read.length():
                self.data = result.data
            else:  # cut to pieces, nothing would tell that some are too short
                self.error = short_answer(read, len(result.data))
        else:
            self.error = range_error(read, result).at(read.path)
        groups, self.groups = self.groups, []  # they refer to this: the bytes must not wait for the collector
        return [group for group in groups if group.arrived()]


class Cuts(NamedTuple):
    """What is cut out of which answers. `numbers`: the answers', ascending. Of each part, sample after sample: the
    number of its answer, start and stop within that; of each sample the number of the object of its first part.
    """

    answers: Sequence[Answer]
    numbers: list[int]
    answer: Ints
    start: Ints
    stop: Ints
    objects: Ints

    def column(self, place: int, step: int) -> Sequence[memoryview]:
        """Every `step`th part, from `place` on. All answers are here."""
        start, stop = self.start[place::step], self.stop[place::step]
        if len(self.answers) == 1:
            return Pieces(self.answers[0].data, start, stop)
        data = [answer.data for answer in self.answers]
        which = np.searchsorted(self.numbers, self.answer[place::step])
        return [data[one][a:b] for one, a, b in zip(which.tolist(), start.tolist(), stop.tolist(), strict=True)]


class RangedGroup(Planned):
    """Consecutive samples that lie in shards."""

    __slots__ = ("_cuts", "_index")

    def __init__(self, number: int, size: int, index: Ranged, leaf: int, local: list[int], rows: Rows) -> None:
        super().__init__(number, size, leaf, local, rows)
        self._index = index
        self._cuts: Cuts | None = None

    def wait_for(self, cuts: Cuts) -> None:
        """Be told when its answers are here."""
        self._cuts = cuts
        self.tokens = list(range(len(cuts.answers)))
        for answer in cuts.answers:
            answer.groups.append(self)

    def forget(self) -> None:
        super().forget()
        self._cuts = None

    def open(self) -> None:
        """Make the samples. On one thread, once all is here; a second call does nothing."""
        if self.slots or self._cuts is None:
            return
        cuts, self._cuts = self._cuts, None
        which = np.searchsorted(cuts.numbers, cuts.answer)
        part = zip(which.tolist(), cuts.start.tolist(), cuts.stop.tolist(), strict=True)
        leaf, slots = self.leaf, self.slots
        blanks = self._index.blanks(self.rows, cuts.objects.tolist())
        for local, (key, names, extra) in zip(self._local, blanks, strict=True):
            sample: dict[str, Any] = {"__key__": key}
            slot = Slot(key, leaf, local, sample, [])
            for name, (number, start, stop) in zip(names, part, strict=False):
                answer = cuts.answers[number]
                if answer.error is None:
                    sample[name] = answer.data[start:stop]
                else:
                    slot.error = ("fetch", answer.error)
            sample.update(extra)
            slots.append(slot)

    def open_columns(self, stages: Sequence[TakesColumns]) -> bool:
        cuts = self._cuts
        if cuts is None or any(answer.error is not None for answer in cuts.answers):
            return False
        found, names = self._index.columns(self.rows, cuts.objects.tolist())
        if names is None:
            return False
        keys, parts = found.pop("__key__"), {name: cuts.column(at, len(names)) for at, name in enumerate(names)}
        if not self.through(stages, {"__key__": keys, **parts, **found}):
            return False
        self._cuts = None
        return True


class Lot(NamedTuple):
    """Groups, and reads for all that they wait for: to be submitted together."""

    groups: list[RangedGroup]
    reads: list[Read]


class Grouping(NamedTuple):
    """How lots are cut. `first`: the first group's number; `limit`: samples in each; `room`: bytes planned at once."""

    first: int
    limit: int
    room: int


def lots(index: Ranged, leaf: int, local: list[int], rows: Rows, grouping: Grouping) -> Iterator[Lot]:
    """The samples at `rows`, in that order, in lots as small as shared reads allow."""
    found = index.ranges(rows)
    ends = np.cumsum(found.parts)
    sizes = np.add.reduceat(found.stop - found.start, ends - found.parts)
    number = grouping.first
    for first, stop in _portions(sizes, grouping.room):
        parts = slice(int(ends[first - 1]) if first else 0, int(ends[stop - 1]))
        here = Ranges(found.parts[first:stop], found.object[parts], found.start[parts], found.stop[parts])
        objects = here.object[np.cumsum(here.parts) - here.parts]
        begins = _begins(objects, here.parts, grouping.limit)
        plan = _planned(here, begins)
        held = np.add.reduceat(sizes[first:stop], begins).tolist()
        bounds = [*(first + begins).tolist(), stop]
        groups = [
            RangedGroup(number + at, size, index, leaf, local[begin:end], rows[begin:end])
            for at, (size, begin, end) in enumerate(zip(held, bounds, bounds[1:], strict=False))
        ]
        number += len(groups)
        yield from _submitted(index, plan, groups, objects)


def _begins(objects: Ints, parts: Ints, limit: int) -> Ints:
    """Where groups of at most `limit` samples begin. Of each sample, `objects`: the object it begins in; `parts`: how
    many it has.

    Also where the next object does, and where samples have another number of parts, if that is rare: a group out of one
    buffer is opened in a fraction of the time, and by columns only where its samples have the same parts.
    """
    regular = np.arange(0, len(objects), limit)
    next_object, others = np.flatnonzero(np.diff(objects)) + 1, np.flatnonzero(np.diff(parts)) + 1
    begins = [regular]
    if len(next_object) <= len(regular):
        begins.append(next_object)
    if len(others) <= _ODD_PARTS * len(regular):
        begins.append(others)
    return distinct(np.concatenate(begins)) if len(begins) > 1 else regular


class _Plan(NamedTuple):
    """Reads, by number: `object`, `low`, `high`. Of each part, in the samples' order: `read`, and `start` and `stop`
    within it. `group_ends`: int64 [groups], the parts up to each group's end. Pairs of a read and a group that waits
    for it, by read: `pair_read`, `pair_group`.
    """

    object: Ints
    low: Ints
    high: Ints
    read: Ints
    start: Ints
    stop: Ints
    group_ends: Ints
    pair_read: Ints
    pair_group: Ints


def _planned(found: Ranges, groups: Ints) -> _Plan:
    """`groups`: the sample with which each begins."""
    order = np.lexsort((found.stop, found.start, found.object))
    number, start, stop = found.object[order], found.start[order], found.stop[order]
    counts = np.add.reduceat(found.parts, groups)
    in_order = bool((order[1:] > order[:-1]).all())
    begins = _runs(number, start, stop, np.append(0, np.cumsum(counts)) if in_order else None)
    low, high = start[begins], np.maximum.reduceat(stop, begins)
    run = np.zeros(len(order), np.int64)
    run[begins[1:]] = 1
    run = np.cumsum(run)
    empty = low == high  # nothing but empty parts, and no server knows an empty range: the byte before them
    low = low - (empty & (low > 0))
    high = high + (empty & (high == low))
    read, within, until = np.empty_like(run), np.empty_like(run), np.empty_like(run)
    read[order], within[order], until[order] = run, start - low[run], stop - low[run]
    group = np.repeat(np.arange(len(counts)), counts)
    pairs = distinct(read * len(counts) + group)
    return _Plan(
        number[begins], low, high, read, within, until, np.cumsum(counts), pairs // len(counts), pairs % len(counts)
    )


def _runs(number: Ints, start: Ints, stop: Ints, better: Ints | None) -> Ints:
    """Where, among ranges in the order in which they lie, one read ends and the next begins; the first is 0. `better`:
    where that is best: no group has to wait for two reads, and all of its bytes are in one buffer.
    """
    rank = np.cumsum(np.diff(number, prepend=number[:1]) != 0) << _SHIFT
    reach = np.maximum.accumulate(stop + rank)
    apart = np.flatnonzero((start + rank)[1:] > reach[:-1] + GAP) + 1
    begins: list[int] = []
    for first, last in zip([0, *apart.tolist()], [*apart.tolist(), len(start)], strict=True):
        at = first
        while at < last:
            begins.append(at)
            most = int(start[at] + rank[at]) + MOST_JOINED
            at = max(at + 1, first + int(np.searchsorted(reach[first:last], most, side="right")))
            if better is not None and at < last:
                whole = int(better[np.searchsorted(better, at, side="right") - 1])
                at = whole if whole > begins[-1] else at
    return np.asarray(begins, np.int64)


def _submitted(index: Ranged, plan: _Plan, groups: list[RangedGroup], objects: Ints) -> Iterator[Lot]:
    """Cut where no read serves groups on both sides; each read goes with the last group it serves."""
    answers = [Answer() for _ in range(len(plan.low))]
    waits: list[list[int]] = [[] for _ in groups]
    for read, group in zip(plan.pair_read.tolist(), plan.pair_group.tolist(), strict=True):
        waits[group].append(read)
    starts = np.flatnonzero(np.diff(plan.pair_read, prepend=-1))
    first, last = plan.pair_group[starts], plan.pair_group[np.append(starts[1:], len(plan.pair_read)) - 1]
    until = np.zeros(len(groups), np.int64)
    np.maximum.at(until, first, last)
    closed = (np.maximum.accumulate(until) <= np.arange(len(groups))).tolist()
    by_group: list[list[int]] = [[] for _ in groups]
    for read, group in enumerate(last.tolist()):
        by_group[group].append(read)
    store = index.store
    lot = Lot([], [])
    begin = first_sample = 0
    for place, (group, end) in enumerate(zip(groups, plan.group_ends.tolist(), strict=True)):
        numbers, parts, samples = waits[place], slice(begin, end), slice(first_sample, first_sample + group.count)
        some = [answers[one] for one in numbers]
        group.wait_for(Cuts(some, numbers, plan.read[parts], plan.start[parts], plan.stop[parts], objects[samples]))
        begin, first_sample = end, samples.stop
        lot.groups.append(group)
        for read in by_group[place]:
            key, size, version = index.object_at(int(plan.object[read]))
            known = size if size >= 0 else None
            lot.reads.append(Read(store, key, known, version, int(plan.low[read]), int(plan.high[read]), answers[read]))
        if closed[place]:
            yield lot
            lot = Lot([], [])


def _portions(sizes: Ints, room: int) -> Iterator[tuple[int, int]]:
    """Stretches of samples of at most `room` bytes together, or of a single one."""
    total = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(total[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(total, before + room, side="right")))
        yield first, stop
        first = stop
