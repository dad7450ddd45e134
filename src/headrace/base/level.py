"""How many at once, found by watching what gets done, not set by a knob: requests, large reads, decode threads."""

from __future__ import annotations

_SHORTEST_S, _LONGEST_S = 0.15, 3.0  # seconds of a trial: less tells nothing; more, and it is judged by what has come
# short at first: where the machine stands still for a moment, a trial fails that was right
_FIRST_HOLD_S, _LONGEST_HOLD_S = 0.2, 3.0
"""Pause after a trial that gained nothing, and the longest: each next one is twice as long."""


class Level:
    """Concurrency that grows while throughput grows, and halves when a store asks for less.

    Hill climbing: a trial raises the limit and is kept only if it moves 5 % more than before; a failed trial is undone
    and the next one waits 0.2 s, twice as long with each failed in a row, at most 3 s. Trials double until the first
    one fails, then they add half. A level is judged by at least as many answers as it has places, over 150 ms to 3 s,
    once those that were asked for before it have come: however far the store is, each place counts. One thread at a
    time.
    """

    def __init__(self, most: int, start: int, not_before: float = 0.0) -> None:
        """`not_before`: the moment (monotonic seconds) of the first trial."""
        self.most = max(most, 1)
        self.limit = min(start, self.most)
        self.work = 0.0
        """Work done since the last judgement, in any unit: each answer adds what it was."""
        self.answers = 0
        """Answers since then: each adds one."""
        self.undone: tuple[int, float] | None = None
        """The last level that was tried and gained too little, and by which part of the work more was done on it."""
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
        """Called often: how many are under way, and whether more wait to be."""
        if self._idle or not active:  # a pause says nothing
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
                self.undone = self.limit, rate / self._before[1] - 1
                self.limit = self._before[0]
                self._before, self._hold_until, self._doubling = None, now + self._hold, False
                self._hold = min(2 * self._hold, _LONGEST_HOLD_S)
                return
            self._hold = _FIRST_HOLD_S
        self._before = (self.limit, rate)
        self.limit = min(self.limit + max(self.limit if self._doubling else self.limit // 2, 2), self.most)
