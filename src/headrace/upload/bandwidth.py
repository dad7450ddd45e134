"""A bound on bytes a second, kept on average: a bucket that fills while nobody sends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BURST_S = 0.25
"""What was not sent for a moment may be made up for; what was not sent for longer is not."""


class Bandwidth:
    """Whoever sends asks first. Any thread; served in the order of asking, what is urgent before the rest.

    Args:
        rate: bytes a second; None: no bound.
        clock: monotonic seconds.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        rate: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = self._urgent_at = clock()

    def take(self, size: int, stopped: Callable[[], bool], *, urgent: bool = False) -> None:
        """Wait until `size` bytes may go; returns early once `stopped` says so (looked at every tenth of a second).

        The time these bytes take at the rate is kept for them, so the average holds whatever their size. What is
        urgent waits only for what is urgent; the rest, asking later, makes up for it.
        """
        if self.rate is None:
            return
        with self._lock:
            now = self._clock()
            begin = max(self._urgent_at if urgent else self._free_at, now - _BURST_S)
            if urgent:
                self._urgent_at = begin + size / self.rate
            self._free_at = max(self._free_at, now - _BURST_S) + size / self.rate
        while (left := begin - self._clock()) > 0 and not stopped():
            self._sleep(min(left, 0.1))
