"""The store's time, where the clock here is far off: no S3 service takes a signature that is a quarter of an hour off.

The AWS SDKs do the same: the ``Date`` of a refusal (RFC 9110 §6.6.1) tells what time it is there.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from headrace.base.units import format_seconds
from headrace.store.http1 import http_time

_log = logging.getLogger("headrace.store")
_OFF_S: Final = 300.0
"""Less is no reason to be refused: services allow 900 s."""


class StoreTime:
    """Any thread. `name`: of the store, for the warning."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._offset = 0.0
        """Seconds that the store's clock is ahead of the one here; 0 while they agree, or nobody knows."""

    def now(self) -> float:
        """Seconds since the epoch, there as far as is known."""
        return time.time() + self._offset

    def learn(self, date: str | None, dated: float) -> bool:
        """A request dated so was refused, with this ``Date``. True: that may be why, and another may succeed."""
        there = http_time(date) / 1e6
        if not there:
            return False
        if abs(there - self.now()) > _OFF_S:
            offset = there - time.time()
            self._offset = offset if abs(offset) > _OFF_S else 0.0
            if self._offset:
                way = "behind" if offset > 0 else "ahead of"
                told = "the clock here is %s %s that of %s; requests are dated by the store's"
                _log.warning(told, format_seconds(abs(offset)), way, self._name)
            else:
                _log.info("the clock here agrees again with that of %s", self._name)
        return abs(there - dated) > _OFF_S
