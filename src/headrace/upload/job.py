"""One object on its way in parts: a few runners take one piece after the other until all are there, or one fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.upload.outcome import failure
from headrace.upload.plan import Piece

LOOK_S = 0.1
"""How soon a cancellation is seen: an event of the caller's wakes nobody here."""
GRACE_S = 5.0
"""What parts under way get after a failure; then the rest is thrown away all the same."""


class Cancel(Protocol):
    """What says that work should end early: a `threading.Event`, or anything like it."""

    def is_set(self) -> bool: ...


class Job:
    """Used once.

    Args:
        pieces: in the order in which to send them.
        send: sends one; called from several threads.
        runners: how many at once.
        cancel: set to end early.
        ended: called when the last runner has ended, be it after `run` gave up waiting.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        send: Callable[[Piece], None],
        runners: int,
        cancel: Cancel | None,
        ended: Callable[[], None],
    ) -> None:
        self._pieces = iter(pieces)
        self._send = send
        self._runners = min(runners, len(pieces))
        self._cancel = cancel
        self._ended = ended
        self._changed = threading.Condition()
        self._running = 0
        self._error: HeadraceError | None = None
        self._stopped = False

    def stopped(self) -> bool:
        """Whether what is under way may as well end."""
        return self._stopped or (self._cancel is not None and self._cancel.is_set())

    def run(self, start: Callable[[Callable[[], None]], None]) -> None:
        """Send all pieces; returns when every one has arrived.

        Args:
            start: runs a task in another thread.

        Raises:
            HeadraceError: the first failure. TryAgainError: cancelled. After either, what was under way has ended or
            was given `GRACE_S` to; after KeyboardInterrupt nothing is waited for.
        """
        self._running = self._runners
        for _ in range(self._runners):
            start(self._runner)
        try:
            with self._changed:
                while self._running and not self.stopped():
                    self._changed.wait(LOOK_S if self._cancel is not None else 1.0)
                if self._running:
                    self._stopped = True
                    self._changed.wait_for(lambda: not self._running, GRACE_S)
        except BaseException:
            self._stopped = True
            raise
        if self._error is not None:
            raise self._error
        if self._cancel is not None and self._cancel.is_set():
            raise TryAgainError("stopped before it was all sent")

    def _runner(self) -> None:
        def send_all() -> None:
            while not self.stopped() and (piece := self._next()) is not None:
                self._send(piece)

        error = failure(send_all)
        with self._changed:
            self._running -= 1
            if error is not None:
                self._error = self._error or error
                self._stopped = True
            last = not self._running
            self._changed.notify_all()
        if last:
            self._ended()

    def _next(self) -> Piece | None:
        with self._changed:
            return next(self._pieces, None)
