"""How much to read, and when: the plan behind a file handle. No I/O here.

A first request is small. While reads stay sequential, the span read ahead doubles up to a bound; a short jump, forward
or back, keeps it; a long one starts small again.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024  # bytes
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes.

    `first`: the smallest request. `most`: the furthest read ahead of the reader. `part`: the largest single request.
    `jump`: how far past what was requested a seek may land and still count as sequential. `keep`: what is kept behind.
    """

    first: int = 128 * _KIB
    most: int = 64 * _MIB
    part: int = 8 * _MIB
    jump: int = 1 * _MIB
    keep: int = 1 * _MIB

    @staticmethod
    def within(memory: int) -> Limits:
        """Limits for one of several handles that share a budget of `memory` bytes."""
        most = min(max(memory // 8, 128 * _KIB), 64 * _MIB)
        return Limits(most=most, part=min(8 * _MIB, most), jump=min(_MIB, most), keep=min(_MIB, most))


class Plan:
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

    def read(self, start: int, count: int) -> list[tuple[int, int]]:
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
        requests: list[tuple[int, int]] = []
        while self.high < goal:
            stop = min(self.high + self.limits.part, goal)
            requests.append((self.high, stop))
            self.high = stop
        if requests:
            self.window = min(max(self.window, self.limits.first) * 2, self.limits.most)
        return requests
