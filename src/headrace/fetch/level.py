"""What `headrace.base.level` counts of requests to one endpoint, and how slow is slow, found by watching."""

from __future__ import annotations

from collections import deque

from headrace.base.figures import LATENCIES, latency_class
from headrace.base.metrics import Metrics
from headrace.base.quantiles import quantiles

FIRST = 16
"""Requests in flight to begin with, where nothing is known of the store nor of who reads."""
ROUND_TRIP = 65536
"""What an answer counts for besides its bytes: small objects are work too."""


class Latency:
    """Recent times to the first byte, seconds. Reactor thread only."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=512)
        self.add = self._recent.append
        """One answer began after so many seconds."""
        self.p50 = self.p95 = self.p99 = 0.0

    def settle(self) -> None:
        """Recompute the percentiles from the last 512 answers. Call now and then."""
        if self._recent:
            self.p50, self.p95, self.p99 = quantiles(list(self._recent), (0.5, 0.95, 0.99))

    @property
    def straggling_after(self) -> float | None:
        """A request older than this, seconds, is a straggler; None before enough was seen."""
        return None if len(self._recent) < 64 else max(2 * self.p95, self.p95 + 0.005)


class FirstByte:
    """Times to the first byte, counted by classes, until they are told. One thread."""

    def __init__(self) -> None:
        self._counts = [0] * len(LATENCIES)
        self._waiting_s = 0.0

    def add(self, seconds: float) -> None:
        """One answer began after so many seconds."""
        self._counts[latency_class(seconds)] += 1
        self._waiting_s += seconds

    def tell(self, metrics: Metrics) -> None:
        """Add to the counters, and begin anew."""
        for at, count in enumerate(self._counts):
            if count:
                metrics.add(LATENCIES[at], count)
                self._counts[at] = 0
        metrics.add("fetch.waiting_s", self._waiting_s)
        self._waiting_s = 0.0
