"""How a reader goes through an object that is fetched by whole blocks: which blocks to have under way.

A block costs many times what a small read wants, so a read fetches blocks only where reads go forward.
"""

from __future__ import annotations

from headrace.fetch.readahead.limits import Limits


class BlockCursor:
    """One reader of an object of `size` bytes in blocks of `limits.part`.

    `limits.first` is a block, `most`, `jump` and `keep` are whole blocks. `announcing`: bytes of a read that begins a
    run of sequential reads, at the start of the object or near the last read. There is no lock: where threads read
    side by side, a block may be asked for later than it could be.
    """

    __slots__ = ("_announcing", "_last", "_limits", "front", "window")

    def __init__(self, size: int, limits: Limits, announcing: int) -> None:
        self._limits = limits
        self._announcing = announcing
        self._last = (size - 1) // limits.part
        self.front = -1
        """The furthest block read in this run; -1 before the first read."""
        self.window = 0
        """Bytes to read ahead of the front; 0 while reads do not go forward."""

    def read(self, start: int, count: int) -> range:
        """The reader wants `count` bytes at `start`: the blocks to have under way now, from the front on.

        None where the reader does not go forward. A block stays among them until the reader is past it, as one that
        found no room in memory is to be asked for again. Reads of a run may come in a little disorder.
        """
        block = self._limits.part
        first, last = start // block, (start + count - 1) // block
        if not (self._is_near(start, first) and (self.window > 0 or count >= self._announcing)):
            self.front, self.window = last, 0
            return range(0)
        if last > self.front or self.window == 0:
            self.front = max(last, self.front)
            self.window = self._limits.grown(self.window)
        return range(self.front, min(self.front + self.window // block, self._last) + 1)

    def _is_near(self, start: int, first: int) -> bool:
        if self.front < 0:
            return start == 0
        block = self._limits.part
        back, on = self._limits.keep // block, max(self.window, self._limits.jump) // block
        return self.front - back <= first <= self.front + on
