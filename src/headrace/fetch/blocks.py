"""Parts of large objects: whole blocks are fetched, each once on this node whoever wants it, and kept.

Samples in shards lie side by side, so the reads of many of them want the same block at the same time. A `_Run` is some
neighbouring blocks on their way in one request; every read that touches them waits for it, gets its bytes from memory
as they come, and the entry is written behind that. What another process has on its way is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, InternalError
from headrace.base.memory import copy, take
from headrace.base.metrics import Metrics
from headrace.cache import BlockClaim, Busy, Cache
from headrace.fetch.direct import PART, Direct
from headrace.fetch.filling import Filling
from headrace.fetch.operation import Operation
from headrace.fetch.read import Read, Ticket
from headrace.fetch.wanted import Wanted
from headrace.store.protocol import Blob

if TYPE_CHECKING:
    from headrace.cache import BlockEntry

_WORTH_HOLDING = 2
"""Where at least a half of a run's bytes is waited for, readers of an eighth and more get views of them, all others
copies: a view keeps all, and many small ones may be let go of at very different times.
"""
_PART = 8  # a view is at least such a part of the run
_LONG = 2 * PART
"""Bytes from which on a read has its buffer at once, and what comes for it is received there."""
_BEHIND_BYTES = 32 << 20
"""Bytes that wait to be kept from which on the disk is what everybody waits for."""


class _Run:
    """Blocks [start, stop) of an object, in bytes, in one request. `data`: once they are here, until they are kept.
    `tickets`: of everybody who asked; `asked`: for so many bytes. `dropped`: it was found that all of them are
    cancelled. `into`: its place in a reader's own buffer; None: it gets memory of its own.
    """

    __slots__ = ("asked", "claims", "data", "dropped", "into", "start", "stop", "tickets", "waiting")

    def __init__(self, start: int) -> None:
        self.start = self.stop = start
        self.claims: list[BlockClaim] = []
        self.data: memoryview | None = None
        self.into: memoryview | None = None
        self.dropped = False
        self.asked = 0
        self.tickets: list[Ticket] = []
        self.waiting: list[_Gather] = []

    def ask(self, wanted: Wanted) -> None:
        """Somebody wants some of it."""
        start, stop = wanted.span
        self.tickets.append(wanted.operation.ticket)
        self.asked += max(0, min(stop, self.stop) - max(start, self.start))

    def cut(self, start: int, stop: int, data: memoryview) -> memoryview:
        """Bytes [start, stop) of the object, out of `data`, for somebody to keep."""
        view = data[start - self.start : stop - self.start]
        if _WORTH_HOLDING * self.asked >= len(data) and _PART * len(view) >= len(data):
            return view
        own = take(len(view))
        copy(own, view)
        return own


class _Interest(Ticket):
    """Cancelled once everybody who asked is."""

    __slots__ = ("_run",)

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self._run = run
        self.account = run.tickets[0].account if run.tickets else None  # this may be anybody's thread

    @property
    def cancelled(self) -> bool:
        run = self._run
        run.dropped = run.dropped or all(ticket.cancelled for ticket in run.tickets)
        return run.dropped


class _File:
    """An object that is being read from here, its entry open. `users`: who needs it beside its runs."""

    __slots__ = ("entry", "runs", "users")

    def __init__(self, entry: BlockEntry) -> None:
        self.entry = entry
        self.runs: dict[int, _Run] = {}
        self.users = 0


class _Gather:
    """One read whose bytes come with several runs, or lie in the entry in part. `left`: for how many it waits.

    They are received in one `buffer`, or copied to it, or kept as they came: `pieces`, by where they begin.
    """

    __slots__ = ("alone", "buffer", "left", "lock", "over", "pieces", "start", "stop", "wanted")

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self.start, self.stop = wanted.span
        self.buffer: memoryview | None = None
        self.pieces: dict[int, memoryview] | None = None
        self.alone = True
        """All of it comes with one run."""
        self.left = 1
        self.lock = threading.Lock()
        self.over = False

    def expect(self, runs: list[_Run]) -> None:
        """What it will wait for, in order."""
        if len(runs) > 1 or self.start < runs[0].start or self.stop > runs[0].stop:
            self.alone = False
            if self.wanted.operation.pieces:
                self.pieces = {}
            self.left = len(runs) + 1  # and what lies in the entry

    def place(self, run: _Run) -> memoryview | None:
        """Where a run's bytes are wanted, if all of them are. Of long reads only: such a request has no hedge."""
        if self.alone or self.pieces is not None or self.stop - self.start < _LONG:
            return None
        if run.start < self.start or run.stop > self.stop:
            return None
        return self._whole()[run.start - self.start : run.stop - self.start]

    def came(self, run: _Run, data: memoryview) -> None:
        """A run is here."""
        if self.alone:
            self.wanted.hit(run.cut(self.start, self.stop, data))
            return
        low, high = max(self.start, run.start), min(self.stop, run.stop)
        if self.pieces is not None:
            self.pieces[low] = run.cut(low, high, data)
        else:
            self.put(low, data[low - run.start : high - run.start])
        self.arrived()

    def put(self, start: int, data: memoryview) -> None:
        """Bytes of the object from `start` on, which it may keep."""
        if self.pieces is not None:
            self.pieces[start] = data
            return
        buffer = self._whole()
        if data.obj is not buffer.obj:
            copy(buffer[start - self.start : start - self.start + len(data)], data)

    def _whole(self) -> memoryview:
        with self.lock:
            if self.buffer is None:
                self.buffer = take(self.stop - self.start)
            return self.buffer

    def arrived(self) -> None:
        """One of those it waits for has come."""
        with self.lock:
            self.left -= 1
            last = self.left == 0 and not self.over
        if last and self.pieces is not None:
            first, *more = (data for _, data in sorted(self.pieces.items()))
            self.wanted.hit(first, tuple(more))
        elif last:
            assert self.buffer is not None
            self.wanted.hit(self.buffer)

    def end(self) -> bool:
        """It gets no bytes from here any more. False: it has ended before."""
        with self.lock:
            first, self.over = not self.over, True
        return first


class BlockReads:
    """Reads through block entries. Any thread.

    `park` is given a read for whose blocks another process has gone, to be sent again when it is through; `fetched` is
    told of bytes that came.
    """

    def __init__(
        self,
        cache: Cache,
        direct: Direct,
        filling: Filling,
        metrics: Metrics,
        park: Callable[[Wanted, Busy], None],
        fetched: Callable[[int], None],
    ) -> None:
        self._cache = cache
        self._direct = direct
        self._filling = filling
        self._metrics = metrics
        self._park = park
        self._told = fetched
        self._files: dict[str, _File] = {}
        self._lock = threading.Lock()
        self._to_keep = 0

    @property
    def behind(self) -> bool:
        """Whether keeping is slower than reading: there is no use in reading far ahead."""
        return self._to_keep >= _BEHIND_BYTES

    def under_way(self, name: str) -> bool:
        """Whether blocks of this object are being fetched from here: then `peek` is quicker than opening the entry."""
        return name in self._files

    def peek(self, name: str, read: Read) -> memoryview | None:
        """The bytes if all of them are in the entry, a hit; else a miss."""
        with self._lock:
            file = self._files.get(name)
            if file is not None:
                file.users += 1
        data = None
        if file is not None:
            try:
                data = file.entry.read(read.start, read.stop)
            finally:
                self._leave(file, name)
        self._metrics.add("cache.miss" if data is None else "cache.hit")
        if data is not None:
            self._metrics.add("cache.bytes_read", len(data))
        return data

    def send(self, wanted: Wanted) -> None:
        """Read: from the entry where all is there, else from what is on its way, else from the store."""
        file = self._open(wanted)
        if file is None:
            self._direct.send(wanted.read.store, [wanted.operation])
            return
        try:
            self._send(wanted, file)
        finally:
            self._leave(file, wanted.name)

    def _send(self, wanted: Wanted, file: _File) -> None:
        gather = _Gather(wanted)
        here: list[tuple[_Run, memoryview]] = []
        with self._lock:
            runs, fresh, busy = self._plan(file, gather)
            if busy is None and runs:
                gather.expect(runs)
                for run in runs:
                    run.ask(wanted)
                    if run.data is None:
                        run.waiting.append(gather)
                    else:
                        here.append((run, run.data))
            elif busy is not None:  # what was claimed is fetched all the same
                for run in fresh:
                    run.ask(wanted)
        for run in fresh:
            run.into = None if busy is not None else gather.place(run)
            self._fetch(run, wanted, file)
        if busy is not None:
            self._park(wanted, busy)
        elif runs:
            for run, data in here:
                gather.came(run, data)
            self._fill_in(file, gather, runs)
        elif (data := file.entry.read(gather.start, gather.stop)) is not None:
            wanted.hit(data)
        else:  # the disk fails
            self._direct.send(wanted.read.store, [wanted.operation])

    def _plan(self, file: _File, gather: _Gather) -> tuple[list[_Run], list[_Run], Busy | None]:
        """The runs that bring what is not in the entry, those of them that must be begun, and whom to wait for first.
        The lock is held.
        """
        entry, block = file.entry, file.entry.block
        absent = _indices(entry.missing(gather.start, gather.stop), block)
        claims: dict[int, BlockClaim | None] = {}
        busy: Busy | None = None
        for index in absent:
            if index not in file.runs:
                claim = self._cache.claim_block(entry.name, index)
                if isinstance(claim, Busy):
                    busy = claim
                else:
                    claims[index] = claim
        if claims:  # others may have been through with some, between the look and the claim
            absent = _indices(entry.missing(gather.start, gather.stop), block)
        fresh: list[_Run] = []
        for index, claim in claims.items():
            start, stop = index * block, min(entry.size, (index + 1) * block)
            if index not in absent:
                if claim is not None:
                    claim.release()
                continue
            if not fresh or fresh[-1].stop != start or stop - fresh[-1].start > max(PART, block):
                fresh.append(_Run(start))
            fresh[-1].stop = stop
            file.runs[index] = fresh[-1]
            if claim is not None:
                fresh[-1].claims.append(claim)
        wanted = range(gather.start // block, (gather.stop - 1) // block + 1)
        return list(dict.fromkeys(file.runs[index] for index in wanted if index in file.runs)), fresh, busy

    def _fill_in(self, file: _File, gather: _Gather, runs: list[_Run]) -> None:
        """What no run brings lies in the entry."""
        if gather.alone:
            return
        at = gather.start
        for start, stop in [*((run.start, run.stop) for run in runs), (gather.stop, gather.stop)]:
            if at < start and not self._from_entry(file, gather, at, min(start, gather.stop)):
                return
            at = max(at, stop)
        gather.arrived()

    def _from_entry(self, file: _File, gather: _Gather, start: int, stop: int) -> bool:
        data = file.entry.read(start, stop)
        if data is None:
            if gather.end():
                self._direct.send(gather.wanted.read.store, [gather.wanted.operation])
            return False
        gather.put(start, data)
        return True

    def _fetch(self, run: _Run, wanted: Wanted, file: _File) -> None:
        read = wanted.read
        with self._lock:
            file.users += 1
        self._filling.begin()
        part = Read(read.store, read.key, read.size, read.version, run.start, run.stop)

        def done(result: Blob | HeadraceError) -> None:
            self._came(file, wanted.name, run, result)

        self._direct.send(read.store, [Operation(part, done, _Interest(run), wanted.operation.demand, run.into)])

    def _came(self, file: _File, name: str, run: _Run, result: Blob | HeadraceError) -> None:
        """A run is here, or has failed. On a fetch thread."""
        if isinstance(result, Blob) and len(result.data) != run.stop - run.start:
            result = InternalError(f"a part has {len(result.data)} bytes, not {run.stop - run.start}")
        if isinstance(result, HeadraceError):
            self._ended(file, name, run, result)
            self._filling.end(0, lambda: None)
            return
        data = result.data
        self._told(len(data))
        self._keeping(len(data))
        # Where the disk does not keep up, bytes are handed out no faster than they are written; those in a reader's own
        # buffer take no memory from anybody.
        waiting = [] if self._filling.behind and run.into is None else self._arrived(run, data)
        self._filling.end(len(data), lambda: self._keep(file, name, run, data))
        for gather in waiting:
            gather.came(run, data)

    def _arrived(self, run: _Run, data: memoryview) -> list[_Gather]:
        with self._lock:
            run.data = data
            waiting, run.waiting = run.waiting, []
        return waiting

    def _keeping(self, size: int) -> None:
        with self._lock:
            self._to_keep += size

    def _keep(self, file: _File, name: str, run: _Run, data: memoryview) -> None:
        """On the writer's thread."""
        try:
            file.entry.write(run.start, data)
        finally:
            self._keeping(-len(data))
            for gather in self._arrived(run, data):
                gather.came(run, data)
            self._ended(file, name, run, None)

    def _ended(self, file: _File, name: str, run: _Run, error: HeadraceError | None) -> None:
        with self._lock:
            for index in [index for index, one in file.runs.items() if one is run]:
                del file.runs[index]
            waiting, run.waiting = run.waiting, []
            run.data = None
        for claim in run.claims:
            claim.release()
        self._leave(file, name)
        for gather in waiting:
            if gather.end() and error is not None:
                if run.dropped and not gather.wanted.operation.ticket.cancelled:
                    self.send(gather.wanted)  # it came when all the others had gone
                else:
                    gather.wanted.operation.done(error)

    def _open(self, wanted: Wanted) -> _File | None:
        with self._lock:
            file = self._files.get(wanted.name)
            if file is not None:
                file.users += 1
                return file
        read = wanted.read
        assert read.size is not None
        entry = self._cache.blocks(wanted.name, read.size, wanted.label())
        if entry is None:
            return None
        with self._lock:
            file = self._files.setdefault(wanted.name, _File(entry))
            file.users += 1
        if file.entry is not entry:
            entry.close()
        return file

    def _leave(self, file: _File, name: str) -> None:
        with self._lock:
            file.users -= 1
            last = file.users == 0
            if last:
                del self._files[name]
        if last:
            file.entry.close()


def _indices(ranges: list[tuple[int, int]], block: int) -> list[int]:
    return [index for start, stop in ranges for index in range(start // block, (stop - 1) // block + 1)]
