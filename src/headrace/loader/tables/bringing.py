"""Lots of rows, ready to be cut into batches: which row groups they need, brought, decoded and put into order.

    feeder   lots of rows, the row groups they need, reads; waits while the byte window is full
    fetch    `headrace.fetch` calls `_arrived` on its own threads; files of this machine: `near`
    decode   a few threads: bytes to columns (pyarrow releases the GIL), rows that match, lots put into order

The byte window holds stored bytes under way, and decoded ones until their lot was handed out and settled.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any, cast

from headrace.base.errors import ChangedError, HeadraceError, InputError, TryAgainError
from headrace.base.threads import by_cores, join_all
from headrace.catalog import LIST_AGAIN
from headrace.fetch import Fetcher, Read, Ticket
from headrace.formats import DecodedRows, RowGroup, TableSamples
from headrace.loader.pipeline.feeder import Course
from headrace.loader.pipeline.pipeline import Plan, closed
from headrace.loader.pipeline.stats import Meter
from headrace.loader.tables.assembling import put_together, taken
from headrace.loader.tables.local_row_groups import Near
from headrace.loader.tables.lots import Lot, RowTake, lots
from headrace.loader.tables.stretch import Stretch
from headrace.store.protocol import Blob

THREADS = by_cores(1, 2, 4)
"""That decode, one to a core: a few, since each has a row group in memory."""
_SHARE = 4
"""A lot may take this part of the window; so may row groups kept because more of their rows are to come: twice."""
_LOOK_S = 0.25  # seconds after which Ctrl-C, or that all is closed, is seen
_JOIN_S = 1.8  # seconds that threads have to end: of the two in which Ctrl-C ends everything


class _Load:
    """A row group on its way. Its state is guarded by the run's lock."""

    __slots__ = ("decoded", "error", "fetched_at", "group", "held", "needs", "pieces", "tokens", "used", "users")

    def __init__(self, group: RowGroup) -> None:
        self.group = group
        self.pieces: list[Any] = [None] * len(group.parts)
        self.tokens = list(range(len(group.parts)))
        self.decoded: DecodedRows | None = None
        self.error: BaseException | None = None
        self.needs: list[tuple[Piece, int]] = []
        self.held = 0
        self.used = 0
        self.users = 1  # the feeder, while more of its rows may come
        self.fetched_at = 0.0


class Piece:
    """A lot on its way."""

    __slots__ = ("done_at", "error", "fetched_at", "groups", "held", "left", "loads", "lot", "parts", "raw", "stretch")

    def __init__(self, lot: Lot) -> None:
        self.lot = lot
        self.groups: list[RowGroup] = []
        self.loads: list[_Load] = []  # of which it holds on to the memory
        self.parts: list[Any] = [None] * len(lot.takes)
        self.left = len(lot.takes)
        self.stretch: Stretch | None = None
        self.error: BaseException | None = None
        self.held = self.raw = 0
        self.fetched_at = self.done_at = 0.0

    @property
    def finished(self) -> bool:
        return self.stretch is not None or self.error is not None


class Bringing:
    """The threads that bring lots. `next` and `settle` by one consumer; `close` from any thread."""

    def __init__(
        self, plan: Plan, course: Course, fetcher: Fetcher, index: TableSamples, meter: Meter, *, arrow: bool
    ) -> None:
        self._plan, self._course, self._fetcher, self._index, self._arrow = plan, course, fetcher, index, arrow
        self._meter = meter
        self._near = Near.of(index.store, fetcher.metrics)
        self._batch = plan.batch or 1
        self._changed = threading.Condition(threading.Lock())
        self._pieces: deque[Piece] = deque()
        self._recent: OrderedDict[int, _Load] = OrderedDict()  # the feeder's own
        self._jobs: SimpleQueue[tuple[_Load, list[tuple[Piece, int]] | None] | None] = SimpleQueue()
        self._ticket = Ticket()
        self._held = self._under_way = 0
        self._growth = 2.0  # decoded bytes for each stored one, as last seen
        self._fed_all = self._closed = False
        self._failure: BaseException | None = None
        self._busy = [0.0] * THREADS
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"headrace-tables-{name}", daemon=True)
            for name, work in [*((f"decode-{i}", self._decoder(i)) for i in range(THREADS)), ("feeder", self._feed)]
        ]
        for thread in self._threads:
            thread.start()

    # -- consumer ------------------------------------------------------------------------------------------------

    @property
    def undecoded(self) -> int:
        """Row groups that wait for a thread."""
        return self._jobs.qsize()

    @property
    def ready(self) -> bool:
        """Whether `next` need not wait."""
        return bool(self._pieces) and self._pieces[0].finished

    @property
    def held(self) -> int:
        """Bytes of the window in use."""
        return self._held

    @property
    def busy_s(self) -> float:
        """Seconds of all threads in decoding."""
        return sum(self._busy)

    def next(self) -> Piece | None:
        """The next finished piece in order; None after the last. Blocks. Raises whatever ended the work."""
        if not self.ready:
            with self._fetcher.hurry(), self._changed:
                while not self._failure and not self.ready:
                    if self._closed:
                        raise closed()
                    if self._fed_all and not self._pieces:
                        return None
                    self._changed.notify_all()  # the feeder: with nothing under way, the next may exceed the window
                    # Never without an end: see `headrace.loader.pipeline.pipeline.Pipeline._wait_ready`.
                    self._changed.wait(_LOOK_S)
        with self._changed:
            if self._failure is not None and not self.ready:
                failure = self._failure
                self._closed = True
                raise failure
            return self._pieces.popleft()

    def settle(self, done: Sequence[Piece]) -> None:
        """Give back what these held of the window."""
        with self._changed:
            for piece in done:
                self._held -= piece.held
                for load in piece.loads:
                    self._let_go(load)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop: cancel reads, wake everyone, wait for the threads (at most 1.8 s)."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._ticket.cancel()
        for _ in range(THREADS):
            self._jobs.put(None)
        join_all(self._threads, _JOIN_S)
        if self._near is not None:
            self._near.close()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    # -- feeder --------------------------------------------------------------------------------------------------

    def _feed(self) -> None:
        for lot in lots(self._course, self._index, self._rows_of_a_lot):
            piece = Piece(lot)
            if len(lot.takes) > 1:
                piece.held = int(len(lot.local) * self._row_bytes())
            with self._changed:
                self._held += piece.held
                self._pieces.append(piece)
            for number, take in enumerate(lot.takes):
                if not self._need(piece, number, take):
                    return
            self._forget()
        with self._changed:
            self._fed_all = True
            for load in self._recent.values():
                self._let_go(load)
            self._recent.clear()
            self._changed.notify_all()

    def _row_bytes(self) -> float:
        return max(1.0, self._growth * float(self._index.sizes_of_groups.sum()) / max(1, len(self._index)))

    def _rows_of_a_lot(self) -> int:
        return max(self._batch, int(self._plan.prefetch / _SHARE / self._row_bytes()))

    def _need(self, piece: Piece, number: int, take: RowTake) -> bool:
        """Have one row group brought, or used again. False: closed."""
        load = self._recent.get(take.group)
        new = load is None
        if load is None:
            load = _Load(self._index.group(take.group))
            load.held = int(load.group.size * (1 + self._growth))
            if not self._room(load.held):
                return False
            self._recent[take.group] = load
            piece.raw += load.group.size
        self._recent.move_to_end(take.group)
        load.used += len(take.rows)
        with self._changed:
            load.users += 1
            piece.groups.append(load.group)
            if len(piece.lot.takes) == 1:
                piece.loads.append(load)
            ready = load.decoded is not None or load.error is not None
            if not ready:
                load.needs.append((piece, number))
            if new:
                self._held += load.held
                self._under_way += 1
        if ready:
            self._jobs.put((load, [(piece, number)]))
        elif new:
            self._read(load)
        return True

    def _room(self, size: int) -> bool:
        """Wait for it. False: closed."""
        with self._changed:
            while not self._closed:
                starving = not self._under_way and not self.ready
                if self._held + size <= self._plan.prefetch or starving:
                    return True
                if self._drop_recent():
                    continue
                self._changed.wait(_LOOK_S)
        return False

    def _forget(self) -> None:
        """Let go of row groups of which no more rows are to come, and of the oldest when there are too many."""
        stripes = self._course.residual.stripes
        with self._changed:
            for number, load in list(self._recent.items()):
                if load.used * stripes >= load.group.rows:
                    del self._recent[number]
                    self._let_go(load)
            kept = sum(load.held for load in self._recent.values())
            while kept > self._plan.prefetch * 2 // _SHARE:
                _, load = self._recent.popitem(last=False)
                kept -= load.held
                self._let_go(load)

    def _drop_recent(self) -> bool:
        """Let go of the row group used longest ago of those that nobody else uses, with the lock held. False: none."""
        for number, load in self._recent.items():
            if load.users == 1:
                del self._recent[number]
                self._let_go(load)
                return True
        return False

    def _let_go(self, load: _Load) -> None:
        """One user less, with the lock held."""
        load.users -= 1
        if not load.users:
            self._held -= load.held
            load.held = 0
            load.decoded = None
            self._changed.notify_all()

    def _read(self, load: _Load) -> None:
        group, store = load.group, self._index.store
        if not group.parts:
            self._jobs.put((load, None))
            return
        if self._near is not None:
            self._meter.reads += len(group.parts)
            self._near.expect(group)
            self._jobs.put((load, None))
            return
        reads = [
            Read(store, part.key, part.size, part.version, part.start, part.stop, (load, place))
            for place, part in enumerate(group.parts)
        ]
        self._meter.reads += len(reads)
        self._fetcher.submit(reads, self._arrived, ticket=self._ticket)

    # -- fetch threads -------------------------------------------------------------------------------------------

    def _arrived(self, read: Read, result: Blob | HeadraceError) -> None:
        load, place = cast("tuple[_Load, int]", read.tag)
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
            self._jobs.put((load, None))

    # -- decode threads ------------------------------------------------------------------------------------------

    def _decoder(self, number: int) -> Any:
        def decode_on() -> None:
            while (job := self._jobs.get()) is not None and not self._closed:
                began = time.perf_counter()
                load, needs = job
                for piece, place in self._decoded(load) if needs is None else needs:
                    self._fill(piece, place, load)
                self._busy[number] += time.perf_counter() - began
                del job, load, needs

        return decode_on

    def _decoded(self, load: _Load) -> list[tuple[Piece, int]]:
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
        with self._changed:
            self._under_way -= 1
            if decoded is not None and load.users:
                load.decoded = decoded
                self._growth = max(0.5, size / max(1, load.group.size))
                self._held += size - load.held
                load.held = size
            needs, load.needs = load.needs, []
            self._changed.notify_all()
        return needs

    def _fill(self, piece: Piece, place: int, load: _Load) -> None:
        """Put one row group's rows into a piece; the last one finishes it."""
        error, made = load.error, None
        if error is None:
            try:
                made = taken(piece.lot.takes[place], cast("DecodedRows", load.decoded))
            except BaseException as failed:
                error = failed
        with self._changed:
            piece.parts[place] = made
            piece.error = piece.error or error
            piece.fetched_at = max(piece.fetched_at, load.fetched_at)
            piece.left -= 1
            last = not piece.left
            if len(piece.lot.takes) > 1:  # copied: the row group itself is no longer needed
                self._let_go(load)
        if not last:
            return
        stretch = None
        if piece.error is None:
            try:
                stretch = put_together(piece.lot, piece.groups, piece.parts, arrow=self._arrow)
                self._meter.filtered += len(piece.lot.local) - stretch.rows
            except HeadraceError as failed:
                error = failed.at(load.group.url)
            except BaseException as failed:
                error = failed
        piece.parts = []
        piece.done_at = time.perf_counter()
        with self._changed:
            piece.error = piece.error or error
            piece.stretch = stretch
            self._changed.notify_all()
