"""How many requests to keep in flight to one endpoint, and how slow is slow: found by watching, not set by a knob."""

from __future__ import annotations

import numpy as np

_INTERVAL = 0.15
_HOLD = 3.0


class Level:
    """Concurrency that grows while throughput grows, and halves when the store asks for less.

    Hill climbing: a trial raises the limit and is kept only if 150 ms of it moved 5 % more than before; a failed trial
    is undone and the next one waits 3 s. Work counts bytes plus a constant for the round trip. Reactor thread only.
    """

    def __init__(self, most: int, start: int = 16) -> None:
        self.most = max(most, 1)
        self.limit = min(start, self.most)
        self._since = 0.0
        self._work = 0.0
        self._bound = False
        self._hold_until = 0.0
        self._before: tuple[int, float] | None = None
        self._slowed_at = -1.0

    def done(self, size: int) -> None:
        """One request of `size` bytes finished."""
        self._work += size + 65536

    def slow_down(self, now: float) -> None:
        """The store answered 503 or 429: halve, at most once in 200 ms, and hold for a second."""
        if now - self._slowed_at < 0.2:
            return
        self._slowed_at = now
        self.limit = max(self.limit // 2, 1)
        self._before, self._hold_until = None, now + 1.0

    def tick(self, now: float, *, binding: bool) -> None:
        """Called often by the reactor; `binding`: requests wait because of the limit."""
        self._bound = self._bound or binding
        span = now - self._since
        if span < _INTERVAL:
            return
        rate = self._work / span if self._since else 0.0
        bound, self._bound = self._bound, False
        self._since, self._work = now, 0.0
        if bound and rate and now >= self._hold_until:
            self._judge(rate, now)

    def _judge(self, rate: float, now: float) -> None:
        if self._before is not None and rate < self._before[1] * 1.05:
            self.limit = self._before[0]
            self._before, self._hold_until = None, now + _HOLD
            return
        self._before = (self.limit, rate)
        self.limit = min(self.limit + max(self.limit // 2, 2), self.most)


class Latency:
    """Recent times to the first byte, seconds. Reactor thread only."""

    def __init__(self) -> None:
        self._ring = np.zeros(512)
        self._count = self._settled = 0
        self.p50 = self.p95 = self.p99 = 0.0

    def add(self, seconds: float) -> None:
        """One answer began after `seconds`."""
        self._ring[self._count % 512] = seconds
        self._count += 1

    def settle(self) -> None:
        """Recompute the percentiles from the last 512 answers."""
        if self._count - self._settled >= min(32, self._count // 4 + 1):
            self._settled = self._count
            self.p50, self.p95, self.p99 = np.percentile(self._ring[: min(self._count, 512)], (50, 95, 99)).tolist()

    @property
    def straggling_after(self) -> float | None:
        """A request older than this, seconds, is a straggler; None before enough was seen."""
        return None if self._count < 64 else max(2 * self.p95, self.p95 + 0.005)
