"""Reads that requests wait for: a reader that is killed stops waiting at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.base.errors import DeadlineError, HeadraceError
from headrace.fetch import Read, Ticket
from headrace.store.protocol import Blob

if TYPE_CHECKING:
    from headrace.fetch import Fetcher
    from headrace.mount.kernel.kernel_requests import Request

_SLICE_S = 0.05  # seconds after which it is seen that the caller was killed
_GRACE_S = 5.0  # seconds beyond a read's own deadline, which is to say first what is wrong


class PendingRead:
    """A read that is under way. `deliver` is its sink; any number of threads may `wait`."""

    __slots__ = ("_arrived", "_callbacks", "_deadline", "_lock", "_path", "_result", "ticket")

    def __init__(self, path: str, deadline: float) -> None:
        self._arrived = threading.Event()
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[Blob | HeadraceError], None]] = []
        self._result: Blob | HeadraceError | None = None
        self._deadline = time.monotonic() + deadline + _GRACE_S
        self._path = path
        self.ticket: Ticket | None = None

    @property
    def result(self) -> Blob | HeadraceError | None:
        """What came; None before."""
        return self._result

    def deliver(self, result: Blob | HeadraceError) -> None:
        """Called once, on a fetch thread."""
        with self._lock:
            self._result = result
            callbacks, self._callbacks = self._callbacks, []
        self._arrived.set()
        for callback in callbacks:
            callback(result)

    def then(self, callback: Callable[[Blob | HeadraceError], None]) -> None:
        """Call back with the result, on a fetch thread, or at once if it is there."""
        with self._lock:
            result = self._result
            if result is None:
                self._callbacks.append(callback)
                return
        callback(result)

    def wait(self, request: Request) -> Blob:
        """The bytes.

        Raises:
            HeadraceError: the read failed. DeadlineError: no answer at all. InterruptedError: the caller has to stop
            waiting.
        """
        while not self._arrived.wait(_SLICE_S):
            if request.interrupted:
                raise InterruptedError
            if time.monotonic() > self._deadline:
                raise DeadlineError("no answer within fetch.deadline", path=self._path)
        if isinstance(self._result, HeadraceError):
            raise self._result
        assert self._result is not None
        return self._result


def fetch(fetcher: Fetcher, read: Read, request: Request) -> Blob:
    """Read and wait. Raises as `PendingRead.wait`."""
    pending = PendingRead(read.path, fetcher.settings.fetch.deadline)
    pending.ticket = fetcher.submit([read], lambda _, result: pending.deliver(result))
    try:
        return pending.wait(request)
    except InterruptedError:
        pending.ticket.cancel()
        raise
