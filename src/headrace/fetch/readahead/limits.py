"""The numbers of a read-ahead, and how its window grows."""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024  # bytes
_MIB = 1024 * _KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes; the defaults are those of a file of the namespace. Any thread.

    `first`: the smallest request. `most`: the furthest read ahead of the reader. `part`: the largest single request.
    `jump`: how far past what was requested a seek may land and still count as sequential. `keep`: what is kept behind.
    `growth`: how many times as much is read ahead after each step of a reader who stays sequential.
    """

    first: int = 128 * _KIB
    most: int = 64 * _MIB
    part: int = 8 * _MIB
    jump: int = 1 * _MIB
    keep: int = 1 * _MIB
    growth: int = 2

    @staticmethod
    def within(memory: int) -> Limits:
        """Limits for one of several handles that share a budget of `memory` bytes."""
        most = min(max(memory // 8, 128 * _KIB), 64 * _MIB)
        return Limits(most=most, part=min(8 * _MIB, most), jump=min(_MIB, most), keep=min(_MIB, most))

    def grown(self, window: int) -> int:
        """The window, in bytes, after a step with `window`, which is 0 where a run of sequential reads begins."""
        return min(max(window, self.first) * self.growth, self.most)
