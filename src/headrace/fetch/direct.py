"""Reads that go to the store: over the wire where there is one, else through threads; large ones in parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from headrace.base.account import on
from headrace.base.budget import ByteBudget
from headrace.base.errors import ChangedError, HeadraceError, InternalError
from headrace.base.figures import LATENCIES, latency_class
from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.base.settings import FetchSettings
from headrace.base.threads import Crew, by_cores
from headrace.fetch.answer import changed, wrong_length
from headrace.fetch.operation import Operation
from headrace.fetch.reactor import Reactor
from headrace.fetch.read import UNKNOWN_BYTES, Read
from headrace.fetch.verify import Verifier
from headrace.store.protocol import Blob, ObjectInfo, Store, Wire

PART = 8 << 20
"""Bytes of one request of a large read: a store sends one at some hundred MB/s, and a lost one costs little."""
_THREADS = 32
"""Threads that wait in `Store.get`, at most, on up to eight cores: more of them fight for the interpreter's lock."""
_GROUP = 4
"""Reads of a local store that a thread does one after the other: one costs little more than handing it over."""


class Direct:
    """Sends operations to their stores. Any thread."""

    def __init__(self, settings: FetchSettings, metrics: Metrics, *, bulk: bool = False) -> None:
        self._bulk = bulk
        self._settings = settings
        self._metrics = metrics
        self.budget = ByteBudget(settings.memory)
        self._reactor: Reactor | None = None
        self._starting = threading.Lock()
        self._wires: dict[int, tuple[Store, Wire | None]] = {}
        self._workers = Crew("read", by_cores(4, _THREADS, settings.connections))
        self._verifier = Verifier(lambda o: self._start(o.read.store, [o]), metrics) if settings.verify else None

    def send(self, store: Store, operations: Sequence[Operation]) -> None:
        """Start reads of one store, splitting the large."""
        if self._verifier is not None:
            operations = [self._verifier.wrap(operation) for operation in operations]
        self._start(store, operations)

    def _start(self, store: Store, operations: Sequence[Operation]) -> None:
        wire = self.wire(store)
        empty = [o for o in operations if o.read.stop is not None and o.read.stop <= o.read.start]
        if wire is not None and empty:  # no HTTP range is empty: `Store.get` knows how to answer these
            self._workers.add(lambda: self._by_thread(empty))
            operations = [o for o in operations if o not in empty]
        if wire is None:
            together = 1 if store.local_root is None else _GROUP  # a late answer must not hold back the next read
            for start in range(0, len(operations), together):
                group = operations[start : start + together]
                self._workers.add(lambda group=group: self._by_thread(group))
            return
        parts: list[Operation] = []
        for operation in operations:
            if operation.read.size is not None and operation.read.length() > 2 * PART:
                parts.extend(_split(operation))
            else:
                parts.append(operation)
        self._running().submit(store, wire, parts)

    def wire(self, store: Store) -> Wire | None:
        """The store's, if it has one."""
        known = self._wires.get(id(store))
        if known is None or known[0] is not store:
            known = self._wires[id(store)] = (store, store.wire())
        return known[1]

    def levels(self) -> dict[str, dict[str, float]]:
        """Concurrency and latency by store."""
        return self._reactor.levels() if self._reactor is not None else {}

    @property
    def in_flight(self) -> int:
        """Bytes under way."""
        return self.budget.used

    def close(self) -> None:
        """Stop. Unfinished reads fail."""
        if self._reactor is not None:
            self._reactor.close()
        self._workers.close(drop=True)
        if self._verifier is not None:
            self._verifier.close()

    def _running(self) -> Reactor:
        with self._starting:  # two that were started at once would each have half of the reads, and one never end
            if self._reactor is None:
                self._reactor = Reactor(self._settings, self.budget, self._metrics, bulk=self._bulk)
            return self._reactor

    def _by_thread(self, operations: Sequence[Operation]) -> None:
        timed = operations[0].read.store.local_root is None  # a local read takes little more than taking its time
        for operation in operations:
            with on(operation.ticket.account):
                found = self._get(operation, timed=timed)
            operation.done(found)

    def _get(self, operation: Operation, *, timed: bool) -> Blob | HeadraceError:
        read = operation.read
        if operation.ticket.cancelled:
            return InternalError("the read was cancelled", path=read.path)
        try:
            with self.budget.hold(read.length(UNKNOWN_BYTES), demand=operation.demand):
                self._metrics.add("fetch.requests")
                began = time.perf_counter()
                blob = read.store.get(read.key, read.start, None if read.whole else read.stop)
            if timed:  # no telling apart of the first byte and the others
                self._metrics.add(LATENCIES[latency_class(time.perf_counter() - began)])
            self._metrics.add("fetch.bytes", len(blob.data))
        except HeadraceError as error:
            self._metrics.add("fetch.errors")
            return error.at(read.path)
        except Exception as error:
            self._metrics.add("fetch.errors")
            return InternalError(f"{type(error).__name__}: {error}", path=read.path)
        return blob if read.version is None else _checked(read, blob)


def _checked(read: Read, blob: Blob) -> Blob | HeadraceError:
    if blob.info.version == read.version:
        return wrong_length(read, blob) or blob
    return changed(read, blob.info.version)


def _split(operation: Operation) -> list[Operation]:
    """Parts of 8 MiB received side by side into one buffer; all must be of one version."""
    read = operation.read
    length = read.length()
    buffer = take(length)
    gather = _Gather(operation, buffer, (length + PART - 1) // PART)
    parts: list[Operation] = []
    for offset in range(0, length, PART):
        size = min(PART, length - offset)
        start = read.start + offset
        part = Read(read.store, read.key, read.size, read.version, start, start + size)
        into = buffer[offset : offset + size]
        parts.append(Operation(part, gather.sink(into), operation.ticket, operation.demand, into=into))
    return parts


class _Gather:
    """Collects the parts of one read. Called on one thread, the reactor's."""

    def __init__(self, operation: Operation, buffer: memoryview, count: int) -> None:
        self._operation = operation
        self._buffer = buffer
        self._left = count
        self._info: ObjectInfo | None = None
        self._failed = False

    def sink(self, into: memoryview) -> Callable[[Blob | HeadraceError], None]:
        return lambda result: self._part(into, result)

    def _part(self, into: memoryview, result: Blob | HeadraceError) -> None:
        if self._failed:
            return
        if isinstance(result, HeadraceError):
            self._fail(result)
            return
        if self._info is not None and result.info.version != self._info.version:
            reason = f"has changed between two parts of one read: {self._info.version}, then {result.info.version}"
            self._fail(ChangedError(reason, path=self._operation.read.path, hint="read it again"))
            return
        self._info = result.info
        if len(result.data) != len(into):
            self._fail(InternalError(f"a part has {len(result.data)} bytes, not {len(into)}"))
            return
        if result.data.obj is not into.obj:
            into[:] = result.data
        self._left -= 1
        if self._left == 0:
            self._operation.done(Blob(self._buffer, self._info))

    def _fail(self, error: HeadraceError) -> None:
        self._failed = True
        self._operation.done(error)
