"""All reads of one store over the wire: what waits, what is under way, retries, hedges. Reactor thread only."""

from __future__ import annotations

import errno
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from select import EPOLLIN

from headrace.base.budget import ByteBudget
from headrace.base.errors import (
    CredentialsError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    InternalError,
    SlowDownError,
    TryAgainError,
)
from headrace.base.level import Level
from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.base.settings import FetchSettings
from headrace.fetch.answer import blob_of, past_the_end, wrong_answer
from headrace.fetch.level import FIRST, ROUND_TRIP, FirstByte, Latency
from headrace.fetch.loop import Loop
from headrace.fetch.operation import Operation
from headrace.fetch.read import Read
from headrace.store.http1 import (
    CLOSED,
    WOULD_BLOCK,
    Address,
    BrokenResponse,
    Connection,
    Response,
    from_network,
    lasting,
    pause_s,
    resolve,
)
from headrace.store.protocol import RENEWALS, Blob, ObjectInfo, Wire

_log = logging.getLogger("headrace.fetch")
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor
_STALL = 10.0
"""Seconds without a byte after which a connection is taken for lost, and the read is sent again."""
_HEDGES = 2
"""For one read at once: where one request in 200 is late, a read and its hedge both are every few seconds."""
_UNKNOWN_SIZE = 1024 * 1024  # bytes that a read of unknown size is taken to cost


class Pool:
    """The reads of one store, over up to `settings.connections` connections to its endpoint."""

    def __init__(
        self, wire: Wire, settings: FetchSettings, budget: ByteBudget, metrics: Metrics, loop: Loop
    ) -> None:
        self.wire = wire
        self.level = Level(settings.connections, settings.connections if loop.bulk else FIRST)
        self.latency = Latency()
        self._settings = settings
        self._budget = budget
        self._metrics = metrics
        self._loop = loop
        self._demand: deque[Operation] = deque()
        self._ahead: deque[Operation] = deque()
        self._idle: list[Connection] = []
        self._busy: dict[Connection, Operation] = {}
        self._same: dict[tuple[str, str | None, int, int | None], Operation] = {}
        self._active = 0
        self._later: list[tuple[float, Operation]] = []
        self._addresses: list[Address] = []
        self._requests = self._received = 0
        self._told = (0, 0)
        self._first_byte = FirstByte()
        self._receiving_s = 0.0
        self._hedges = 0
        self._closed = False

    @property
    def quiet(self) -> bool:
        """Nothing waits and nothing is under way."""
        return not (self._demand or self._ahead or self._active or self._later)

    @property
    def active(self) -> int:
        """Reads under way."""
        return self._active

    def add(self, operation: Operation) -> None:
        """Queue a read; `pump` starts it. A read that is under way already is not sent twice."""
        queue = self._demand if operation.demand else self._ahead
        if operation.into is None:
            read = operation.read
            operation.same = same = (read.key, read.version, read.start, read.stop)
            leader = self._same.setdefault(same, operation)
            if leader is not operation:
                leader.followers = (*leader.followers, operation)
                self._metrics.add("fetch.deduplicated")
                return
        queue.append(operation)

    def _requeue(self, operation: Operation) -> None:
        (self._demand if operation.demand else self._ahead).append(operation)

    def pump(self) -> None:
        """Start what may start: below the concurrency level and the memory budget, demand before speculation."""
        if self._closed:
            self.close()
        while self._active < self.level.limit:
            operation = self._next()
            if operation is None:
                return
            self._active += 1
            self._attempt(operation)

    def ready(self, connection: Connection, scratch: memoryview) -> None:
        """The connection's socket is ready."""
        operation = self._busy.get(connection)
        try:
            finished = connection.advance(scratch)
        except WOULD_BLOCK:
            finished = False
        except (OSError, BrokenResponse) as error:
            self._lost(connection, operation, error)
            return
        now = connection.last = time.monotonic()
        response = connection.response
        if response is not None and connection.sent:
            self.latency.add(waited := now - connection.sent)
            self._first_byte.add(waited)
            connection.sent, connection.began = 0.0, now
            if operation is not None and operation.hedges:
                self._settle_race(operation, connection, response)
        if not finished or response is None:
            self._loop.rewatch(self, connection)
        elif operation is None:
            self._drop(connection)
        else:
            self._receiving_s += now - connection.began
            connection.response = None  # an idle connection must not keep the last body alive
            self._free(connection, operation)
            self._answered(operation, response)

    def sweep(self, now: float) -> None:
        """Timers, every few ten milliseconds: retries that are due, deadlines, stalls, hedges."""
        self.tell()
        if self._later:
            due = [entry for entry in self._later if entry[0] <= now]
            if due:
                self._later = [entry for entry in self._later if entry[0] > now]
                for _, operation in due:
                    (self._demand if operation.demand else self._ahead).appendleft(operation)
        self.level.tick(now, active=self._active, waiting=bool(self._demand or self._ahead))
        self.latency.settle()
        straggling = self.latency.straggling_after if self._settings.hedge else None
        for connection, operation in list(self._busy.items()):
            if connection not in self._busy:
                continue
            if operation.cancelled:
                self._end(operation, _cancelled(operation.read))
            elif now > operation.deadline:
                self._end(operation, self._late(operation))
            elif now - connection.last > _STALL:
                self._lost(connection, operation, TimeoutError(errno.ETIMEDOUT, f"no byte for {_STALL:.0f} s"))
            elif straggling is not None and now - operation.connections[-1].last > straggling:
                self._hedge(operation)
        self.pump()

    def tell(self) -> None:
        """Bring the counters up to date. Counting each request by itself would cost a hundredth of it."""
        requests, received = self._told
        if requests != self._requests or received != self._received:
            self._metrics.add("fetch.requests", self._requests - requests)
            self._metrics.add("fetch.bytes", self._received - received)
            self._told = (self._requests, self._received)
            self._first_byte.tell(self._metrics)
            receiving, self._receiving_s = self._receiving_s, 0.0
            self._metrics.add("fetch.receiving_s", receiving)

    def close(self) -> None:
        """Close every connection and fail what is left, now and whenever more is added and pumped."""
        self._closed = True
        for operation in [*self._demand, *self._ahead, *(o for _, o in self._later)]:
            self._tell(operation, InternalError("the fetcher was closed", path=operation.read.path))
        for operation in list({id(o): o for o in self._busy.values()}.values()):
            self._end(operation, InternalError("the fetcher was closed"))
        for connection in self._idle:
            self._loop.forget(connection)
            connection.close()
        self.tell()
        self._demand.clear()
        self._ahead.clear()
        self._later.clear()
        self._idle.clear()

    def _next(self) -> Operation | None:
        now = time.monotonic()
        for queue in (self._demand, self._ahead):
            while queue:
                operation = queue[0]
                if operation.ticket.cancelled and operation.cancelled:
                    queue.popleft()
                    self._tell(operation, _cancelled(operation.read))
                    continue
                if now > operation.deadline:
                    queue.popleft()
                    self._tell(operation, self._late(operation))
                    continue
                cost = operation.read.length(_UNKNOWN_SIZE)
                if not self._budget.take(cost, demand=operation.demand):
                    return None
                queue.popleft()
                operation.cost = cost
                return operation
        return None

    def _attempt(self, operation: Operation) -> None:
        read = operation.read
        try:
            stop = None if read.whole else read.stop
            head = self.wire.request(read.key, read.start, stop, None)
            connection = self._connection()
        except HeadraceError as error:
            self._end(operation, error.at(read.path))
            return
        except OSError as error:
            self._failed(operation, error)
            return
        self._requests += 1
        if operation.ticket.account is not None:
            operation.ticket.account.count("get")
        self._busy[connection] = operation
        operation.connections = (*operation.connections, connection)
        connection.sent = connection.last = time.monotonic()
        try:
            connection.request(head, operation.into)
        except OSError as error:
            self._lost(connection, operation, error)
            return
        if connection.unsent or connection.watched != EPOLLIN:
            self._loop.rewatch(self, connection)

    def _connection(self) -> Connection:
        if self._idle:
            return self._idle.pop()
        if not self._addresses:
            self._addresses = resolve(self.wire.endpoint)
        connection = Connection(self.wire.endpoint, random.choice(self._addresses), take)
        self._metrics.add("fetch.connections")
        return connection

    def _settle_race(self, operation: Operation, connection: Connection, response: Response) -> None:
        # The first answer that begins wins a hedged read; the others cannot be told to stop, so they close.
        if len(operation.connections) > 1 and response.whole:
            if connection is not operation.connections[0]:
                self._metrics.add("fetch.hedges_won")
            for other in operation.connections:
                if other is not connection:
                    self._drop(other)
            operation.connections = (connection,)

    def _answered(self, operation: Operation, response: Response) -> None:
        if response.whole:
            for other in operation.connections:  # of a length nobody told: the race is settled only now
                self._drop(other)
            operation.connections = ()
            self.level.work += response.got + ROUND_TRIP
            self.level.answers += 1
            self._received += response.got
            result = self._result(operation, response)
            if result is not None:
                self._end(operation, result)
            return
        if response.status == 416:
            self._release(operation)
            self._loop.aside(lambda: self._past_the_end(operation))
            return
        error = self.wire.error(operation.read.key, response.status, bytes(response.body)).at(operation.read.path)
        if isinstance(error, SlowDownError):
            self._metrics.add("fetch.slow_downs")
            self.level.slow_down(time.monotonic())
        if isinstance(error, (CredentialsError, DeniedError)) and operation.renewals < RENEWALS:
            operation.renewals += 1
            self._release(operation)
            self._loop.aside(lambda: self._refresh(operation, error))
            return
        if isinstance(error, TryAgainError):
            self._again(operation, error)
        else:
            self._end(operation, error)

    def _result(self, operation: Operation, response: Response) -> Blob | HeadraceError | None:
        """What the read has come to; None: to be tried again."""
        read, got = operation.read, response.got
        etag = response.etag
        if etag is not None and etag == read.version and got == operation.cost and response.status == 200:
            return _tuple(Blob, (response.body, _tuple(ObjectInfo, (read.key, got, etag, 0, None)), ()))
        result = blob_of(read, response)
        if (wrong := wrong_answer(read, response, result)) is not None:
            self._again(operation, wrong)
            return None
        return result

    def _past_the_end(self, operation: Operation) -> Callable[[], None]:
        # Runs aside.
        result: Blob | HeadraceError
        try:
            result = past_the_end(operation.read)
        except HeadraceError as error:
            result = error.at(operation.read.path)
        return lambda: self._tell(operation, result)

    def _refresh(self, operation: Operation, error: HeadraceError) -> Callable[[], None]:
        # Runs aside: fetching credentials blocks. What it returns runs on the reactor's thread again.
        fresh = self.wire.refresh()

        def go_on() -> None:
            if fresh:
                self._requeue(operation)
                self.pump()
            else:
                self._tell(operation, error)

        return go_on

    def _lost(self, connection: Connection, operation: Operation | None, error: Exception) -> None:
        stale = connection.stale and not isinstance(error, TimeoutError)
        self._drop(connection)
        if operation is None:
            return
        operation.without(connection)
        if operation.connections:
            return
        if stale and operation.attempts == 0:
            # The server closed a kept connection before it saw the request: no failure of the read.
            self._attempt(operation)
            return
        self._failed(operation, error)

    def _failed(self, operation: Operation, error: Exception) -> None:
        failure = from_network(operation.read.path, error, self.wire.endpoint)
        if isinstance(failure, TryAgainError) and not lasting(failure):
            self._again(operation, failure)
        else:  # also a proxy that does not let us through
            self._end(operation, failure)

    def _again(self, operation: Operation, error: HeadraceError) -> None:
        operation.attempts += 1
        wait = pause_s(operation.attempts)  # the level asks for less of a store that is too busy
        now = time.monotonic()
        if operation.attempts > self._settings.retries or now + wait > operation.deadline:
            self._end(operation, error)
            return
        self._metrics.add("fetch.retries")
        self._release(operation)
        self._later.append((now + wait, operation))
        self._loop.wake_at(now + wait)

    def _hedge(self, operation: Operation) -> None:
        if operation.hedges == _HEDGES or operation.into is not None:
            return
        if (self._hedges + 1) * 100 > self._settings.hedge_rate * max(self._requests, 20):
            return
        operation.hedges += 1
        self._hedges += 1
        self._metrics.add("fetch.hedges")
        self._attempt(operation)

    def _release(self, operation: Operation) -> None:
        if operation.connections:
            for connection in operation.connections:
                if self._busy.get(connection) is operation:
                    self._drop(connection)
            operation.connections = ()
        operation.hedges = 0
        self._active -= 1
        self._budget.give(operation.cost)

    def _end(self, operation: Operation, result: Blob | HeadraceError) -> None:
        self._release(operation)
        if type(result) is not Blob:
            self._metrics.add("fetch.errors")
        self._tell(operation, result)

    def _tell(self, operation: Operation, result: Blob | HeadraceError) -> None:
        """Answer whoever asked, and whoever asked for the same while it was under way."""
        if operation.same is not None:
            self._same.pop(operation.same, None)
        try:
            operation.done(result)
            for follower in operation.followers:
                follower.done(result)
        except Exception:
            _log.exception("a sink failed; this is a defect in headrace")

    def _free(self, connection: Connection, operation: Operation) -> None:
        del self._busy[connection]
        operation.without(connection)
        if connection.state == CLOSED:
            self._loop.forget(connection)
        else:
            self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._busy.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        self._loop.forget(connection)
        connection.close()

    def _late(self, operation: Operation) -> DeadlineError:
        hint = "the store is slow or away; raise fetch.deadline, or run `headrace doctor`"
        return DeadlineError(f"not read within {self._settings.deadline:g} s", path=operation.read.path, hint=hint)


def _cancelled(read: Read) -> HeadraceError:
    return TryAgainError("the read was cancelled", path=read.path)
