"""The byte window: how many bytes of samples may be under way, from their reads until somebody takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from headrace.loader.pipeline.collector import Gate

_BATCHES = 4
"""Batches that fit into the window however large they are: one handed over, one made, and others on their way."""
_FIRST = 128 << 20  # bytes of the window before anything was taken


@dataclass(frozen=True)
class Bounds:
    """`most`: bytes, whatever happens. `least`: enough while there is no latency to hide, and memory that comes back
    soon is still in the processor's caches; but at least four batches, or portions read together.
    """

    most: int
    least: int


class Room:
    """Bytes held. One thread waits for room; any thread gives and takes.

    It begins small and grows by what is taken: fresh memory costs more than the copy into it, and an epoch that is over
    soon should not have touched as much as it may. `enough`: whether the least will do now, as the cache serves, or its
    disk is what everybody waits for.
    """

    def __init__(self, bounds: Bounds, enough: Callable[[], bool]) -> None:
        self._bounds, self._enough = bounds, enough
        self._grown = max(_FIRST, bounds.least)
        self._gate = Gate()
        self._wanted: Callable[[], bool] = bool
        self._lock = threading.Lock()
        self.held = 0
        """Bytes."""
        self.batch = 0
        """Bytes of the last batch that was taken."""

    def took(self, size: int, batches: int = 1) -> None:
        """So many batches of `size` bytes together were taken."""
        self.batch = size // batches
        self._grown = min(self._grown + size, self._bounds.most)
        self.hold(-size)

    def wait(self, size: int, needed: Callable[[], bool]) -> bool:
        """Until there is room for `size` bytes that hang together, or they are `needed` all the same. False: closed.

        `needed` is also called by whoever knocks.
        """
        self._wanted = lambda: self.held == 0 or self.held + size <= self._most(size) or needed()
        return self._gate.wait(self._wanted)

    def _most(self, size: int) -> int:
        most = self._bounds.least if self._enough() else self._grown
        return min(self._bounds.most, max(most, _BATCHES * max(self.batch, size)))

    def hold(self, amount: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self.held += amount
        if amount <= 0:
            self.knock()

    def knock(self) -> None:
        """Something changed: whoever waits should look again. It is woken only if it will not wait again at once: each
        batch taken knocks, and most of them leave too little room.
        """
        if self._gate.waiting and self._wanted():
            self._gate.knock()

    def close(self) -> None:
        """Nobody waits any more."""
        self._gate.release()
