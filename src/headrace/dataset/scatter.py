"""Large arrays in records, brought from where they are straight to where their batch wants them: one copy, not two.

What a record says of itself (lengths, types, shapes) is mostly what the one before it said. So its arrays' bytes are
brought to where they would be if it were so again, and all others aside; where these say the same, it came true. Where
they do not, nothing has been handed on, and the record is read and decoded as always. They come from a file, by one
system call, or from the buffers in which the store's answers are: a record mostly begins in one and ends in the next.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.dataset.batch import room
from headrace.dataset.cached_files import CachedFiles
from headrace.dataset.layout import Array, HasLayout, Layout, Value
from headrace.dataset.ranged import Answer, Cuts, RangedGroup
from headrace.dataset.seats import Seat, Seats
from headrace.dataset.slots import Group
from headrace.dataset.spread import Spread
from headrace.dataset.stages import TakesColumns
from headrace.fetch import Read

_MOST_BUFFERS = min(os.sysconf("SC_IOV_MAX"), 1024)
_ODD = 16
"""Reads one after another whose records were unlike the last, after which that is no longer tried."""


class Scattered:
    """Reads groups of records from files, or takes them from several buffers. Any thread.

    Args:
        files: where they are read.
        stage: what says how they lie.
        seats: of batches of `batch` samples.
    """

    def __init__(self, files: CachedFiles, stage: HasLayout, seats: Seats, batch: int) -> None:
        self._files, self._stage, self._seats, self._batch = files, stage, seats, batch
        self._known: _Known | None = None
        self._odd = 0

    @staticmethod
    def of(files: CachedFiles | None, stages: Sequence[TakesColumns], seats: Seats, batch: int) -> Scattered | None:
        """None where more is done to records than to decode them, or nothing is known of how they lie."""
        stage = stages[0] if len(stages) == 1 else None
        return Scattered(files, stage, seats, batch) if files is not None and isinstance(stage, HasLayout) else None

    def read(self, read: Read) -> RangedGroup | None:
        """The group that waits for this read, with its columns. None: read it as always, and call `learn`."""
        answer: Answer = read.tag
        known, group = self._known, answer.groups[0] if len(answer.groups) == 1 else None
        if known is None or group is None or self._odd >= _ODD:
            return None
        cuts = group.waits_only_for(answer)
        if cuts is None:
            return None
        if not known.fits(cuts):
            self._odd += 1
            return None
        places = self._places(known, group)
        if places is None:
            return None
        asides = [bytearray(len(known.said)) for _ in range(group.count)]
        buffers = known.buffers(cuts, read.length(), places, asides)
        if len(buffers) > _MOST_BUFFERS or not self._files.scatter(read, buffers):
            return None
        return group if self._brought(group, known, places, asides) and group.arrived() else None

    def place(self, group: Group) -> bool:
        """All of the group is here: make its columns, if records lie in several buffers. False: do it as always."""
        if not isinstance(group, RangedGroup) or self._odd >= _ODD or (cuts := group.in_pieces()) is None:
            return False
        known = self._known
        if known is None or not known.sized(cuts):
            data, start, stop = cuts.record(0)
            self._odd += known is not None
            self._learn(data[start:stop])
            return False
        places = self._places(known, group)
        if places is None:
            return False
        asides = [bytearray(len(known.said)) for _ in range(group.count)]
        for at, aside in enumerate(asides):
            data, start, stop = cuts.record(at)
            (data if isinstance(data, Spread) else Spread([data])).copy(start, known.targets(at, places, aside))
        return self._brought(group, known, places, asides)

    def _brought(self, group: RangedGroup, known: _Known, places: dict[str, Seat], asides: list[bytearray]) -> bool:
        """The bytes are in their places: give the group its columns, if they are what they were taken for."""
        columns = _columns(known, places, asides)
        if columns is None or not group.brought(columns):
            self._odd += 1
            return False
        self._odd = 0
        group.own = group.count >= self._batch
        if not group.own:
            group.seats.update(places)
            for name in places:
                self._seats.done(name, group.first, group.count)
        return True

    def learn(self, answer: Answer, data: memoryview) -> None:
        """`data` is the answer: the next ones may be alike."""
        group = answer.groups[0] if answer.groups else None
        cuts = group.waits_only_for(answer) if group is not None else None
        if cuts is not None:
            self._learn(data[int(cuts.start[0]) : int(cuts.stop[0])])

    def _learn(self, record: memoryview) -> None:
        if self._odd >= _ODD or (self._known is not None and not self._odd):
            return
        try:
            layout = self._stage.layout(record)
        except HeadraceError:  # told by who decodes it
            layout = None
        self._known = None if layout is None else _Known(layout, record)
        self._odd += layout is None

    def _places(self, known: _Known, group: RangedGroup) -> dict[str, Seat] | None:
        """For each array's name, where its rows go."""
        count = group.count
        if count >= self._batch:
            return {
                one.name: Seat(room(count * (one.stop - one.start), one.dtype).reshape((-1, *one.shape)), 0, count)
                for one in known.arrays
            }
        found = {
            one.name: self._seats.reserve(one.name, one.dtype, one.shape, group.first, count) for one in known.arrays
        }
        return None if None in found.values() else cast("dict[str, Seat]", found)


def _columns(known: _Known, places: dict[str, Seat], asides: list[bytearray]) -> dict[str, Any] | None:
    """All columns, in order; None where a record says something else than it was taken to."""
    if any(known.plain(aside) != known.said for aside in asides):
        return None
    columns: dict[str, Any] = {}
    for part in known.layout.parts:
        if isinstance(part, Array):
            batch, at, held = places[part.name]
            columns[part.name] = batch[at : at + held]
            continue
        try:
            columns[part.name] = [part.decode(memoryview(aside)[known.at(part)]) for aside in asides]
        except Exception:  # whose it is, is told one by one
            return None
    return columns


class _Known:
    """A layout, and what the record it was learnt from says: `said`, all bytes that are in no array, values blank."""

    def __init__(self, layout: Layout, record: memoryview) -> None:
        self.layout = layout
        self.arrays = sorted((one for one in layout.parts if isinstance(one, Array)), key=lambda one: one.start)
        self._values = [one for one in layout.parts if isinstance(one, Value)]
        bounds = [0, *(edge for one in self.arrays for edge in (one.start, one.stop)), layout.size]
        self._aside = list(zip(bounds[::2], bounds[1::2], strict=True))
        self.said = self.plain(bytearray(b"".join(record[start:stop] for start, stop in self._aside)))

    def at(self, value: Value) -> slice:
        """Where among the bytes that are in no array it is."""
        before = sum(one.stop - one.start for one in self.arrays if one.stop <= value.start)
        return slice(value.start - before, value.stop - before)

    def plain(self, aside: bytearray) -> bytearray:
        """These bytes with the values blank: what has to be the same."""
        if not self._values:
            return aside
        plain = bytearray(aside)
        for one in self._values:
            plain[self.at(one)] = bytes(one.stop - one.start)
        return plain

    def sized(self, cuts: Cuts) -> bool:
        """Whether the records are of this size."""
        return bool((cuts.stop - cuts.start == self.layout.size).all())

    def fits(self, cuts: Cuts) -> bool:
        """Whether they also lie one behind the other."""
        return self.sized(cuts) and bool((np.diff(cuts.start) >= self.layout.size).all())

    def buffers(self, cuts: Cuts, length: int, places: dict[str, Seat], asides: list[bytearray]) -> list[memoryview]:
        """Where the bytes of the answer go, one after another."""
        begins = cuts.start.tolist()
        gaps = [begins[0], *(later - one - self.layout.size for one, later in pairwise(begins))]
        buffers: list[memoryview] = []
        for one, gap in enumerate(gaps):
            if gap:
                buffers.append(memoryview(bytearray(gap)))
            buffers += self.targets(one, places, asides[one])
        left = length - begins[-1] - self.layout.size
        return [*buffers, memoryview(bytearray(left))] if left else buffers

    def targets(self, one: int, places: dict[str, Seat], aside: bytearray) -> list[memoryview]:
        """The same for the bytes of one record."""
        found: list[memoryview] = []
        beside, at = memoryview(aside), 0
        for (start, stop), array in zip(self._aside, [*self.arrays, None], strict=True):
            if stop > start:
                found.append(beside[at : at + stop - start])
                at += stop - start
            if array is not None:
                seat = places[array.name]
                row = seat.batch[seat.at + one : seat.at + one + 1]
                found.append(row.reshape(-1).view(np.uint8).data)
        return found
