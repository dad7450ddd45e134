"""Batches out of samples, and the book of what is done: what the batcher's thread does, without the thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from headrace.formats import Forms, collate, collate_field, join_rows, typed_batch, typed_columns
from headrace.loader.order.progress_state import Progress
from headrace.loader.pipeline.slots import Group, Slot


class _Columns(NamedTuple):  # one for each batch, as `Delivery`: a frozen dataclass takes four times as long
    """Samples by columns: lists, or arrays whose rows they are. `own`: nothing else looks into these arrays."""

    values: dict[str, Sequence[Any]]
    own: bool


_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_KEPT = frozenset({memoryview, str, bytes})
"""Types of values that a batch has in a list, whatever they are like."""
_Piece: TypeAlias = "list[Any] | _Columns"


class Delivery(NamedTuple):
    """What the consumer takes: a batch, or without batching a list of single samples.

    `progress`: the state once it is received; `steps`: for single samples, and those of batches that are taken apart,
    the state after each; None: it was received before.
    `raw`: bytes fetched for it; `held`: bytes of the window it gives back. `fetched_at`, `done_at`: when the last of
    its samples had its bytes, and was decoded (`time.perf_counter`).
    """

    data: Any
    progress: Progress
    steps: tuple[Progress | None, ...]
    samples: int
    raw: int
    held: int
    fetched_at: float
    done_at: float


class Track:
    """Which indices of a stripe are done. One thread."""

    def __init__(self, start: Progress) -> None:
        self._frontier = start.frontier
        self._ahead = set(start.ahead)
        self.even = start.even

    def mark(self, local: int) -> None:
        """One more is done."""
        if local != self._frontier:
            self._ahead.add(local)
            return
        self._frontier += 1
        while self._ahead and self._frontier in self._ahead:
            self._ahead.remove(self._frontier)
            self._frontier += 1

    def mark_all(self, local: list[int]) -> None:
        """All of these are done."""
        first = self._frontier
        if not self._ahead and local == list(range(first, first + len(local))):
            self._frontier += len(local)
            return
        for one in local:
            self.mark(one)

    def mark_batches(self, local: list[int], size: int) -> list[Progress]:
        """All of these are done, `size` at a time; the state after each time."""
        first, count = self._frontier, len(local)
        if not self._ahead and local == list(range(first, first + count)):
            self._frontier += count
            return [Progress(done, (), self.even) for done in range(first + size, first + count + 1, size)]
        states: list[Progress] = []
        for at in range(0, count, size):
            self.mark_all(local[at : at + size])
            states.append(self.now())
        return states

    def now(self) -> Progress:
        """The state if nothing more came."""
        if not self._ahead:
            return Progress(self._frontier, (), self.even)
        return Progress(self._frontier, tuple(sorted(self._ahead)), even=False)


class Builder:
    """Cuts samples into batches of `size` (None: hands them on singly). One thread. `forms`: see
    `headrace.loader.pipeline.epoch_plan.Plan.forms`.
    """

    def __init__(self, size: int | None, start: Progress, *, drop_last: bool, forms: Forms | None = None) -> None:
        self._forms = forms
        self._size, self._drop_last = size, drop_last
        self._track = Track(start)
        self._pieces: list[_Piece] = []
        self._count = 0
        self._locals: list[int] = []
        self._left_out: set[int] = set()
        self._raw = self._held = 0
        self._fetched_at = self._done_at = 0.0

    @property
    def waiting(self) -> int:
        """Samples that wait for their batch to be full."""
        return self._count

    def add(self, group: Group, leave_out: Callable[[Slot, int], None]) -> Iterator[Delivery]:
        """Take a finished group; the batches it completes. Slots that are bad or were filtered out, and their places in
        the group, go to `leave_out`, which may raise.
        """
        self._raw += group.raw
        self._held += group.size
        self._fetched_at = max(self._fetched_at, group.fetched_at)
        self._done_at = max(self._done_at, group.done_at)
        if group.columns is not None:
            yield from self._add_columns(group, group.columns)
            return
        slots = group.slots
        samples = self._open_piece()
        for place, slot in enumerate(slots):
            self._locals.append(slot.local)
            if slot.error is not None or not slot.kept:
                leave_out(slot, place)
                self._track.even = False
                self._left_out.add(slot.local)
                continue
            samples.append(slot.sample)
            self._count += 1
            slot.sample = None  # slots and groups refer to each other: their bytes must not wait for the collector
            if self._count == self._size:
                yield self._deliver(rest=(len(slots) - place - 1) / len(slots), group=group)
                samples = self._open_piece()
        if self._size is None and self._count:
            yield self._deliver_singly()

    def finish(self) -> list[Delivery]:
        """The last, short batch."""
        if self._count and not self._drop_last:
            return [self._deliver(0.0, None)]
        return []

    def _open_piece(self) -> list[Any]:
        last = self._pieces[-1] if self._pieces else None
        if not isinstance(last, list):
            last = list[Any]()
            self._pieces.append(last)
        return last

    def _add_columns(self, group: Group, columns: dict[str, Sequence[Any]]) -> Iterator[Delivery]:
        at, count, local, size = 0, group.count, group.locals, self._size or group.count
        group.columns = None
        whole_batches = not self._locals and size < count and not count % size
        if whole_batches and self._forms is None and _only_lists(columns):
            yield from self._cut(group, columns, size)
            return
        while at < count:
            stop = min(count, at + size - self._count)
            some = columns if stop - at == count else {name: one[at:stop] for name, one in columns.items()}
            self._pieces.append(_Columns(some, group.own))
            self._locals += local[at:stop]
            self._count += stop - at
            at = stop
            if self._count == size:
                yield self._deliver(rest=(count - at) / count, group=group)

    def _cut(self, group: Group, columns: dict[str, Sequence[Any]], size: int) -> Iterator[Delivery]:
        """A group that is several whole batches, of values that stay lists: what is done for each counts."""
        count, starts = group.count, range(0, group.count, size)
        states = self._track.mark_batches(group.locals, size)
        parts = zip(*([one[at : at + size] for at in starts] for one in columns.values()), strict=True)
        raw, held = self._raw, self._held
        for at, part, state in zip(starts, parts, states, strict=True):
            rest = count - at - size
            self._raw, self._held = group.raw * rest // count, group.size * rest // count
            data = dict(zip(columns, part, strict=True))
            yield _tuple(
                Delivery,
                (data, state, (), size, raw - self._raw, held - self._held, self._fetched_at, self._done_at),
            )
            raw, held = self._raw, self._held

    def _deliver(self, rest: float, group: Group | None) -> Delivery:
        """A batch of all samples waiting; `rest`: the share of the last group that stays for the next one."""
        held_back = int(group.size * rest) if group is not None else 0
        raw_back = int(group.raw * rest) if group is not None else 0
        pieces, count = self._take_pieces()
        self._track.mark_all(self._locals)
        self._locals.clear()
        self._left_out.clear()
        data = _joined(pieces) if self._forms is None else _typed(pieces, self._forms)
        return self._packed(data, (), count, raw_back, held_back)

    def _deliver_singly(self) -> Delivery:
        pieces, count = self._take_pieces()
        steps: list[Progress] = []
        for local in self._locals:
            self._track.mark(local)
            if local not in self._left_out:
                steps.append(self._track.now())
        self._locals.clear()
        self._left_out.clear()
        return self._packed(_samples(pieces), tuple(steps), count, 0, 0)

    def _take_pieces(self) -> tuple[list[_Piece], int]:
        pieces, count = self._pieces, self._count
        self._pieces, self._count = [], 0
        return pieces, count

    def _packed(self, data: Any, steps: tuple[Progress, ...], count: int, raw_back: int, held_back: int) -> Delivery:
        delivery = Delivery(
            data,
            self._track.now(),
            steps,
            count,
            self._raw - raw_back,
            self._held - held_back,
            self._fetched_at,
            self._done_at,
        )
        self._raw, self._held = raw_back, held_back
        return delivery


def _joined(pieces: list[_Piece]) -> Any:
    """One batch: as `collate` makes it of the samples."""
    if len(pieces) == 1 and isinstance(pieces[0], _Columns):
        values, own = pieces[0]
        return {name: _field([column], own=own) for name, column in values.items()}
    pieces = [piece for piece in pieces if isinstance(piece, _Columns) or piece]
    columns = [piece for piece in pieces if isinstance(piece, _Columns)]
    if len(columns) < len(pieces) or any(one.values.keys() != columns[0].values.keys() for one in columns):
        return collate(_samples(pieces))
    own = len(columns) == 1 and columns[0].own
    return {name: _field([one.values[name] for one in columns], own=own) for name in columns[0].values}


def _typed(pieces: list[_Piece], forms: Forms) -> dict[str, Any]:
    """One batch of records whose columns have these forms."""
    if len(pieces) == 1 and isinstance(pieces[0], _Columns):
        columns = pieces[0].values
        return typed_columns(columns, len(next(iter(columns.values()))), forms)
    return typed_batch(_samples(pieces), forms)


def _field(columns: list[Sequence[Any]], *, own: bool) -> Any:
    """One field of a batch."""
    first = columns[0]
    if isinstance(first, np.ndarray):
        if own:
            return first
        if all(isinstance(one, np.ndarray) for one in columns):
            rows = join_rows(cast("list[np.ndarray[Any, Any]]", columns))
            if rows is not None:
                return rows
    if len(columns) == 1 and type(first) is list:
        return collate_field(cast("list[Any]", first))
    return collate_field([value for one in columns for value in one])


def _only_lists(columns: dict[str, Sequence[Any]]) -> bool:
    """Whether any part of these columns is the same in a batch as it is here: see `collate_field`."""
    return all(type(one) is list and _KEPT.issuperset(map(type, one)) for one in columns.values())


def _samples(pieces: list[_Piece]) -> list[Any]:
    samples: list[Any] = []
    for piece in pieces:
        if isinstance(piece, list):
            samples += piece
        else:
            names, rows = list(piece.values), zip(*piece.values.values(), strict=True)
            samples += [dict(zip(names, row, strict=True)) for row in rows]
    return samples
