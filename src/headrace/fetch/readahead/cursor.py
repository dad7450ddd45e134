"""How a reader who asks for bytes goes through an object: which ranges to request now.

A first request is small. While reads stay sequential, the span read ahead doubles up to a bound; a short jump, forward
or back, keeps it; a long one starts small again.
"""

from __future__ import annotations

from headrace.fetch.readahead.limits import Limits
from headrace.fetch.readahead.parts import Span, cut


class Cursor:
    """Which bytes [low, high) of an object of `size` bytes to hold. Not for several threads at once."""

    def __init__(self, size: int, limits: Limits) -> None:
        self.size = size
        self.limits = limits
        self.low = 0
        self.high = 0
        self.window = 0
        """Bytes to read ahead of the reader; 0 until a request has been made in this run of sequential reads."""

    def restart(self, start: int) -> None:
        """Hold nothing; the next request is small again."""
        self.low = self.high = start
        self.window = 0

    def read(self, start: int, count: int) -> list[Span]:
        """The reader wants `count` bytes at `start`: the ranges to request now, in order.

        They follow on what is held without a gap, each at most `limits.part` long, none further than `limits.most`
        beyond `start`. After a long jump nothing held before is in [low, high) any more.
        """
        if not self.low <= start <= self.high + min(self.limits.jump, self.window):
            self.restart(start)
        self.low = max(self.low, min(start, self.high) - self.limits.keep)
        wanted = start + max(count, self.limits.first) if self.window == 0 else start + count
        if min(wanted, self.size) + self.window // 2 <= self.high:
            return []
        goal = min(wanted + self.window, start + self.limits.most, self.size)
        spans = cut(self.high, goal, self.limits.part)
        if spans:
            self.high = goal
            self.window = self.limits.grown(self.window)
        return spans
