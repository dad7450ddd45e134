"""Lots of rows on their way to batches: which row groups they need, brought, decoded and put into order.

    feeder   lots of rows, the row groups they need, reads; waits while the byte window is full
    fetch    `headrace.fetch` calls `_arrived` on its own threads; files of this machine: `near`
    decode   a few threads: bytes to columns (pyarrow releases the GIL), rows that match, lots put into order

The byte window holds stored bytes under way, and decoded ones until the batches of their lot are taken.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from headrace.base.errors import ChangedError, HeadraceError, InputError, TryAgainError
from headrace.base.threads import by_cores
from headrace.catalog import LIST_AGAIN
from headrace.fetch import Fetcher, Read, Ticket
from headrace.formats import DecodedRows, RowGroup, TableSamples, as_table
from headrace.loader.pipeline.batching import BatchMaker
from headrace.loader.pipeline.byte_window import Bounds
from headrace.loader.pipeline.collector import Collector, InOrder, InTurn
from headrace.loader.pipeline.decode_effort import Effort, Spent
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.slots import Group
from headrace.loader.pipeline.source import Pipe
from headrace.loader.tables.assembling import put_together, taken
from headrace.loader.tables.local_row_groups import Near
from headrace.loader.tables.lots import RowTake, lots
from headrace.loader.tables.row_batches import LotGroup, RowBatches
from headrace.store.protocol import Blob

THREADS = by_cores(1, 2, 4)
"""That decode, one to a core: a few, since each has a row group in memory."""
_SHARE = 4
"""A lot may take this part of the window; so may row groups kept because more of their rows are to come: twice."""
_FIRST = -1
"""Before every lot."""


def index_of(plan: Plan) -> TableSamples | None:
    """The table whose rows a plan hands on as they are; None where it does more, or has more sources than one."""
    if len(plan.leaves) != 1 or plan.stages or plan.batch is None or plan.skip is not None:
        return None
    if plan.packing is not None or plan.after:
        return None
    leaf = plan.leaves[0]
    table = as_table(leaf.index)
    return table if table is not None and leaf.window is None and leaf.stages == table.stages else None


class _Load:
    """A row group on its way. Its state is guarded by the source's lock."""

    __slots__ = ("decoded", "error", "fetched_at", "group", "held", "needs", "pieces", "tokens", "used", "users")

    def __init__(self, group: RowGroup) -> None:
        self.group = group
        self.pieces: list[Any] = [None] * len(group.parts)
        self.tokens = list(range(len(group.parts)))
        self.decoded: DecodedRows | None = None
        self.error: BaseException | None = None
        self.needs: list[_Need] = []
        self.held = 0
        self.used = 0
        self.users = 1  # the feeder, while more of its rows may come
        self.fetched_at = 0.0


_Need = tuple[LotGroup, int]
"""A lot, and which of its takes."""
_Job = tuple[_Load, list[_Need] | None]
"""A row group: to be decoded, or, as it is, for some that need it."""


class TableSource:
    """A `headrace.loader.pipeline.source.Source` of a table's rows, columns at a time. `arrow`: batches are tables."""

    batches_ahead = False

    def __init__(
        self, plan: Plan, course: Course, fetcher: Fetcher, pipe: Pipe, index: TableSamples, *, arrow: bool
    ) -> None:
        self._plan, self._course, self._fetcher, self._pipe = plan, course, fetcher, pipe
        self._index, self._arrow = index, arrow
        self._near = Near.of(index.store, fetcher.metrics)
        self._batch = plan.batch or 1
        self.bounds = Bounds(plan.prefetch, plan.prefetch)
        self._lock = threading.Lock()
        self._recent: OrderedDict[int, _Load] = OrderedDict()  # the feeder's own
        self._jobs: InTurn[_Job | None] = InTurn()
        self._ticket = Ticket()
        self._under_way = 0
        self._growth = 2.0  # decoded bytes for each stored one, as last seen
        self._busy = [0.0] * THREADS

    @property
    def threads(self) -> list[tuple[str, Callable[[], None]]]:
        """See `headrace.loader.pipeline.source.Source`; this and all below."""
        return [*((f"decode-{i}", self._decoder(i)) for i in range(THREADS)), ("feeder", self._feed)]

    @property
    def undecoded(self) -> int:
        return self._jobs.qsize()

    def collector(self) -> Collector:
        return InOrder()

    def builder(self) -> BatchMaker:
        return RowBatches(self._batch, self._course, drop_last=self._plan.drop_last, release=self._release)

    def open(self, group: Group) -> None:
        error = cast("LotGroup", group).error
        if error is not None:
            raise error

    def effort(self) -> Effort:
        return Effort(THREADS, Spent(sum(self._busy)))

    def close(self) -> None:
        self._ticket.cancel()
        for _ in range(THREADS):
            self._jobs.put(_FIRST, None)
        if self._near is not None:
            self._near.close()

    def forget(self) -> None:
        self._jobs.clear()
        self._recent.clear()
        for _ in range(THREADS):
            self._jobs.put(_FIRST, None)

    # -- feeder --------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        batching, room = self._pipe.batching, self._pipe.room
        for number, lot in enumerate(lots(self._course, self._index, self._rows_of_a_lot)):
            group = LotGroup(number, lot)
            if len(lot.takes) > 1:
                group.size = int(len(lot.local) * self._row_bytes())
                room.hold(group.size)
            batching.add(group)
            for place, take in enumerate(lot.takes):
                if not self._need(group, place, take):
                    return
            self._forget()
        while self._recent:
            self._drop(next(iter(self._recent)))
        batching.end()

    def _row_bytes(self) -> float:
        return max(1.0, self._growth * float(self._index.sizes_of_groups.sum()) / max(1, len(self._index)))

    def _rows_of_a_lot(self) -> int:
        return max(self._batch, int(self._plan.prefetch / _SHARE / self._row_bytes()))

    def _need(self, group: LotGroup, place: int, take: RowTake) -> bool:
        """Have one row group brought, or used again. False: closed."""
        load = self._recent.get(take.group)
        new = load is None
        if load is None:
            load = _Load(self._index.group(take.group))
            load.held = int(load.group.size * (1 + self._growth))
            if not self._make_room(load.held):
                return False
            self._pipe.room.hold(load.held)
            self._recent[take.group] = load
            group.raw += load.group.size
        self._recent.move_to_end(take.group)
        load.used += len(take.rows)
        with self._lock:
            load.users += 1
            group.groups.append(load.group)
            if len(group.lot.takes) == 1:
                group.loads.append(load)
            ready = load.decoded is not None or load.error is not None
            if not ready:
                load.needs.append((group, place))
            self._under_way += new
        if ready:
            self._jobs.put(group.number, (load, [(group, place)]))
        elif new:
            self._read(load, group.number)
        return True

    def _make_room(self, size: int) -> bool:
        """Wait for it, and let go of row groups that nobody else uses meanwhile. False: closed."""
        room = self._pipe.room
        while room.wait(size, lambda: self._is_starving() or self._unused() is not None):
            unused = self._unused()
            if unused is None or room.held + size <= self._plan.prefetch:
                return True
            self._drop(unused)
        return False

    def _is_starving(self) -> bool:
        return not self._under_way and self._pipe.is_starving()

    def _forget(self) -> None:
        """Let go of row groups of which no more rows are to come, and of the oldest when there are too many."""
        stripes = self._course.residual.stripes
        for number, load in list(self._recent.items()):
            if load.used * stripes >= load.group.rows:
                self._drop(number)
        kept = sum(load.held for load in self._recent.values())
        while kept > self._plan.prefetch * 2 // _SHARE:
            number, load = next(iter(self._recent.items()))
            kept -= load.held
            self._drop(number)

    def _unused(self) -> int | None:
        """The row group used longest ago of those that nobody else uses."""
        return next((number for number, load in self._recent.items() if load.users == 1), None)

    def _drop(self, number: int) -> None:
        """More of its rows may come, and it is read again then."""
        self._give_back(self._let_go(self._recent.pop(number)))

    def _let_go(self, load: _Load) -> int:
        """One user less. Returns the bytes that nobody uses any more."""
        with self._lock:
            load.users -= 1
            if load.users:
                return 0
            freed, load.held, load.decoded = load.held, 0, None
            return freed

    def _give_back(self, size: int) -> None:
        self._pipe.room.hold(-size)

    def _release(self, group: LotGroup) -> int:
        loads, group.loads = group.loads, []
        return group.size + sum(map(self._let_go, loads))

    def _read(self, load: _Load, number: int) -> None:
        group, store = load.group, self._index.store
        if not group.parts:
            self._jobs.put(number, (load, None))
            return
        if self._near is not None:
            self._pipe.meter.reads += len(group.parts)
            self._near.expect(group)
            self._jobs.put(number, (load, None))
            return
        reads = [
            Read(store, part.key, part.size, part.version, part.start, part.stop, (load, place, number))
            for place, part in enumerate(group.parts)
        ]
        self._pipe.meter.reads += len(reads)
        self._fetcher.submit(reads, self._arrived, ticket=self._ticket)

    # -- fetch threads -------------------------------------------------------------------------------------------

    def _arrived(self, read: Read, result: Blob | HeadraceError) -> None:
        load, place, number = cast("tuple[_Load, int, int]", read.tag)
        if isinstance(result, Blob) and len(result.data) == read.length():
            load.pieces[place] = result.data
        elif isinstance(result, Blob):
            reason = f"bytes {read.start:,} to {read.stop:,} were asked for, {len(result.data):,} bytes came"
            hint = "the store, or a proxy before it, cuts answers short"
            load.error = TryAgainError(reason, path=read.path, hint=hint)
        elif type(result) is InputError:  # it begins behind the end: the object is another than was indexed
            hint = LIST_AGAIN
            load.error = ChangedError(f"has changed: {result.reason}", path=read.path, hint=hint)
        else:
            load.error = result.at(read.path)
        if not load.tokens.pop():
            load.fetched_at = time.perf_counter()
            self._jobs.put(number, (load, None))

    # -- decode threads ------------------------------------------------------------------------------------------

    def _decoder(self, number: int) -> Callable[[], None]:
        def decode_on() -> None:
            while (job := self._jobs.get()) is not None and not self._pipe.closed:
                began = time.perf_counter()
                load, needs = job
                for group, place in self._decoded(load) if needs is None else needs:
                    self._fill(group, place, load)
                self._pipe.room.knock()  # one more row group may be unused, or nothing under way
                self._busy[number] += time.perf_counter() - began
                del job, load, needs

        return decode_on

    def _decoded(self, load: _Load) -> list[_Need]:
        """Decode; returns who waits for it."""
        decoded = None
        if load.error is None:
            try:
                if self._near is not None and load.group.parts:
                    decoded, load.fetched_at = self._near.decode(load.group)
                else:
                    decoded = load.group.decode(load.pieces)
            except BaseException as error:
                load.error = error
        load.pieces = []
        size = 0 if decoded is None else int(decoded.table.nbytes)  # gives the interpreter away: not with the lock held
        grown = 0
        with self._lock:
            self._under_way -= 1
            if decoded is not None and load.users:
                load.decoded = decoded
                self._growth = max(0.5, size / max(1, load.group.size))
                grown, load.held = size - load.held, size
            needs, load.needs = load.needs, []
        self._pipe.room.hold(grown)
        return needs

    def _fill(self, group: LotGroup, place: int, load: _Load) -> None:
        """Put one row group's rows into a lot; the last one, or the first that fails, finishes it."""
        error, made = load.error, None
        if error is None:
            try:
                made = taken(group.lot.takes[place], cast("DecodedRows", load.decoded))
            except BaseException as failed:
                error = failed
        with self._lock:
            group.parts[place] = made
            group.fetched_at = max(group.fetched_at, load.fetched_at)
            group.left -= 1
            ends = group.error is None and (error is not None or not group.left)
            group.error = group.error or error
        if len(group.lot.takes) > 1:  # copied: the row group itself is no longer needed
            self._give_back(self._let_go(load))
        if not ends:
            return
        if error is None:
            self._put_together(group, load)
        group.done_at = time.perf_counter()
        self._pipe.batching.finished(group)

    def _put_together(self, group: LotGroup, load: _Load) -> None:
        try:
            group.stretch = put_together(group.lot, group.groups, group.parts, arrow=self._arrow)
            self._pipe.meter.filtered += len(group.lot.local) - group.stretch.rows
        except HeadraceError as failed:
            group.error = failed.at(load.group.url)
        except BaseException as failed:
            group.error = failed
        group.parts = []
