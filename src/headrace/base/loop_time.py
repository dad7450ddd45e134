"""How a training loop spent its time, as its figures tell: what of it counts, and what it would be without a wait.

See `headrace.base.verdict`, which asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.base.causes import Cause
from headrace.base.figures import Figures

HEALTHY: Final = 0.05
"""Share of the time that a loop may wait."""
FEWEST: Final = 4
"""Batches after the first of their epochs, for a verdict."""
MOST: Final = 100.0
"""The largest gain that is told of."""
_RESTARTS: Final = 3  # epochs
_RESTARTED: Final = 0.2
"""So many epochs, and this share of the time before their first batches, make beginning an epoch the matter."""


@dataclass(frozen=True, slots=True)
class LoopTime:
    """Seconds of a loop that count: beginning an epoch is left out, unless it is the matter."""

    store: float
    decode: float
    batch: float
    stall: float
    total: float
    first: float

    @staticmethod
    def of(figures: Figures) -> LoopTime:
        told = figures.sum
        first, whole = told("loader.first_wait_s"), told("loader.wait_s") + told("loader.own_s")
        counts = told("loader.epochs") >= _RESTARTS and first > _RESTARTED * whole
        drop = 0.0 if counts else 1.0
        parts = [
            max(0.0, told(f"loader.wait_{one}_s") - drop * told(f"loader.first_{one}_s"))
            for one in ("store", "decode", "batch")
        ]
        return LoopTime(*parts, stall=told("loader.stall_s"), total=whole - drop * first, first=first)

    @property
    def wait(self) -> float:
        return self.store + self.decode + self.batch

    def gain(self, part: float, cause: Cause, floor: float = 0.0) -> float:
        """If what `part` of the time waited for were mended as `cause` says. `floor`: the share of the time that
        another stage is at work.

        Stages work side by side, so the loop takes what the slowest of them takes; a pause stops all of them.
        """
        rest = self.total - part
        then = rest + part * cause.remains if cause.pause else max(rest, self.total * cause.remains)
        return min(MOST, self.total / max(then, self.total * min(floor, 1.0), self.total / MOST))
