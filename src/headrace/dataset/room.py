"""The byte window: how many bytes of samples may be under way, from their reads until somebody takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from headrace.dataset.collect import Gate

_WARM_BATCHES = 4


@dataclass(frozen=True)
class Bounds:
    """`most`: bytes, whatever happens. `warm`: enough while the cache serves, as there is no latency to hide then,
    and memory that comes back soon is still in the processor's caches; but at least four batches, or portions read
    together.
    """

    most: int
    warm: int


class Room:
    """Bytes held. One thread waits for room; any thread gives and takes. `served`: whether the cache serves now."""

    def __init__(self, bounds: Bounds, served: Callable[[], bool]) -> None:
        self._bounds, self._served = bounds, served
        self._gate = Gate()
        self._lock = threading.Lock()
        self.held = 0
        """Bytes."""
        self.batch = 0
        """Bytes of the last batch that was taken."""

    def wait(self, size: int, needed: Callable[[], bool]) -> bool:
        """Until there is room for `size` bytes that hang together, or they are `needed` all the same. False: closed."""
        return self._gate.wait(lambda: self.held == 0 or self.held + size <= self._most(size) or needed())

    def _most(self, size: int) -> int:
        if not self._served():
            return self._bounds.most
        return min(self._bounds.most, max(self._bounds.warm, _WARM_BATCHES * max(self.batch, size)))

    def hold(self, amount: int) -> None:
        """So many more, or fewer."""
        with self._lock:
            self.held += amount
        if amount <= 0:
            self.knock()

    def knock(self) -> None:
        """Something changed: whoever waits should look again."""
        self._gate.knock()

    def close(self) -> None:
        """Nobody waits any more."""
        self._gate.release()
