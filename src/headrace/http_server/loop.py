"""One thread, one epoll: all connections of a server, and the application's calls."""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from headrace.base.threads import Crew
from headrace.http_server.application import Application
from headrace.http_server.connection import Connection
from headrace.http_server.exchange import Exchange
from headrace.http_server.limits import Limits
from headrace.http_server.messages import Response

_log = logging.getLogger("headrace.http")
_RECEIVE_BYTES = 64 * 1024
"""In one call: the head of nearly every request, and what a socket holds by default."""
_EVENTS = 1024
"""In one turn, so that none waits for ever."""
_ACCEPTED = 64
"""Connections taken in one turn."""
_FRESH_S = 1.0
"""Once draining, a new connection's first request is waited for so long."""


class Loop:
    """What `Server` runs. `call`, `work` and `pull` from any thread; the rest on the loop's own.

    Attributes:
        now: when the present turn began, monotonic seconds. dirty: connections with something to send at its end.
        draining: no more connections are taken. cut: at its end, something was still under way.
    """

    def __init__(self, application: Application, limits: Limits, listener: socket.socket) -> None:
        self.application = application
        self.limits = limits
        self.scratch = memoryview(bytearray(_RECEIVE_BYTES))
        self.now = time.monotonic()
        self.dirty: deque[Connection] = deque()
        self.draining = self.cut = False
        self._listener: socket.socket | None = listener
        self._listening = False
        self._whole: list[Exchange] = []
        self._connections: dict[int, Connection] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._crew = Crew("http", limits.threads)
        self._pullers = Crew("http-pull", limits.threads)
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._asleep = self._stopped = self._ended = False
        self._ringing = threading.Lock()
        self._thread = 0
        self._until = 0.0
        self._swept = self.now
        self._pause = min(1.0, limits.idle_s, limits.head_s, limits.body_s, limits.write_s, limits.linger_s) / 4
        self._rest_until = 0.0

    # From any thread

    @property
    def here(self) -> bool:
        """Whether the caller is the loop."""
        return threading.get_ident() == self._thread

    def call(self, work: Callable[[], None]) -> None:
        """Run on the loop, soon; at once, here, when it has ended."""
        self._inbox.append(work)
        if self._ended:
            self._empty()
        elif self._asleep:
            self._ring()

    def work(self, task: Callable[[], None]) -> None:
        """Run on a worker thread, which may wait for a client's body."""
        self._crew.add(task)

    def pull(self, task: Callable[[], None]) -> None:
        """Run on a thread for what is sent: those that wait for slow bodies hold up no answer."""
        self._pullers.add(task)

    def drain(self, seconds: float) -> None:
        """Take no more connections, end when the last answer has gone, or after that time."""
        self.call(lambda: self._drain(seconds))

    def stop(self) -> None:
        """End now."""
        self._stopped = True
        self._ring()

    def abandon(self) -> None:
        """Instead of `run`."""
        if not self._ended:
            self._finish()

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._connections)

    def _ring(self) -> None:
        with self._ringing:
            if not self._ended:
                os.eventfd_write(self._bell, 1)

    # For connections

    def arrived(self, exchange: Exchange) -> None:
        """A request is whole: the application hears of it at the end of this look at the sockets."""
        self._whole.append(exchange)

    def watch(self, connection: Connection, events: int) -> None:
        """Ask epoll for other events."""
        self._epoll.modify(connection.fd, events)

    def forget(self, connection: Connection) -> None:
        """It is about to be closed."""
        del self._connections[connection.fd]
        self._epoll.unregister(connection.fd)

    # The loop

    def run(self) -> None:
        """Until stopped or drained."""
        self._thread = threading.get_ident()
        self._listen()
        try:
            while not self._stopped:
                self._turn()
                if self.draining and (not self._connections or self.now >= self._until):
                    break
        except Exception:
            _log.exception("the HTTP server's loop failed; this is a defect in headrace")
            raise
        finally:
            self._finish()

    def _finish(self) -> None:
        self._close_listener()
        self.cut = any(not one.idle for one in self._connections.values())
        for connection in list(self._connections.values()):
            connection.close()
        with self._ringing:
            self._ended = True
            os.close(self._bell)
        self._empty()
        self._epoll.close()
        self._crew.close()
        self._pullers.close()

    def _turn(self) -> None:
        self._asleep = True
        events = self._epoll.poll(0.0 if self._inbox else self._pause, _EVENTS)
        self._asleep = False
        self.now = time.monotonic()
        connections = self._connections
        for fd, what in events:
            connection = connections.get(fd)
            if connection is not None:
                connection.ready(what)
            elif fd == self._bell:
                os.eventfd_read(self._bell)
            elif self._listener is not None and fd == self._listener.fileno():
                self._accept(self._listener)
        self._empty()
        if self._whole:
            self._hand_over()
        dirty = self.dirty
        while dirty:
            dirty.popleft().flush()
        if self.now - self._swept >= self._pause:
            self._sweep()

    def _hand_over(self) -> None:
        whole, self._whole = self._whole, []
        try:
            self.application.arrived(whole)
        except Exception:
            _log.exception("requests could not be answered; this is a defect in the application")
            for exchange in whole:
                if not exchange.taken:
                    exchange.answer(Response(500, close=True))

    def _empty(self) -> None:
        inbox = self._inbox
        for _ in range(len(inbox)):
            try:
                work = inbox.popleft()
            except IndexError:
                return
            work()

    def _sweep(self) -> None:
        self._swept = self.now
        for connection in list(self._connections.values()):
            connection.check(self.now)
            if self.draining and connection.idle and (connection.served or self.now - connection.since > _FRESH_S):
                connection.close()
        while self.dirty:
            self.dirty.popleft().flush()
        self._listen()

    # Connections in

    def _listen(self) -> None:
        """Look for connections, where there is room for one."""
        wanted = len(self._connections) < self.limits.connections or self._idlest() is not None
        wanted = wanted and self._listener is not None and self.now >= self._rest_until
        if self._listener is not None and wanted != self._listening:
            self._listening = wanted
            if wanted:
                self._epoll.register(self._listener.fileno(), select.EPOLLIN | select.EPOLLEXCLUSIVE)
            else:
                self._epoll.unregister(self._listener.fileno())

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED):
            full = len(self._connections) >= self.limits.connections
            idlest = self._idlest() if full else None
            if full and idlest is None:
                self._listen()
                return
            try:
                sock, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.warning("no connection can be taken: %s", os.strerror(error.errno or errno.EIO))
                self._rest_until = self.now + 1.0  # out of descriptors: some may be free then
                self._listen()
                return
            if idlest is not None:
                idlest.close()
            self._take(sock, address)

    def _take(self, sock: socket.socket, address: object) -> None:
        sock.setblocking(False)
        peer = "unix"
        if isinstance(address, tuple) and len(address) >= 2:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = f"{address[0]}:{address[1]}"
        connection = Connection(self, sock, peer, self.now)
        self._connections[connection.fd] = connection
        self._epoll.register(connection.fd, connection.watched)

    def _idlest(self) -> Connection | None:
        idle = [one for one in self._connections.values() if one.idle]
        return min(idle, key=lambda one: one.since, default=None)

    def _drain(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        if self.draining:
            return
        self.draining = True
        if self._listener is not None and self._listening:
            self._accept(self._listener)  # whoever has connected already is answered
        self._close_listener()
        self._sweep()

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            if self._listening:
                self._epoll.unregister(listener.fileno())
            listener.close()
