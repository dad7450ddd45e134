"""Documents packed into sequences of one length: first fit, over some sequences that are open at once.

A document goes into the first open sequence that has room for it. Where none has, one more is opened; where that would
be too many, the `rows` that were opened first become a batch. So nothing waits for ever, and what a state has to say is
small: the sequences that are open are those of the documents that are not done, put in again in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.formats import Forms, Sample, check_fits
from headrace.loader.order.progress_state import Progress
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.packed_batches import PackedBuilder
from headrace.loader.pipeline.packing import Packing, Place
from headrace.loader.pipeline.slots import Group

PART = "tokens"
_OPEN = 4
"""Batches that are open at once, where nobody said how many sequences may be."""


@dataclass(frozen=True)
class Sequences(Packing):
    """`rows`: sequences of a batch; `size`: tokens of each; `most_open`: sequences that are open at once; `pad`: the
    token behind the last document.
    """

    most: tuple[int, ...] = field(default=(1,), init=False)
    rows: int = 1
    size: int = 1
    most_open: int = _OPEN
    pad: int = 0

    @property
    def is_even(self) -> bool:
        return False

    @property
    def nominal(self) -> int:
        return 64

    def describe(self) -> str:
        """As it is asked for, in short."""
        return f"{self.rows} sequences of {self.size} tokens"

    def typed(self, forms: Forms | None) -> Packing:  # noqa: ARG002 - what comes is arrays of ours
        return self

    def place(self, sample: Sample) -> Place:
        """What it takes of a sequence."""
        return Place(0, float(len(sample[PART])))


def sequences(rows: int, size: int, most_open: int | None, pad: int) -> Sequences:
    """Batches of `rows` sequences of `size` tokens."""
    return Sequences(rows=rows, size=size, most_open=_OPEN * rows if most_open is None else most_open, pad=pad)


class _Held(NamedTuple):
    """A document in a sequence, and where it comes from."""

    sample: Sample
    local: int
    number: int


class _Sequence:
    """What an open sequence holds, and of what is accounted with it."""

    __slots__ = ("documents", "done_at", "fetched_at", "held", "raw", "room")

    def __init__(self, room: int) -> None:
        self.documents: list[_Held] = []
        self.room = room
        self.raw = self.held = 0
        self.fetched_at = self.done_at = 0.0


class SequenceBuilder(PackedBuilder):
    """As `PackedBuilder`, for `Sequences`. One thread."""

    def __init__(
        self,
        packing: Sequences,
        start: Progress,
        *,
        drop_last: bool,
        given: Mapping[int, frozenset[int]] | None = None,
    ) -> None:
        super().__init__(packing, start, drop_last=drop_last, flat=True, given=given)
        self._sequences, self._open = packing, list[_Sequence]()

    def _put(self, sample: Sample, place: Place, which: tuple[int, int], group: Group) -> Iterator[Delivery]:
        size = int(place.cost)
        chosen = next((one for one in self._open if one.room >= size), None)
        if chosen is None:
            if len(self._open) >= self._sequences.most_open:
                yield self._deliver_first()
            chosen = _Sequence(self._sequences.size)
            self._open.append(chosen)
        chosen.documents.append(_Held(sample, *which))
        chosen.room -= size
        chosen.raw, chosen.held, self._raw, self._held = chosen.raw + self._raw, chosen.held + self._held, 0, 0
        chosen.fetched_at = max(chosen.fetched_at, group.fetched_at)
        chosen.done_at = max(chosen.done_at, group.done_at)
        self.waiting += 1

    def finish(self) -> list[Delivery]:
        """The sequences that are open, the last of them in a short batch."""
        rows = self._sequences.rows
        left: list[Delivery] = []
        while self._open and not (self._drop_last and len(self._open) < rows):
            left.append(self._deliver_first())
        return left

    def _deliver_first(self) -> Delivery:
        rows = self._sequences.rows
        taken, self._open = self._open[:rows], self._open[rows:]
        data = _batch(taken, self._sequences)
        count = 0
        for one in taken:
            count += len(one.documents)
            for held in one.documents:
                self._done(held.local, held.number)
        self.waiting -= count
        raw, kept = self._raw + sum(one.raw for one in taken), self._held + sum(one.held for one in taken)
        self._raw = self._held = 0
        fetched, done = max(one.fetched_at for one in taken), max(one.done_at for one in taken)
        return Delivery(data, self._now(), (), count, raw, kept, fetched, done)


def _batch(taken: list[_Sequence], packing: Sequences) -> dict[str, Any]:
    """See `headrace.loader.dataset.Dataset.pack_documents`."""
    shape = len(taken), packing.size
    dtype = np.result_type(*{one.sample[PART].dtype for sequence in taken for one in sequence.documents})
    check_fits(packing.pad, dtype, "pad")
    tokens: npt.NDArray[Any] = np.full(shape, packing.pad, dtype)
    positions, documents = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    upwards = np.arange(packing.size, dtype=np.int32)
    for row, sequence in enumerate(taken):
        at = 0
        for number, held in enumerate(sequence.documents, start=1):
            some = held.sample[PART]
            stop = at + len(some)
            tokens[row, at:stop], positions[row, at:stop], documents[row, at:stop] = some, upwards[: len(some)], number
            at = stop
    keys = [[one.sample["__key__"] for one in sequence.documents] for sequence in taken]
    return {"__key__": keys, PART: tokens, "positions": positions, "documents": documents}
