"""Threads that do what is due: publish what stays open, try again what failed, hand files to the cache."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("headrace.mount")
_THREADS = 3
"""Each publishes one file at a time and mostly waits for the store: so a slow one does not hold up the others."""
_LONGEST_S = 60.0  # seconds between looks for what is due, where nobody wakes them

Task = Callable[[], None]


class BackgroundThreads:
    """A few daemon threads, started when there is first something to do.

    `due` is asked again and again: it gives a task that nobody else has, and marks it as taken, or the seconds until
    there may be one. A task must not raise.
    """

    def __init__(self, due: Callable[[], Task | float]) -> None:
        self._due = due
        self._changed = threading.Condition()
        self._asked = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def wake(self) -> None:
        """Something may be due. Any thread."""
        with self._changed:
            self._asked += 1
            if not self._threads and not self._closed:
                self._threads = [
                    threading.Thread(target=self._run, name="headrace-staging", daemon=True) for _ in range(_THREADS)
                ]
                for thread in self._threads:
                    thread.start()
            self._changed.notify_all()

    @property
    def running(self) -> bool:
        """Whether `wake` has ever been called."""
        return bool(self._threads)

    def close(self, timeout_s: float) -> None:
        """End the threads; those busy with the store are waited for that long, all together."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)
                timeout_s = min(timeout_s, 1.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                asked = self._asked
            found = 1.0 if self._closed else self._safely()
            if self._closed:
                return
            if callable(found):
                self._perform(found)
                continue
            with self._changed:
                if asked == self._asked and not self._closed:
                    self._changed.wait(min(found, _LONGEST_S))

    def _safely(self) -> Task | float:
        try:
            return self._due()
        except Exception:
            _log.exception("looking for work failed; this is a defect in headrace")
            return _LONGEST_S

    def _perform(self, task: Task) -> None:
        try:
            task()
        except Exception:
            _log.exception("work on a staged file failed; this is a defect in headrace")
