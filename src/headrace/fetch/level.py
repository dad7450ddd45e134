"""How many requests to keep in flight to one endpoint, and how slow is slow: found by watching, not set by a knob."""

from __future__ import annotations

from collections import deque

from headrace.base.figures import LATENCIES, latency_class
from headrace.base.metrics import Metrics
from headrace.base.quantiles import quantiles

FIRST = 16
"""Requests in flight to begin with, where nothing is known of the store nor of who reads."""
ROUND_TRIP = 65536
"""What an answer counts for besides its bytes: small objects are work too."""
_SHORTEST_S, _LONGEST_S = 0.15, 3.0  # seconds of a trial: less tells nothing; more, and it is judged by what has come
# short at first: where the machine stands still for a moment, a trial fails that was right
_FIRST_HOLD_S, _LONGEST_HOLD_S = 0.2, 3.0
"""Pause after a trial that gained nothing, and the longest: each next one is twice as long."""


class Level:
    """Concurrency that grows while throughput grows, and halves when the store asks for less.

    Hill climbing: a trial raises the limit and is kept only if it moves 5 % more than before; a failed trial is undone
    and the next one waits 0.2 s, twice as long with each failed in a row, at most 3 s. Trials double until the first
    one fails, then they add half. A level is judged by at least as many answers as it has places, over 150 ms to 3 s,
    once those that were asked for before it have come: however far the store is, each place counts. Work counts bytes
    plus a constant for the round trip. One thread at a time.
    """

    def __init__(self, most: int, start: int = FIRST, not_before: float = 0.0) -> None:
        """`not_before`: the moment (monotonic seconds) of the first trial."""
        self.most = max(most, 1)
        self.limit = min(start, self.most)
        self.work = 0.0
        """Work done since the last judgement: each answer adds its bytes and `ROUND_TRIP`."""
        self.answers = 0
        """Answers since then: each adds one."""
        self._since = 0.0
        self._due = self.limit
        self._earlier = True
        self._idle = True
        self._bound = False
        self._doubling = True
        self._hold, self._hold_until = _FIRST_HOLD_S, not_before
        self._before: tuple[int, float] | None = None
        self._slowed_at = -1.0

    def slow_down(self, now: float) -> None:
        """The store answered 503 or 429: halve, at most once in 200 ms, and hold for a second."""
        if now - self._slowed_at < 0.2:
            return
        self._slowed_at = now
        self.limit = max(self.limit // 2, 1)
        self._before, self._hold_until, self._doubling = None, now + 1.0, False

    def tick(self, now: float, *, active: int, waiting: bool) -> None:
        """Called often by the reactor: how many requests are under way, and whether more wait to be."""
        if self._idle or not active:  # a pause says nothing of the store
            self._idle = not active
            self._begin(now, self.limit, earlier=False)
            return
        self._bound = self._bound or (waiting and active >= self.limit)
        span = now - self._since
        if span < _LONGEST_S and self.answers < self._due:
            return
        if self._earlier:
            self._begin(now, self.limit, earlier=False)
        elif span >= _SHORTEST_S:
            rate, bound, limit = self.work / span, self._bound, self.limit
            if bound and rate and now >= self._hold_until:
                self._judge(rate, now)
            self._begin(now, limit, earlier=self.limit != limit)

    def _begin(self, now: float, due: int, *, earlier: bool) -> None:
        self._since, self._due, self._earlier = now, due, earlier
        self.work, self.answers, self._bound = 0.0, 0, False

    def _judge(self, rate: float, now: float) -> None:
        if self._before is not None:
            if rate < self._before[1] * 1.05:
                self.limit = self._before[0]
                self._before, self._hold_until, self._doubling = None, now + self._hold, False
                self._hold = min(2 * self._hold, _LONGEST_HOLD_S)
                return
            self._hold = _FIRST_HOLD_S
        self._before = (self.limit, rate)
        self.limit = min(self.limit + max(self.limit if self._doubling else self.limit // 2, 2), self.most)


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
