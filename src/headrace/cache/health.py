"""Whether the cache's disk can be relied on. A cache disk is an unreliable peer: after a few errors, do without it."""

from __future__ import annotations

import errno
import logging
import threading
import time

from headrace.base.metrics import Metrics

log = logging.getLogger("headrace.cache")

ERRORS_ALLOWED = 3
"""Errors of the disk within `WINDOW_S` that are taken for bad luck; one more is taken for a bad disk."""
WINDOW_S = 60.0
"""A disk that has had no error for so long is taken for a good one again."""
_OURS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN})
"""This process is short of something: no fault of the disk."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class Health:
    """Switches filling, or the whole cache, off after repeated errors, and says so once. Any thread."""

    def __init__(self, folder: str, metrics: Metrics) -> None:
        self.reading = True
        self.filling = True
        self.reason: str | None = None
        """Why something is switched off, for people; None while all is well."""
        self._folder = folder
        self._metrics = metrics
        self._lock = threading.Lock()
        self._seen = 0
        self._since = 0.0

    def read_failed(self, error: OSError) -> None:
        """An entry that is there could not be read."""
        if self._too_many(error) and self.reading:
            self.switch_off(f"reading fails: {error.strerror or error}")

    def write_failed(self, error: OSError) -> None:
        """Something could not be written, for want of anything but room."""
        if self._too_many(error) and self.filling:
            self.stop_filling(f"writing fails: {error.strerror or error}")

    def switch_off(self, reason: str) -> None:
        """Neither read nor fill from now on."""
        self.filling, self.reading, self.reason = False, False, reason
        log.warning("cache %s is switched off: %s; reading from the store instead", self._folder, reason)

    def stop_filling(self, reason: str) -> None:
        """Keep reading what is there, but add nothing."""
        self.filling, self.reason = False, reason
        log.warning("cache %s is no longer filled: %s; what it holds is still used", self._folder, reason)

    def after_fork(self) -> None:
        """In a forked child: no other thread holds the lock."""
        self._lock = threading.Lock()

    def _too_many(self, error: OSError) -> bool:
        self._metrics.add("cache.errors")
        if error.errno in _OURS:
            return False
        with self._lock:
            now = time.monotonic()
            if now - self._since > WINDOW_S:
                self._since, self._seen = now, 0
            self._seen += 1
            return self._seen > ERRORS_ALLOWED
