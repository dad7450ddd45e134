"""Reads through the node's cache: hits from disk, misses claimed, fetched once and kept."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings
from headrace.base.threads import Crew, by_cores
from headrace.cache import Busy, Cache, Claim, Entries, Fill
from headrace.fetch.blocks import BlockReads
from headrace.fetch.direct import PART, Direct
from headrace.fetch.filling import Filling
from headrace.fetch.operation import Operation
from headrace.fetch.peers import Peers
from headrace.fetch.read import Read, Sink
from headrace.fetch.wanted import Wanted
from headrace.store.protocol import Blob, ObjectInfo

_log = logging.getLogger("headrace.fetch")
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_GROUP = 16
"""Lookups that a reader takes at once: enough to make waking it worth while, few enough for others to share in."""
_LEAST_READERS, _MOST_READERS = 8, 64
"""Bounds of two a core: threads that read a disk which makes us wait. They wait in it, and few disks answer faster when
asked by more than 64 at once.
"""
_MOST_COPIERS = 8
"""Threads that copy long hits, at most: memory gives no more to more of them."""
_MOSTLY = 0.9
"""Share of reads that are hits, from which on all are taken to be."""
_CALLS_S, _COPY_BYTES_S, _LONG_COPY_BYTES = 200e-6, 2e9, 512 * 1024
"""What a hit in the page cache may take: seconds for its calls, bytes a second; and from where on two copy better."""
_PARKED_S = 30.0
"""How long another process's fetch is waited for, which may have been stopped; then the read goes to the store."""
_PARK_POLL_S = 0.003  # seconds that one of them is looked after before it is the turn of the next


class Cached:
    """Puts the cache before `Direct`. Any thread may send."""

    def __init__(
        self,
        cache: Cache,
        direct: Direct,
        settings: CacheSettings,
        backlog: int,
        hurries: Sequence[None],
        metrics: Metrics,
    ) -> None:
        self._cache = cache
        self._direct = direct
        self._whole = settings.whole
        self._block = settings.block
        self._metrics = metrics
        self._most_readers = by_cores(2, _LEAST_READERS, _MOST_READERS)
        self._copiers = by_cores(1 / 4, 2, _MOST_COPIERS)
        self._readers = Crew("cache-read", self._most_readers)
        self._lookups: deque[Sequence[Operation]] = deque()
        self._looking = 0
        self._per_read = self._size = 0.0  # running means: seconds and bytes of a hit
        self._hits = 0.0  # running mean: their share
        self._lately = 1.0  # the same of the last few reads; nothing is known at first, and will be soon
        self._lock = threading.Lock()
        self._fetched = 0  # bytes; written by fetch threads without a lock: a gauge of progress
        self.filling = Filling(cache, max(backlog, PART), lambda: self._fetched, lambda: bool(hurries))
        self._parking = Crew("cache-wait", 1)
        self.peers: Peers | None = None
        """Other nodes' caches, which are asked before the store."""
        self._blocks = BlockReads(cache, direct, self.filling, metrics, self._park, self.came)

    def takes(self, read: Read) -> bool:
        """Whether this read goes through the cache: a known version of a known size in a store that is not local."""
        known = read.version is not None and read.size is not None and read.size >= 0
        return known and self._cache.enabled and read.store.local_root is None

    def peek(self, read: Read) -> Blob | None:
        """The bytes if they are cached, on the calling thread."""
        name = self._name(read)
        data = self._cached(read, name)
        return None if data is None else Blob(data, ObjectInfo(read.key, read.size or 0, read.version))

    @property
    def quick(self) -> bool:
        """Whether nearly all reads are hits, and short copies: then whoever asks may as well make them."""
        return self._hits > _MOSTLY and self._size < _LONG_COPY_BYTES and self._wanted() == 1 and not self._lookups

    @property
    def warm(self) -> bool:
        """Whether the last reads were nearly all hits."""
        return self._lately > _MOSTLY

    @property
    def behind(self) -> bool:
        """Whether blocks come faster than they are kept."""
        return self._blocks.behind

    def passed_by(self) -> None:
        """Reads went to a store that is not cached."""
        self._lately = 0.0

    def serve(self, reads: Sequence[Read], sink: Sink) -> list[Read]:
        """Answer the hits on the calling thread. Returns the others."""
        left: list[Read] = []
        store, identity, size = None, "", 0
        name_of, cached = self._cache.name, self._cache.read
        began = time.perf_counter()
        for read in reads:
            if read.store is not store:
                store, identity = read.store, read.store.identity
            data = None
            if read.version is not None and read.size and read.start == 0 and read.stop is None:
                data = cached(name_of(identity, read.key, read.version, read.size))
            if data is None:
                left.append(read)
                continue
            size += len(data)
            info = _tuple(ObjectInfo, (read.key, read.size, read.version, 0, None))
            sink(read, _tuple(Blob, (data.toreadonly(), info, ())))
        self._account(len(reads) - len(left), len(left), size, time.perf_counter() - began)
        return left

    def kept(self, entries: Entries) -> list[memoryview | None]:
        """As `Fetcher.kept`."""
        began = time.perf_counter()
        found = self._cache.read_many(entries)
        missing = found.count(None)
        hits = len(found) - missing
        size = sum(len(one) for one in found if one is not None) if missing else int(entries.sizes.sum())
        self._account(hits, missing, size, time.perf_counter() - began)
        return [one and one.toreadonly() for one in found]

    def send(self, operations: Sequence[Operation]) -> None:
        """Look up, fetch what is missing, keep it."""
        if not self._size:  # nothing is known of hits yet: a guess
            self._size = float(operations[0].read.length())
        self._lookups.extend(operations[start : start + _GROUP] for start in range(0, len(operations), _GROUP))
        self._look_more()

    def _look_more(self) -> None:
        """As many readers as are wanted now."""
        with self._lock:
            more = min(self._wanted() - self._looking, len(self._lookups))
            self._looking += max(more, 0)
        for _ in range(more):
            self._readers.add(self._look_on)

    def _wanted(self) -> int:
        """How many threads should read: one while a read is a short copy (more would fight for the interpreter's
        lock), a few for long copies, many when the disk makes us wait.
        """
        if self._per_read > 3 * (_CALLS_S + self._size / _COPY_BYTES_S):
            return self._most_readers
        return 1 if self._size < _LONG_COPY_BYTES else self._copiers

    def _look_on(self) -> None:
        while True:
            with self._lock:
                if not self._lookups or self._looking > self._wanted():
                    self._looking -= 1
                    return
                group = self._lookups.popleft()
            try:
                self._look(group)
                if self._looking < self._wanted():  # each has learnt what the next should know
                    self._look_more()
            except Exception:
                _log.exception("a look into the cache failed; this is a defect in headrace")

    def close(self) -> None:
        """Stop. What waits to be written is written first."""
        self._parking.close(drop=True)
        self._readers.close(drop=True)
        self.filling.close()

    def _name(self, read: Read) -> str:
        return self._cache.name(read.store.identity, read.key, read.version or "", read.size or 0)

    def _cached(self, read: Read, name: str) -> memoryview | None:
        _, _, size, _, start, stop, _ = read
        size = size or 0
        if start == 0 and (stop is None or stop >= size):
            return self._cache.read(name)
        return self._cache.read_range(name, start, size if stop is None else min(stop, size))

    def _look(self, operations: Sequence[Operation]) -> None:
        missing: list[Wanted] = []
        began, size = time.perf_counter(), 0
        for operation in operations:
            if operation.ticket.cancelled:
                continue
            read = operation.read
            name = self._name(read)
            data = self._blocks.peek(name, read) if self._blocks.under_way(name) else self._cached(read, name)
            if data is None:
                missing.append(Wanted(operation, name))
            else:
                size += len(data)
                info = _tuple(ObjectInfo, (read.key, read.size, read.version, 0, None))
                operation.done(_tuple(Blob, (data, info, ())))
        self._account(len(operations) - len(missing), len(missing), size, time.perf_counter() - began)
        if missing:
            self._fetch(missing)

    def _account(self, hits: int, misses: int, size: int, seconds: float) -> None:
        if hits:
            self._per_read += 0.1 * (seconds / hits - self._per_read)
            self._size += 0.1 * (size / hits - self._size)
        if hits + misses:
            weight = max(0.5, 1 - 0.5 ** ((hits + misses) / _GROUP))
            self._lately += weight * (hits / (hits + misses) - self._lately)
            self._hits += 0.1 * (hits / (hits + misses) - self._hits)

    def _fetch(self, missing: Sequence[Wanted]) -> None:
        if self.peers is not None:
            missing = self.peers.take(missing)
            if not missing:
                return
        keep = self.filling.wait()
        ready: list[Operation] = []
        for wanted in missing:
            read = wanted.read
            assert read.size is not None
            if read.size > self._whole or (not read.whole and read.size > self._block):
                self._blocks.send(wanted)
            elif not keep:
                ready.append(self._unclaimed(wanted))
            else:
                claim = self._cache.claim(wanted.name)
                if isinstance(claim, Busy):
                    self._park(wanted, claim)
                elif claim is None:
                    ready.append(wanted.operation)
                else:
                    ready.append(self._claimed(wanted, claim))
                    if self.filling.crowded:
                        self._send_on(ready)
                        ready = []
                        keep = self.filling.wait()
        self._send_on(ready)

    def _send_on(self, ready: Sequence[Operation]) -> None:
        stores = {id(o.read.store): o.read.store for o in ready}
        for key, store in stores.items():
            self._direct.send(store, [o for o in ready if id(o.read.store) == key])

    def _claimed(self, wanted: Wanted, claim: Claim) -> Operation:
        read = wanted.read
        whole = Read(read.store, read.key, read.size, read.version)

        def done(result: Blob | HeadraceError) -> None:
            if isinstance(result, HeadraceError) or len(result.data) != read.size:
                wanted.operation.done(result)
                self.filling.end(0, claim.abandon)
                return
            self.came(len(result.data))
            data = result.data if read.whole else result.data[read.start : read.stop]
            wanted.operation.done(Blob(data, result.info))
            self.filling.keep(Fill(wanted.name, result.data, wanted.label(), claim))

        self.filling.begin()
        return Operation(whole, done, wanted.operation.ticket, wanted.operation.demand)

    def _unclaimed(self, wanted: Wanted) -> Operation:
        """Read on without agreeing with others on who keeps it; what the writer has time for is kept all the same."""
        operation = wanted.operation
        read = operation.read

        def done(result: Blob | HeadraceError) -> None:
            operation.done(result)
            if isinstance(result, HeadraceError) or len(result.data) != read.size:
                return
            self.came(len(result.data))
            if self.filling.full:
                self._metrics.add("cache.fill_shed")
            else:
                self.filling.begin()
                self.filling.keep(Fill(wanted.name, result.data, wanted.label()))

        if not read.whole or not 0 <= (read.size or 0) <= self._whole:
            self._metrics.add("cache.fill_shed")
            return operation
        return Operation(read, done, operation.ticket, operation.demand)

    def came(self, size: int) -> None:
        """So many bytes were read that the cache did not have."""
        self._fetched += size

    def _park(self, wanted: Wanted, busy: Busy) -> None:
        # Another thread or process fetches it: wait for that, but never for ever.
        self._metrics.add("cache.waited")
        until = time.monotonic() + _PARKED_S

        def poll() -> None:
            if wanted.operation.ticket.cancelled:
                return
            if busy.wait(_PARK_POLL_S):
                self.send([wanted.operation])
            elif time.monotonic() > until:
                self._direct.send(wanted.read.store, [wanted.operation])
            else:
                self._parking.add(poll)

        self._parking.add(poll)
