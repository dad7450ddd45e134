"""Stores that do not answer (``metadata = "full"``): asked again after a while, by one, not for every name."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.base.errors import TryAgainError
    from headrace.store.protocol import Store

_log = logging.getLogger("headrace.mount")
_LEAST_S = 5.0


class CircuitBreaker:
    """Which stores lately did not answer within their deadline. Any thread.

    A pause is as long as the answer was waited for, and 5 s at least: so half of the time at most goes by in waiting.
    `clock`: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def seconds_left(self, store: Store, *, ask: bool = False) -> float:
        """For how many seconds it is better not to ask this store; 0: ask it.

        `ask`: the caller does so now; if the store was away, others need not find out too meanwhile.
        """
        if not self._until:
            return 0.0
        now = self._clock()
        with self._lock:
            left = self._until.get(store.identity, now) - now
            if left <= 0 and ask and store.identity in self._until:
                self._until[store.identity] = now + _LEAST_S
        return max(left, 0.0)

    def failed(self, store: Store, waited_s: float, error: TryAgainError) -> float:
        """It did not answer in that time: for how many seconds it is not asked again."""
        pause = max(waited_s, _LEAST_S)
        with self._lock:
            self._until[store.identity] = self._clock() + pause
        _log.warning("%s: for %.0f s shown as it was listed: %s", store.url, pause, error)
        return pause

    def answered(self, store: Store) -> None:
        """It does."""
        if self._until:
            with self._lock:
                self._until.pop(store.identity, None)

    def forget(self) -> None:
        """Ask all of them again."""
        with self._lock:
            self._until.clear()
