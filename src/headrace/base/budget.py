"""The byte budget: how many bytes somebody may hold at once, in flight or in buffers. Demand outranks speculation."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager

_SPECULATION = 0.75
"""Share of the budget that reads ahead of demand may use: the rest is there at once for what somebody waits for."""


class ByteBudget:
    """Counts bytes that are held. Any thread.

    `take` never blocks: who is refused asks again later. `hold` waits. One that wants more than the whole budget gets
    it once nobody else holds any.
    """

    def __init__(self, size: int) -> None:
        """`size`: bytes."""
        self.size = size
        self.used = 0
        """Bytes held now."""
        self._changed = threading.Condition()
        self._waiting = 0

    def take(self, size: int, *, demand: bool = True) -> bool:
        """Take `size` bytes if they are there; `give` them back later."""
        with self._changed:
            return self._take(size, demand)

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._changed:
            self.used -= size
            if self._waiting:
                self._changed.notify_all()

    @contextmanager
    def hold(self, size: int, *, demand: bool = True) -> Generator[None]:
        """Hold `size` bytes inside, of a larger size the whole budget. Waits until they are there."""
        size = min(size, self.size)
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._take(size, demand))
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            self.give(size)

    def _take(self, size: int, demand: bool) -> bool:
        most = self.size if demand else self.size * _SPECULATION
        if self.used and self.used + size > most:
            return False
        self.used += size
        return True
