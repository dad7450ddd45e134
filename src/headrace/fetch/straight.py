"""Large reads, one after the other, received on the thread that asks, over a connection of its own.

Past the reactor, its queue and the cache. The reactor's one thread wants the interpreter again for every few hundred
kilobytes that come; where as many threads as connections work on what has come (the headers of tars), it waits for it
each time. Here one system call waits for all the bytes, without the interpreter. Figures:
design/018-received-where-it-is-used.md.
"""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from headrace.base.account import count
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
from headrace.base.memory import copy, take
from headrace.base.metrics import Metrics
from headrace.base.settings import FetchSettings
from headrace.fetch.answer import blob_of, past_the_end, wrong_answer
from headrace.fetch.level import ROUND_TRIP
from headrace.fetch.read import Read, sealed
from headrace.store.http1 import (
    CLOSED,
    WOULD_BLOCK,
    BrokenResponse,
    Connection,
    Response,
    dial,
    from_network,
    lasting,
    pause_s,
)
from headrace.store.protocol import RENEWALS, Blob, Store, Wire

_STALL = 10.0  # seconds without a byte after which a connection is taken for lost
_SCRATCH = 16 * 1024  # bytes of a head, and of what comes with it, which is copied once more
_NOTHING = memoryview(b"")
_LARGE = 1 << 20
"""Bytes from which on a read needs a place: what is shorter waits for the store, not for the processor."""
_FIRST = 4
"""Reads at once to begin with."""
_SETTLED_S = 1.0
"""What is over after that gains nothing from trying more."""


class Limiter:
    """Lets as many threads make large reads at once as pays (`headrace.fetch.level`); the others wait. Any thread.

    More than a few at a time push each other's bytes out of the processor's cache where the store is near; where it is
    far, dozens of them wait for it.
    """

    def __init__(self, most: int) -> None:
        self._level = Level(most, _FIRST, time.monotonic() + _SETTLED_S)
        self._free = threading.Condition()
        self._inside = self._waiting = 0

    def enter(self) -> None:
        """Wait for a place, which is kept until `leave`."""
        with self._free:
            self._waiting += 1
            while self._inside >= self._level.limit:
                self._free.wait()
            self._waiting -= 1
            self._inside += 1

    def leave(self) -> None:
        """Give the place back."""
        with self._free:
            self._inside -= 1
            self._free.notify()

    def tell(self, size: int, *, slow_down: bool) -> bool:
        """So many bytes came, or none, maybe as the store asks for less. False: there are more inside than pays."""
        now = time.monotonic()
        with self._free:
            level = self._level
            if slow_down:
                level.slow_down(now)
            elif size:
                level.work += size + ROUND_TRIP
                level.answers += 1
            level.tick(now, active=self._inside, waiting=self._waiting > 0)
            if level.limit > self._inside:
                self._free.notify(level.limit - self._inside)
            return level.limit >= self._inside


class Straight:
    """Reads of one thread; `close` from any. From `Fetcher.straights`.

    Bytes held are bounded by whoever uses it: one read a thread. Retries, the deadline and the counters are those of
    `Fetcher`; there is no hedging.
    """

    def __init__(
        self,
        limiter: Limiter,
        otherwise: Callable[[Read], Blob],
        wire: Callable[[Store], Wire | None],
        settings: FetchSettings,
        metrics: Metrics,
    ) -> None:
        """`limiter`: of all that read at once. `otherwise`: reads of stores without a wire. `wire`: a store's."""
        self._limiter = limiter
        self._otherwise = otherwise
        self._wire = wire
        self._settings = settings
        self._patience = min(_STALL, settings.deadline)
        self._metrics = metrics
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._connection: Connection | None = None
        self._of: Wire | None = None
        self._rest: tuple[str, str | None, int] | None = None
        self._inside = self._closed = False
        self._into: memoryview | None = None

    def get(self, read: Read, until: int = 0, into: memoryview | None = None) -> Blob:
        """Read and wait. Never from the cache.

        `until`: the byte of the object up to which the next reads will go on from this one, one by one. All of that is
        asked for at once, and received as it is read: the store sends while this thread works on what has come.
        `into`: the bytes are received there where the store can be asked for just them; without `until`. They are the
        blob's `data` in any case.

        Raises:
            As `Fetcher.get`.
        """
        wire = self._wire(read.store)
        self._into = into
        if wire is None or read.stop is None or read.stop <= read.start:
            return _placed(self._otherwise(read), into)
        try:
            return sealed(_placed(self._read(wire, read, until, time.monotonic() + self._settings.deadline), into))
        except HeadraceError:
            self._metrics.add("fetch.errors")
            raise
        finally:
            self._into = None

    def leave(self) -> None:
        """Let another thread read in this one's place, until the next `get`. This thread; idempotent."""
        if self._inside:
            self._inside = False
            self._limiter.leave()

    def close(self) -> None:
        """End what is under way, which fails. Idempotent."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it, as closing does not
            connection.close()

    def _read(self, wire: Wire, read: Read, until: int, deadline: float) -> Blob:
        attempts = renewals = 0
        while True:
            if read.length() < _LARGE:
                self.leave()
            elif not self._inside:
                self._limiter.enter()
                self._inside = True
            try:
                result = self._once(wire, read, until, deadline)
            except (CredentialsError, DeniedError):
                if renewals == RENEWALS or not wire.refresh():
                    raise
                renewals += 1
                continue
            got = len(result.data) if isinstance(result, Blob) else 0
            if self._inside and not self._limiter.tell(got, slow_down=isinstance(result, SlowDownError)):
                self.leave()
            if isinstance(result, Blob):
                return result
            attempts += 1
            wait = pause_s(attempts)
            if self._closed or attempts > self._settings.retries or time.monotonic() + wait > deadline:
                raise result
            self._metrics.add("fetch.retries")
            time.sleep(wait)

    def _once(self, wire: Wire, read: Read, until: int, deadline: float) -> Blob | HeadraceError:
        """The bytes, or why to try again. Raises what trying again does not help against."""
        try:
            response = self._answer(wire, read, until, deadline)
        except (*WOULD_BLOCK, TimeoutError):
            if time.monotonic() >= deadline:
                raise self._late(read) from None
            silence = TimeoutError(errno.ETIMEDOUT, f"no byte for {self._patience:g} s")
            return from_network(read.path, silence, wire.endpoint)
        except (OSError, BrokenResponse) as error:
            failure = from_network(read.path, error, wire.endpoint)
            if not isinstance(failure, TryAgainError) or lasting(failure):  # also a proxy that does not let us through
                raise failure from error
            return failure
        if response.whole:
            self._metrics.add("fetch.bytes", response.got)
            if response.status == 200 and read.start:  # a server without ranges sends all of it each time
                self._drop()
                return self._otherwise(read)
            result = blob_of(read, response)
            response.body = _NOTHING  # the connection must not keep it alive
            if (wrong := wrong_answer(read, response, result)) is not None:
                return wrong
            if isinstance(result, HeadraceError):
                raise result
            return result
        if response.status == 416:
            return past_the_end(read)
        error = wire.error(read.key, response.status, bytes(response.body)).at(read.path)
        if isinstance(error, SlowDownError):
            self._metrics.add("fetch.slow_downs")
        if not isinstance(error, TryAgainError):
            raise error
        return error

    def _answer(self, wire: Wire, read: Read, until: int, deadline: float) -> Response:
        assert read.stop is not None
        length = read.stop - read.start
        kept = self._kept(wire, read)
        if kept is not None and self._rest is not None:
            kept.more(length)
            return self._receive(kept, read, deadline)
        on = length >= _SCRATCH  # else more than these bytes may come with the head, and all of it is received
        most = length if on else None
        head = wire.request(read.key, read.start, max(read.stop, until) if on else read.stop, None)
        self._metrics.add("fetch.requests")
        count("get")
        if kept is not None:
            self._prepare(kept, read, until)
            kept.request(head, self._into, most)
            try:
                return self._receive(kept, read, deadline)
            except (*WOULD_BLOCK, TimeoutError):
                raise
            except OSError:
                if not kept.stale:
                    raise
        connection = dial(wire.endpoint, take, self._patience, self._patience)
        connection.fill()
        self._metrics.add("fetch.connections")
        self._of = wire
        self._prepare(connection, read, until)
        connection.request(head, self._into, most)
        return self._receive(connection, read, deadline)

    def _prepare(self, connection: Connection, read: Read, until: int) -> None:
        if until > read.length() + read.start:  # the next read comes while this thread works on this one
            connection.make_room(read.length())

    def _kept(self, wire: Wire, read: Read) -> Connection | None:
        """The connection, if it can be asked, or brings just these bytes next."""
        if self._of is not wire or self._rest not in (None, (read.key, read.version, read.start)):
            self._drop()
        return self._connection

    def _receive(self, connection: Connection, read: Read, deadline: float) -> Response:
        self._connection = connection
        self._rest = None
        try:
            self._refuse_closed(read)
            while not connection.advance(self._scratch):
                self._refuse_closed(read)  # a connection closed between two steps has no next one
                if time.monotonic() > deadline:
                    raise self._late(read)
        except BaseException:
            self._drop()
            raise
        response = connection.response
        assert response is not None
        if response.left:
            self._rest = (read.key, read.version, read.start + response.got)
        elif connection.state == CLOSED:
            self._connection = None
        return response

    def _refuse_closed(self, read: Read) -> None:
        if self._closed:
            raise InternalError("the reader was closed", path=read.path)

    def _late(self, read: Read) -> DeadlineError:
        hint = "the store is slow or away; raise fetch.deadline, or run `headrace doctor`"
        return DeadlineError(f"not read within {self._settings.deadline:g} s", path=read.path, hint=hint)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._rest = None


def _placed(blob: Blob, into: memoryview | None) -> Blob:
    """The same in `into`, where they are not yet if the store has no wire, or sent more than was asked for."""
    if into is None or blob.data.obj is into.obj:
        return blob
    if len(blob.data) != len(into):
        raise InternalError(f"{len(blob.data)} bytes came, not {len(into)}")
    copy(into, blob.data)
    return blob._replace(data=into)
