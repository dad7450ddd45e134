"""One thread, one epoll: connections that are ready, work of other threads, timers.

A thread a request costs two context switches and a fight for the interpreter's lock; here a ready socket is one
system call away from a NumPy buffer. Figures: design/001-direct-http-reads.md.
"""

from __future__ import annotations

import heapq
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from headrace.store.http1 import Connection

_log = logging.getLogger("headrace.fetch")
_SWEEP = 0.02  # seconds between looks at timers while a read is under way
_SCRATCH = 16 * 1024  # what comes with a head is copied once more; the rest goes straight to its buffer
_MOST_AT_ONCE = 128  # connections that one look tells of; the rest comes with the next
_PAUSE_S = 0.002  # seconds in which more answers gather
_MANY, _FEW = 32, 16
"""Requests under way, and answers at once. With as many under way the next answers come by themselves; looking for each
as it comes costs system calls and turns of the interpreter's lock here, and the server its core where it has no other.
"""


class Watcher(Protocol):
    """Whose connections the loop watches. Called on the loop's thread."""

    @property
    def quiet(self) -> bool:
        """Nothing waits and nothing is under way."""
        ...

    @property
    def active(self) -> int:
        """Requests under way."""
        ...

    def ready(self, connection: Connection, scratch: memoryview) -> None:
        """The connection's socket is ready."""

    def pump(self) -> None:
        """Start what may start, after some connections were ready."""

    def sweep(self, now: float) -> None:
        """Look at timers, every few ten milliseconds."""

    def close(self) -> None:
        """The loop ends."""


class Loop:
    """Runs watchers. `call`, `aside` and `close` from any thread; everything else on the loop's own thread.

    `bulk`: see `Fetcher`.
    """

    def __init__(self, *, bulk: bool = False) -> None:
        self.bulk = bulk
        self._came = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self._watchers: list[Watcher] = []
        self._watched: dict[int, tuple[Watcher, Connection]] = {}
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._bell, select.EPOLLIN)
        self._asleep = False
        self._closed = self._ended = False
        self._ringing = threading.Lock()
        self._wakes: list[float] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._set = 0
        self._aside: ThreadPoolExecutor | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-fetch", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], None]) -> None:
        """Run `work` on the reactor's thread, soon; at once where that has ended, so that whoever waits is told."""
        self._inbox.append(work)
        if self._ended:
            self._empty()
        elif self._asleep:
            self._ring()

    def aside(self, work: Callable[[], Callable[[], None]]) -> None:
        """Run blocking `work` on another thread, then what it returns on the reactor's."""
        if self._aside is None:
            self._aside = ThreadPoolExecutor(1, "headrace-aside")
        self._aside.submit(lambda: self.call(work()))

    def wake_at(self, moment: float) -> None:
        """Make sure timers are looked at by `moment` (monotonic seconds)."""
        heapq.heappush(self._wakes, moment)

    def at(self, moment: float, work: Callable[[], None]) -> None:
        """Run `work` at `moment` (monotonic seconds), or up to 20 ms later while a read is under way. On the reactor's
        own thread; never run once the reactor has ended.
        """
        self._set += 1  # two of one moment are in order
        heapq.heappush(self._timers, (moment, self._set, work))

    def rewatch(self, watcher: Watcher, connection: Connection) -> None:
        """Wait for what the connection now waits for."""
        events = select.EPOLLIN | (select.EPOLLOUT if connection.wants_write else 0)
        if connection.watched == events:
            return
        if connection.watched:
            self._epoll.modify(connection.fd, events)
        else:
            self._epoll.register(connection.fd, events)
            self._watched[connection.fd] = (watcher, connection)
        connection.watched = events

    def forget(self, connection: Connection) -> None:
        """Stop watching, before the descriptor's number can be used again."""
        watched = self._watched.get(connection.fd)
        if watched is not None and watched[1] is connection:
            connection.watched = 0
            del self._watched[connection.fd]
            try:
                self._epoll.unregister(connection.fd)
            except (OSError, ValueError):  # closed already: the kernel has forgotten it by itself
                return

    def close(self) -> None:
        """Stop within a moment; unfinished reads are told so. Any thread but the reactor's own."""
        if self._closed:
            return
        self._closed = True
        self._ring()
        self._thread.join(timeout=5)
        if self._aside is not None:
            self._aside.shutdown(wait=False, cancel_futures=True)

    def _ring(self) -> None:
        with self._ringing:  # once the thread has ended, the descriptor's number may be another file's
            if not self._ended:
                os.eventfd_write(self._bell, 1)

    def _empty(self) -> None:
        while True:
            try:
                work = self._inbox.popleft()
            except IndexError:  # two threads may empty it once the reactor has ended
                return
            work()

    def _run(self) -> None:
        scratch = memoryview(bytearray(_SCRATCH))
        swept = 0.0
        try:
            while not self._closed:
                self._turn(scratch)
                now = time.monotonic()
                due = bool(self._wakes) and self._wakes[0] <= now
                if now - swept >= _SWEEP or due:
                    swept = now
                    while self._wakes and self._wakes[0] <= now:
                        heapq.heappop(self._wakes)
                    while self._timers and self._timers[0][0] <= now:
                        heapq.heappop(self._timers)[2]()
                    for watcher in list(self._watchers):
                        watcher.sweep(now)
        except Exception:
            _log.exception("the fetch thread failed; this is a defect in headrace")
            raise
        finally:
            self._closed = True
            with self._ringing:
                self._ended = True
                os.close(self._bell)
            self._empty()
            for watcher in list(self._watchers):
                watcher.close()
            self._epoll.close()

    def _turn(self, scratch: memoryview) -> None:
        busy = any(not watcher.quiet for watcher in self._watchers)
        timeout = _SWEEP if busy else 1.0
        self._asleep = True
        if self._inbox:
            timeout = 0.0
        elif self.bulk and 0 < self._came < _FEW and any(watcher.active >= _MANY for watcher in self._watchers):
            time.sleep(_PAUSE_S)
        events = self._epoll.poll(timeout, _MOST_AT_ONCE)
        self._came = len(events)
        self._asleep = False
        touched: dict[int, Watcher] = {}
        for fd, _ in events:
            if fd == self._bell:
                os.eventfd_read(self._bell)
                continue
            watched = self._watched.get(fd)
            if watched is not None:
                watcher, connection = watched
                watcher.ready(connection, scratch)
                touched[id(watcher)] = watcher
        for watcher in touched.values():
            watcher.pump()
        self._empty()
