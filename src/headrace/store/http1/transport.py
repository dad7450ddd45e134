"""Blocking HTTP/1.1 exchanges over kept-alive sockets, for everything but the mass of GETs (see `headrace.fetch`).

The caller gives the complete head as bytes, so the path goes out exactly as signed: no library normalises ``//`` or
``..``. Any thread, and safe after fork: sockets are never shared with another process.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
from collections import deque
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import lru_cache

from headrace.base.account import Kind, count
from headrace.base.errors import HeadraceError, TryAgainError
from headrace.store.backends.errors import from_network
from headrace.store.http1.endpoint import Endpoint, TunnelError
from headrace.store.http1.reply import Headers, Reply
from headrace.store.protocol import Buffer

NOT_MODIFIED = 304
"""The status of an answer to a conditional GET that has nothing new."""
_CHUNK = 1 << 20
_TOGETHER = 65536
"""Smaller bodies go out in one piece with their head."""
_KEPT = 32
"""Idle sockets kept; more are closed after use."""
_STALE_S = 25.0
"""Servers close idle connections after 30 s and more; older ones are not tried."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer, read to its end."""

    status: int
    headers: Headers
    body: memoryview

    def header(self, name: str) -> str | None:
        """A header's value; None if absent."""
        return self.headers.get(name)


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
        self._idle: deque[tuple[socket.socket, float]] = deque()
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        """``host:port``, for messages."""
        return self.endpoint.name

    def exchange(self, path: str, head: bytes, body: Buffer = b"", *, deadline: float, slow: bool = False) -> Answer:
        """Send one request and read its answer, whatever its status.

        Args:
            path: what the request is about, for errors.
            head: the complete request head.
            body: its body.
            deadline: on `time.monotonic`.
            slow: the server works long before it answers: only the deadline counts.

        Raises:
            UnreachableError, DeadlineError, TryAgainError (the answer broke off, or was no HTTP).
        """
        method = head[: head.index(b" ")].decode()
        count(kind_of(head))
        head = self.endpoint.sent(head)
        while True:
            link, reused = self._take(path, deadline)
            started = False
            try:
                _allow(link, min(self._stall_s, _left(deadline)))
                broken = self._send(link, head, body, deadline)
                if slow:
                    _allow(link, _left(deadline))
                reply = Reply(link, method)
                started = True
                answer = Answer(reply.status, reply.headers, reply.body(lambda: _left(deadline)))
                keep = not reply.closing and broken is None
                if broken is not None and answer.status < 400:
                    raise broken
            except (OSError, http.client.HTTPException) as error:
                link.close()
                if reused and not started and not isinstance(error, TimeoutError):
                    continue  # the server had closed the idle connection: one is taken off the pile each time
                raise self._broken(path, error) from error
            except BaseException:
                link.close()
                raise
            if keep and len(self._idle) < _KEPT:
                self._idle.append((link, time.monotonic()))
            else:
                link.close()
            return answer

    def _send(self, link: socket.socket, head: bytes, body: Buffer, deadline: float) -> OSError | None:
        """Send a request, a large body piece by piece: each may take as long as a silence may.

        A server that has refused early and closed its side has left an answer to be read: then the error is returned.
        """
        try:
            if len(body) < _TOGETHER:
                link.sendall(b"".join((head, body)) if body else head)
                return None
            view = memoryview(body)
            for start in range(_begin(link, head, view[:_CHUNK]), len(view), _CHUNK):
                _allow(link, min(self._stall_s, _left(deadline)))
                link.sendall(view[start : start + _CHUNK])
        except (BrokenPipeError, ConnectionResetError) as error:
            return error
        return None

    def close(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop()[0].close()

    def _broken(self, path: str, error: Exception) -> HeadraceError:
        if isinstance(error, OSError):
            return from_network(path, error, self.endpoint)
        return TryAgainError(f"the answer of {self.name} broke off ({type(error).__name__})", path=path)

    def _take(self, path: str, deadline: float) -> tuple[socket.socket, bool]:
        if self._pid != os.getpid():
            self._idle, self._pid = deque(), os.getpid()
        while self._idle:
            try:
                link, since = self._idle.pop()
            except IndexError:
                break
            if time.monotonic() - since < _STALE_S:
                return link, True
            link.close()
        return self._connect(path, deadline), False

    def _connect(self, path: str, deadline: float) -> socket.socket:
        where = self.endpoint
        link: socket.socket | None = None
        try:
            link = socket.create_connection(where.address, min(self._connect_timeout_s, _left(deadline)))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tunnel := where.tunnel:
                link.sendall(tunnel)
                status = Reply(link, "CONNECT").status  # it reads no further: TLS's server waits for us
                if status // 100 != 2:
                    raise TunnelError(where, status)
            return where.tls.wrap_socket(link, server_hostname=where.host) if where.tls else link
        except (OSError, http.client.HTTPException) as error:
            if link is not None:
                link.close()
            raise self._broken(path, error) from error


def kind_of(head: bytes) -> Kind:
    """What providers charge a request for; `head`: all of it."""
    method, _, rest = head.partition(b" ")
    query = rest.partition(b" ")[0].partition(b"?")[2]
    if method == b"GET":
        return "list" if query.startswith(b"uploads") or b"list-type=" in query else "get"
    if method == b"HEAD":
        return "head"
    return "delete" if method == b"DELETE" or query.startswith(b"delete") else "put"


@lru_cache(maxsize=128)
def http_time(text: str | None) -> int:
    """Microseconds since the epoch of an HTTP date; 0 where there is none."""
    try:
        return round(parsedate_to_datetime(text).timestamp() * 1_000_000) if text else 0
    except ValueError:
        return 0


def _allow(link: socket.socket, seconds: float) -> None:
    """Longest silence from now on. A system call only where it changes: on a busy interpreter each costs a turn."""
    if link.gettimeout() != seconds:
        link.settimeout(seconds)


def _begin(link: socket.socket, head: bytes, first: memoryview) -> int:
    """Send a head, in one piece with what goes of the body's `first` bytes. Returns how many of these have gone."""
    if isinstance(link, ssl.SSLSocket):
        link.sendall(head)
        return 0
    sent = link.sendmsg((head, first))
    if sent < len(head):
        link.sendall(head[sent:])
    return max(sent - len(head), 0)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
