"""The one way the rooms above read bytes: through the cache where it can be, together where it helps."""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.cache import Cache, Entries
from headrace.fetch.cached import Cached
from headrace.fetch.direct import Direct
from headrace.fetch.filling import DRAIN_S
from headrace.fetch.operation import Operation
from headrace.fetch.peers import Peers
from headrace.fetch.pending import Pending
from headrace.fetch.read import Read, Sink, Ticket, sealed
from headrace.fetch.straight import Limiter, Straight
from headrace.store.protocol import Blob, ObjectInfo, Store

_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor


@dataclass(frozen=True)
class FetchStats:
    """Counters since the fetcher was opened (names: docs/reference/metrics.md) and levels by store (seconds)."""

    counters: dict[str, float] = field(default_factory=dict[str, float])
    stores: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])


class Fetcher:
    """Reads object versions. All methods may be called from any thread; open one per process (`default_fetcher`).

    `bulk`: what counts is when all is read, not when any one read ends: all connections are used from the start, and
    while many requests are under way their answers are looked for once a millisecond, unless many come in that time.
    """

    def __init__(self, settings: Settings, cache: Cache | None, metrics: Metrics, *, bulk: bool = False) -> None:
        self.settings = settings
        self.cache = cache
        self.metrics = metrics
        self._direct = Direct(settings.fetch, metrics, bulk=bulk)
        self._hurries: list[None] = []
        self._cached: Cached | None = None
        if cache is not None:
            backlog = settings.fetch.memory // 4
            self._cached = Cached(cache, self._direct, settings.cache, backlog, self._hurries, metrics)
            if settings.cache.peers:
                self._cached.peers = Peers(settings, self._direct, metrics, self._cached.came)

    @staticmethod
    def open(settings: Settings, cache: Cache | None = None, metrics: Metrics | None = None) -> Fetcher:
        """A fetcher over `cache` (None: the one the settings name; a size of 0 switches it off)."""
        metrics = metrics or Metrics()
        if cache is None and settings.cache.size > 0:
            cache = Cache.open(settings.cache, metrics)
        return Fetcher(settings, cache if cache is not None and cache.enabled else None, metrics)

    def submit(
        self,
        reads: Sequence[Read],
        sink: Sink,
        *,
        demand: bool = True,
        here: bool = False,
        pieces: bool = False,
        ticket: Ticket | None = None,
    ) -> Ticket:
        """Start reading; `sink(read, blob or error)` is called for each read as it ends, on a fetch thread.

        `demand` False marks speculation (read-ahead), which yields to demand in the one memory budget. `here`: the
        caller has nothing better to do: it may read what is cached itself, and its thread call `sink`, before this
        returns; a hand-over to another thread costs as much as a short read. `pieces`: bytes that came with several
        requests need not be copied together: see `Blob.more`. `ticket`: of an earlier call, which these reads share.
        """
        ticket = ticket or Ticket()
        if here and self._cached is not None and self._cached.quick:
            reads = self._cached.serve(reads, sink)
        direct: dict[int, tuple[Store, list[Operation]]] = {}
        cached: list[Operation] = []
        for read in reads:
            operation = Operation(read, partial(_told, sink, read), ticket, demand, pieces=pieces)
            if self._cached is not None and self._cached.takes(read):
                cached.append(operation)
            else:
                store = read.store
                direct.setdefault(id(store), (store, []))[1].append(operation)
        if cached and self._cached is not None:
            self._cached.send(cached)
        for store, operations in direct.values():
            self._direct.send(store, operations)
        if here and direct and self._cached is not None:
            self._cached.passed_by()
        return ticket

    def keeps(self, store: Store) -> bool:
        """Whether objects of `store` are kept in the node's cache."""
        return self.cache is not None and self.cache.enabled and store.local_root is None

    def kept(self, entries: Entries) -> list[memoryview | None]:
        """What the cache holds of these whole objects, read on the calling thread, some dozens at a time; None for each
        that it does not hold: `submit` those. Small ones share memory. Any thread; many at once get in no one's way.
        """
        if self._cached is None:
            return [None] * len(entries)
        return self._cached.kept(entries)

    def file(self, read: Read) -> int | None:
        """The file of the whole object that `read` is of, opened for reading, where the cache holds it. Close it."""
        if self.cache is None or read.version is None or read.size is None:
            return None
        return self.cache.descriptor(self.cache.name(read.store.identity, read.key, read.version, read.size))

    @property
    def warm(self) -> bool:
        """Whether the last reads were nearly all served by the cache, as far as is known. Any thread."""
        return self._cached is not None and self._cached.warm

    @property
    def behind(self) -> bool:
        """Whether what is read of large objects comes faster than the cache's disk takes it. Any thread."""
        return self._cached is not None and self._cached.behind

    def get(self, read: Read) -> Blob:
        """Read and wait.

        Raises:
            NotFoundError, ChangedError (not the version asked for), DeniedError, TryAgainError, InputError.
        """
        if self._cached is not None and self._cached.takes(read):
            blob = self._cached.peek(read)
            if blob is not None:
                return sealed(blob)
        return self.start([read]).blob()

    def start(self, reads: Sequence[Read], *, demand: bool = True, here: bool = False, pieces: bool = False) -> Pending:
        """Start reading, and wait when their bytes are needed. Tags are not looked at; the rest as `submit`."""
        pending = self.pending(len(reads), reads[0].path if reads else "")
        placed = [_tuple(Read, (*read[:-1], place)) for place, read in enumerate(reads)]
        pending.ticket = self.submit(placed, pending.deliver, demand=demand, here=here, pieces=pieces)
        return pending

    def pending(self, count: int, path: str) -> Pending:
        """The wait for `count` reads that the caller submits itself, each tagged with its place, and whose results it
        hands to `Pending.deliver` after a look at them. `path`: of the first, for messages.
        """
        return Pending(count, path, self.settings.fetch.deadline, self.hurry)

    def in_order(self, reads: Iterable[Read], *, ahead: int) -> Generator[Blob]:
        """The bytes of one read after the other, the next `ahead` under way meanwhile. Raises as `get`, when it is the
        failed one's turn; what is under way then, or when nobody goes on, is cancelled.
        """
        under_way: deque[Pending] = deque()
        try:
            for read in reads:
                under_way.append(self.start([read]))
                if len(under_way) > ahead:
                    yield under_way.popleft().blob()
            while under_way:
                yield under_way.popleft().blob()
        finally:
            for pending in under_way:
                pending.cancel()

    def read_all(self, reads: Iterable[Read], sink: Sink, *, in_flight: int, pieces: bool = False) -> None:
        """Read every one with at most `in_flight` under way, and wait for the last; `sink` and `pieces` as `submit`.

        The next is taken from `reads` when there is room for it. What interrupts the wait cancels what is under way.
        """
        room, ticket, coming = threading.Semaphore(in_flight), Ticket(), iter(reads)

        def told(read: Read, result: Blob | HeadraceError) -> None:
            try:
                sink(read, result)
            finally:
                room.release()

        try:
            room.acquire()
            for read in coming:
                self.submit([read], told, pieces=pieces, ticket=ticket)
                room.acquire()
            for _ in range(in_flight - 1):
                room.acquire()
        except BaseException:
            ticket.cancel()
            raise

    def straights(self, count: int) -> list[Straight]:
        """Readers for so many threads that receive themselves, each with large reads one after the other and work of
        its own in between. Close them.
        """
        limiter = Limiter(self.settings.fetch.connections)
        one = partial(Straight, limiter, self.get, self._direct.wire, self.settings.fetch, self.metrics)
        return [one() for _ in range(count)]

    def head(self, store: Store, key: str) -> ObjectInfo:
        """The object's size and version now.

        Raises:
            NotFoundError, DeniedError, TryAgainError.
        """
        self.metrics.add("fetch.heads")
        return store.head(key)

    @contextmanager
    def hurry(self) -> Generator[None]:
        """Around a wait for bytes: what merely keeps them for later gives way meanwhile. About 1 µs."""
        self._hurries.append(None)
        try:
            yield
        finally:
            self._hurries.pop()

    def insist(self) -> None:
        """From now on, where writing into the cache is slower than reading, wait for it; leave no object out."""
        if self._cached is not None:
            self._cached.filling.insist = True

    def settle(self, timeout_s: float = 30.0) -> bool:
        """Wait until everything fetched so far is in the cache, or was given up; False after `timeout_s`."""
        return self._cached is None or self._cached.filling.settle(timeout_s)

    def drain(self) -> None:
        """Give what was fetched and waits to be written into the cache a second or two. Any thread."""
        if self._cached is not None:
            # Objects are handed out before they are written, and the next run should find them.
            self._cached.filling.drain(DRAIN_S)

    @property
    def fills_under_way(self) -> int:
        """Objects being fetched for the cache, or waiting to be written into it."""
        return len(self._cached.filling) if self._cached is not None else 0

    def stats(self) -> FetchStats:
        """Counters, and the concurrency and latency found for each store."""
        counters = {**self.metrics.snapshot(), "fetch.bytes_in_flight": float(self._direct.in_flight)}
        return FetchStats(counters, self._direct.levels())

    def told(self) -> dict[str, float]:
        """What a verdict is made of (`headrace.base.figures`): counters, and two gauges. Any thread."""
        levels = self._direct.levels().values()
        gauges = {
            "fetch.concurrency": sum(level["concurrency"] for level in levels),
            "fetch.connections": float(self.settings.fetch.connections),
        }
        return {**self.metrics.snapshot(), **(gauges if levels else {})}

    def close(self) -> None:
        """Stop all threads within seconds; unfinished reads fail. The cache is closed too."""
        if self._cached is not None and self._cached.peers is not None:
            self._cached.peers.close()
        self._direct.close()
        if self._cached is not None:
            self._cached.close()
        if self.cache is not None:
            self.cache.close()


def _told(sink: Sink, read: Read, result: Blob | HeadraceError) -> None:
    sink(read, sealed(result) if isinstance(result, Blob) else result)


def default_fetcher(settings: Settings | None = None) -> Fetcher:
    """The process's fetcher, opened at first use with `settings` (default: `Settings.load()`).

    A forked child opens its own: threads and connections do not survive a fork.
    """
    return _shared.get(settings)


class _Shared:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fetcher: Fetcher | None = None

    def get(self, settings: Settings | None) -> Fetcher:
        with self.lock:
            if self.fetcher is None:
                self.fetcher = Fetcher.open(settings or Settings.load())
            return self.fetcher

    def drain(self) -> None:
        if self.fetcher is not None:
            self.fetcher.drain()


_shared = _Shared()
atexit.register(_shared.drain)
os.register_at_fork(after_in_child=_shared.__init__)
