"""How much of its time the cache's writer may take, while somebody waits for bytes.

The writer works in bursts and rests between them. What bursts cost is measured, not guessed: the rate at which reads
end within bursts against that within rests. With `b` and `r` the lengths of burst and rest and `k` the ratio of the
two rates, writing costs ``b (1 - k) / (b + r)`` of the rate that reading alone would reach; `r` is chosen so that this
is `_COST`. On many cores `k` is near 1, and there is hardly a rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_COST = 0.2
"""Share of the rate of reading that filling may take: more keeps more for the next epoch and slows this one."""
_BURST_S = 0.02
"""Long enough to measure a rate within, short enough not to be felt."""
_LEAST_REST, _MOST_REST = 0.1, 6.0
"""Of a rest, in bursts: what `_kept` says is a guess, so a rest never ends, nor lasts, for good."""
_MOST_REST_S, _LOOK_S = 0.1, 0.005
"""A rest at most, and how soon it ends once nobody waits for bytes."""
_ALPHA = 0.2
"""Weight of a new measurement: five of them forget the old."""


class Pace:
    """Tells the writer when to rest. One thread.

    `progress`: a count that grows with what is read. `hurried`: whether somebody waits for bytes now.
    """

    def __init__(self, progress: Callable[[], int], hurried: Callable[[], bool]) -> None:
        self._progress = progress
        self._hurried = hurried
        self._kept = 0.5  # of the rate of reading, while writing
        self._began = self._read = self._last = 0.0

    def wrote(self) -> None:
        """After each write. Sleeps when it is time to rest."""
        now = time.perf_counter()
        if now - self._last > _BURST_S:  # it was idle: a new burst
            self._begin(now)
        self._last = now
        if now - self._began < _BURST_S:
            return
        if self._hurried():
            self._rest(now)
        self._begin(time.perf_counter())

    def _rest(self, now: float) -> None:
        burst = now - self._began
        read = self._progress()
        writing = (read - self._read) / burst
        share = min(max((1.0 - self._kept) / _COST - 1.0, _LEAST_REST), _MOST_REST)
        until = now + min(burst * share, _MOST_REST_S)
        while (left := until - time.perf_counter()) > 0 and self._hurried():
            time.sleep(min(left, _LOOK_S))
        alone = (self._progress() - read) / (time.perf_counter() - now)
        if alone > 0 and self._hurried():
            self._kept += _ALPHA * (min(writing / alone, 1.0) - self._kept)

    def _begin(self, now: float) -> None:
        self._began = self._last = now
        self._read = self._progress()
