"""Counters and gauges of one process, by the names that every page of the documentation uses.

Counters only grow; gauges go up and down and are zero when nothing is under way. Updating one is one lock-free
addition to a cell owned by the calling thread, so hot paths may count freely; reading sums the cells.
"""

from __future__ import annotations

import threading
from collections import defaultdict


class Metrics:
    """A set of named numbers. Any thread may add and read."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._cells: list[defaultdict[str, float]] = []
        self._lock = threading.Lock()

    def add(self, name: str, amount: float = 1) -> None:
        """Add to a counter, or move a gauge by `amount` (negative to lower it)."""
        try:
            cell: defaultdict[str, float] = self._local.cell
        except AttributeError:
            cell = self._local.cell = defaultdict(float)
            with self._lock:
                self._cells.append(cell)
        cell[name] += amount

    def get(self, name: str) -> float:
        """The present value; 0 for a name never used."""
        with self._lock:
            return sum(cell.get(name, 0.0) for cell in self._cells)

    def snapshot(self) -> dict[str, float]:
        """All names used so far, with their present values."""
        total: defaultdict[str, float] = defaultdict(float)
        with self._lock:
            for cell in self._cells:
                for name, value in cell.copy().items():
                    total[name] += value
        return dict(total)
