"""A circuit breaker for stores that do not answer (``metadata = "full"``): after a while one request asks again, not
every name.
"""

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
_LEAST_S = 5.0  # seconds that a store is left alone, at least, and in which the one request that asks again is answered


class CircuitBreaker:
    """Which stores have not answered within their deadline lately. Any thread.

    A pause is as long as the answer was waited for, and 5 s at least: so half of the time at most goes by in waiting.
    `clock`: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}

    def seconds_left(self, store: Store, *, ask: bool = False) -> float:
        """For how many seconds this store is not to be asked; 0: ask it.

        `ask`: the caller asks it now. Where the store was away, the others wait for what this caller finds.
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
        """A store did not answer in `waited_s`. Returns for how many seconds it is not asked again."""
        pause = max(waited_s, _LEAST_S)
        with self._lock:
            self._until[store.identity] = self._clock() + pause
        _log.warning("%s: for %.0f s shown as it was listed: %s", store.url, pause, error)
        return pause

    def answered(self, store: Store) -> None:
        """The store answers."""
        if self._until:
            with self._lock:
                self._until.pop(store.identity, None)

    def forget(self) -> None:
        """Ask all of them again."""
        with self._lock:
            self._until.clear()
