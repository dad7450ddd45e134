"""Blocking HTTP/1.1 exchanges over kept-alive connections, for everything but the mass of GETs (see `headrace.fetch`).

The caller gives the complete head as bytes, so the path goes out exactly as signed: no library normalises ``//`` or
``..``. Any thread, and safe after fork: sockets are never shared with another process.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import TypeAlias

from headrace.base.account import count
from headrace.store.http1.connection import CLOSED, WOULD_BLOCK, Connection, dial
from headrace.store.http1.endpoint import Endpoint
from headrace.store.http1.failures import BrokenResponse, from_network
from headrace.store.http1.request import kind_of
from headrace.store.http1.response import Response

Body: TypeAlias = "bytes | bytearray | memoryview"
_CHUNK = 1 << 20  # bytes of a body sent at a time, each of which may take as long as a silence may
_TOGETHER = 65536
"""So much of a body goes out in one piece with its head."""
_SCRATCH = 65536  # bytes of a head, and of what comes with it
_SMALL = 1 << 18  # bytes of a body up to which memory is fresh, not from the pool of buffers
_KEPT = 32
"""Idle connections kept; more are closed after use."""
_STALE_S = 25.0
"""Servers close idle connections after 30 s and more; older ones are not tried."""


class Transport:
    """Exchanges with one endpoint.

    Args:
        endpoint: where to connect.
        connect_timeout_s: longest a connection may take to stand, TLS included.
        stall_s: longest silence inside an exchange; a stalled one leaves time for another attempt.
    """

    def __init__(self, endpoint: Endpoint, connect_timeout_s: float, stall_s: float) -> None:
        self.endpoint = endpoint
        self._connect_timeout_s = connect_timeout_s
        self._stall_s = stall_s
        self._idle: deque[Connection] = deque()
        self._pid = os.getpid()

    def exchange(
        self, path: str, head: bytes, body: Body = b"", *, deadline: float, slow: bool = False
    ) -> Response:
        """Send one request and read its answer, whatever its status; of an error's body at most 64 KiB.

        Args:
            path: what the request is about, for errors.
            head: the complete request head.
            body: its body.
            deadline: on `time.monotonic`.
            slow: the server works long before it answers: only the deadline counts.

        Raises:
            UnreachableError (also where the answer broke off, or was no HTTP), DeadlineError. CredentialsError,
            DeniedError: a proxy does not let us through.
        """
        count(kind_of(head))
        while True:
            connection: Connection | None = None
            try:
                connection = self._kept() or self._dial(deadline)
                response = self._answer(connection, head, body, deadline, slow=slow)
            except (OSError, BrokenResponse) as error:
                if connection is not None:
                    connection.close()
                late = isinstance(error, (*WOULD_BLOCK, TimeoutError))
                if connection is not None and connection.stale and not late:
                    continue  # the next of the pile, which grows shorter each time
                raise from_network(path, TimeoutError() if late else error, self.endpoint) from error
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            self._keep(connection)
            return response

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().close()

    def _answer(
        self, connection: Connection, head: bytes, body: Body, deadline: float, *, slow: bool
    ) -> Response:
        connection.allow(min(self._stall_s, _left(deadline)))
        broken = self._send(connection, head, body, deadline)
        if slow:
            connection.allow(_left(deadline))
        scratch = memoryview(bytearray(_SCRATCH))
        while not connection.advance(scratch):
            _left(deadline)
        response = connection.response
        assert response is not None
        if broken is not None:
            connection.close()
            if response.status < 400:
                raise broken
        connection.response = None  # an idle connection must not keep the last body alive
        return response

    def _send(self, connection: Connection, head: bytes, body: Body, deadline: float) -> OSError | None:
        """Send a request, a large body piece by piece: each may take as long as a silence may.

        A server that has refused early and closed its side has left an answer to be read: then the error is returned.
        """
        view = memoryview(body)
        first = b"".join((head, view[:_TOGETHER])) if view else head
        try:
            connection.request(first, bodiless=head.startswith(b"HEAD "))
            for start in range(_TOGETHER, len(view), _CHUNK):
                connection.allow(min(self._stall_s, _left(deadline)))
                connection.sock.sendall(view[start : start + _CHUNK])
        except (BrokenPipeError, ConnectionResetError) as error:
            connection.unsent = b""
            return error
        return None

    def _kept(self) -> Connection | None:
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() - connection.last < _STALE_S:
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        if connection.state is not CLOSED and len(self._idle) < _KEPT:
            connection.last = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()

    def _dial(self, deadline: float) -> Connection:
        return dial(self.endpoint, _room, min(self._connect_timeout_s, _left(deadline)), self._stall_s)


def _room(size: int) -> memoryview:
    if size <= _SMALL:
        return memoryview(bytearray(size))
    # Here, because a command's first request, a listing as a rule, need not wait until NumPy is imported.
    from headrace.base.memory import take

    return take(size)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
