"""Whoever wants to know that what is here now is there."""

from __future__ import annotations

import threading


class Settling:
    """Counts requests: each is `seen` when everything was looked at after it, and `done` when that is sent.

    `ask`, `wait` and `release` from any thread, the rest from the one that decides.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._asked = self._seen = self._done = 0
        self._over = False

    def ask(self) -> int:
        """A new request."""
        with self._changed:
            self._asked += 1
            return self._asked

    def wait(self, request: int, timeout: float) -> bool:
        """Whether it is done within `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done >= request or self._over, timeout) and not self._over

    @property
    def wanted(self) -> bool:
        """Whether there is a request not seen yet."""
        return self._seen < self._asked

    def see(self) -> None:
        """All requests so far are seen. Call it before looking."""
        with self._changed:
            self._seen = self._asked

    def done(self) -> None:
        """All that were seen are done."""
        if self._done < self._seen:
            with self._changed:
                self._done = self._seen
                self._changed.notify_all()

    def release(self) -> None:
        """No more will be done."""
        with self._changed:
            self._over = True
            self._changed.notify_all()
