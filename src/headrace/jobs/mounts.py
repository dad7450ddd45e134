"""What the mounts of this machine do while a job runs, as metrics of its run: for code that reads files by itself.

Who reads through a mount has no step clock of ours, so the mounts' own counters are looked at, from outside of the job:
those of every mount that this user may ask, because nobody knows which of them a program opens files in.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from headrace.mount.counters import counters

_log = logging.getLogger("headrace.jobs")
_EVERY_S = 2.0
_LAST_S = 0.5
PREFIX: Final = "headrace/mounts/"


class Mounts:
    """A thread that looks; `added` is asked by another. A mount that hangs holds up nobody but the thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[tuple[str, int], dict[str, float]] | None = None
        self._added: dict[str, float] = {}
        self._at = time.monotonic()
        self._over = threading.Event()
        self._wanted = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-run-mounts", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Now, while the mounts are still there: waits for half a second at most. Any thread."""
        self._looked.clear()
        self._wanted.set()
        self._looked.wait(_LAST_S)

    def added(self) -> dict[str, float]:
        """What was added to the counters since the call before, by the names of metrics. Any thread."""
        with self._lock:
            added, self._added = self._added, {}
        return {f"{PREFIX}{name}": value for name, value in added.items() if value}

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._over.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._look()
            except Exception:
                _log.exception("the mounts could not be looked at; this is a defect in headrace")
            self._looked.set()
            self._wanted.wait(_EVERY_S)
            self._wanted.clear()

    def _look(self) -> None:
        found = counters()
        with self._lock:
            now = time.monotonic()
            passed, self._at = now - self._at, now
            before, self._before = self._before, {**(self._before or {}), **found}
            if not found:
                return
            self._add("seconds", passed)
            for mount, counted in found.items():
                # One that is first seen later began with this run, or during it: all of its counts belong to it.
                known = counted if before is None else before.get(mount, {})
                for name, value in counted.items():
                    self._add(name, value - known.get(name, 0.0))

    def _add(self, name: str, value: float) -> None:
        self._added[name] = self._added.get(name, 0.0) + value
