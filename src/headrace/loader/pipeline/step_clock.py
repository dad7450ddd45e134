"""The step clock: how long the loop takes between two batches, and when it stands still because it writes.

A long step alone says little: an evaluation is one too. So whenever a step was half as long again as usual it is asked
what this process has written to files meanwhile, from ``/proc/self/io`` (``proc_pid_io(5)``), less what the cache was
filled with. That file is read at most every 50 ms otherwise, so that steps of a millisecond do not pay for it.

Who waits for other ranks looks like a long step too. So it is read after each step that is not short how long the
loop's thread has computed, and how long it could have and had no core (`sched-stats.rst` of the kernel's
documentation): the rest it slept, as gloo's collectives do. What it slept by more in some steps than in others of the
same length (`Steps.uneven_s`) was not for its device, which takes as long in every step.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

_LOOK_S = 0.05  # seconds between looks while steps are as usual
_LONGER = 1.5  # times the usual step, from which on one is long
_LEAST_S = 0.01  # seconds that it is longer at least: less is noise
_WROTE = 256 << 10
"""Bytes below which a step has written nothing worth waiting for."""
_SLOWLY = 0.05  # weight of the newest in a running mean: about the last twenty count
_SHORT_S = 5e-3
"""Steps below are looked at together, every 50 ms: to look takes 14 µs."""
_PAUSE = 1.75
"""Times the mean from one step to the next: longer is an evaluation, and no waiting for others."""


class Steps:
    """The steps of one epoch. Written by the loop's thread, read by any. `filled`: bytes put into the cache so far."""

    __slots__ = (
        "_at", "_bound", "_cpu", "_filled", "_look_at", "_mean", "_own", "_queued", "_seen", "_stillest", "_usual",
        "long_s", "own_cpu_s", "own_queued_s", "own_s", "stall_bytes", "stall_s", "stalls", "uneven_s",
    )  # fmt: skip

    def __init__(self, filled: Callable[[], float] = lambda: 0.0) -> None:
        self.own_s = self.long_s = self.stall_s = self.stall_bytes = 0.0
        self.own_cpu_s = self.own_queued_s = self.uneven_s = 0.0
        self.stalls = 0
        self._filled = filled
        self._usual = 0.0
        self._bound = float("inf")
        self._look_at = 0.0
        self._seen = (0.0, 0.0)
        self._cpu = self._queued = self._own = self._at = 0.0  # when the thread was looked at last
        self._mean = self._stillest = 0.0

    def took(self, seconds: float, now: float) -> None:
        """One step, that ended `now` (`time.perf_counter`). Called by the loop's thread."""
        self.own_s += seconds
        if seconds >= _SHORT_S or now >= self._look_at:
            self._compute(now)
        if seconds > self._bound:
            self._long(seconds, now)
            return
        usual = self._usual
        self._usual = usual + _SLOWLY * (seconds - usual) if seconds > 0.5 * usual > 0 else seconds
        if now >= self._look_at:
            self._look(now)

    def _compute(self, now: float) -> None:
        """Look at this thread. What it did before the first time is not known."""
        cpu, queued, own = time.thread_time(), _queued(), self.own_s - self._own
        passed, first = now - self._at, not self._at
        computed = min(max(cpu - self._cpu, 0.0), own)  # another thread may go on with the loop
        waited = min(max(queued - self._queued, 0.0), own - computed)
        self._cpu, self._queued, self._own, self._at = cpu, queued, self.own_s, now
        if first:
            return
        self.own_cpu_s += computed
        self.own_queued_s += waited
        still = own - computed - waited
        if not self._mean:
            self._mean, self._stillest = passed, still
        self._stillest = min(still, self._stillest + _SLOWLY * (still - self._stillest))
        if passed < _PAUSE * self._mean:
            self.uneven_s += still - self._stillest
        self._mean += _SLOWLY * (passed - self._mean)

    def _long(self, seconds: float, now: float) -> None:
        beyond = seconds - self._usual
        wrote, filled = self._look(now)
        self.long_s += beyond
        if wrote - filled >= max(_WROTE, 0.5 * filled):
            self.stall_s += beyond
            self.stalls += 1
            self.stall_bytes += wrote - filled
        else:  # not writing: this may be what steps take from now on
            self._usual += _SLOWLY * beyond

    def _look(self, now: float) -> tuple[float, float]:
        """Bytes that were written since the look before: in all, and into the cache."""
        before, self._seen = self._seen, (_written(), self._filled())
        self._bound = _LONGER * self._usual + _LEAST_S
        self._look_at = now + _LOOK_S
        return self._seen[0] - before[0], self._seen[1] - before[1]


def _queued() -> float:
    """Seconds that this thread could run and no core was free; 0 where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
        return int(file.read(64).split()[1]) * 1e-9
    return 0.0


def _written() -> float:
    """Bytes that this process has passed to write(2) and its like so far; 0 where the kernel does not say."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/io", "rb", buffering=0) as file:
        return float(file.read(256).split()[3])
    return 0.0


class Clock:
    """All epochs of this process together, those under way included. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over: Counter[str] = Counter()
        self._running: dict[int, Callable[[], Mapping[str, float]]] = {}

    def begin(self, number: int, telling: Callable[[], Mapping[str, float]]) -> None:
        """An epoch has begun; `telling` says its counters."""
        with self._lock:
            self._running[number] = telling

    def end(self, number: int) -> None:
        """It is over: what it tells now is its last word. Idempotent."""
        with self._lock:
            telling = self._running.pop(number, None)
            if telling is not None:
                self._over.update(telling())

    def told(self) -> dict[str, float]:
        """Counters since the process began."""
        with self._lock:
            found = self._over.copy()
            for telling in self._running.values():
                found.update(telling())
        return dict(found)


CLOCK = Clock()
"""Of this process."""
os.register_at_fork(after_in_child=CLOCK.__init__)
