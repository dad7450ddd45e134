"""A run's figures, stretch by stretch: of all of its processes, and how long each of them waited."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import numpy as np

from headrace.base.figures import Figures
from headrace.tracking.blocks import Array, Blocks
from headrace.tracking.figures import Tally
from headrace.tracking.reporter import PREFIX

_WAITS: Final = (f"{PREFIX}loader.wait_s", f"{PREFIX}loader.own_s")


class Stretches:
    """Summed up block by block; a block counts where it ends. One thread.

    Args:
        edges: microseconds since the epoch, rising; a stretch lies between two of them.
        rank: what the job's processes tell is taken of this one only; None: of all.
    """

    def __init__(self, edges: Array, rank: int | None = None) -> None:
        self.edges = edges
        count = len(edges) - 1
        self._tallies = [Tally(rank) for _ in range(count)]
        self._whole = Tally(rank)
        self._waits: defaultdict[int, Array] = defaultdict(lambda: np.zeros((2, count)))

    def add(self, blocks: Blocks) -> None:
        """Those that end between the first edge and the last."""
        at = np.searchsorted(self.edges, blocks.array["time"], side="right") - 1
        inside = (at >= 0) & (at < len(self._tallies))
        self._whole.add(Blocks(blocks.names, blocks.array[inside]))
        for number in np.unique(at[inside]).tolist():
            self._tallies[number].add(Blocks(blocks.names, blocks.array[at == number]))
        for number, name in enumerate(_WAITS):
            code = blocks.names.index(name) if name in blocks.names else -1
            rows = inside & (blocks.array["code"] == code)
            for rank in np.unique(blocks.array["rank"][rows]).tolist():
                own = rows & (blocks.array["rank"] == rank)
                np.add.at(self._waits[rank][number], at[own], blocks.array["sum"][own])

    @property
    def figures(self) -> Figures:
        """Of all stretches together."""
        return self._whole.figures()

    def each(self) -> list[Figures]:
        """Of each stretch."""
        return [one.figures() for one in self._tallies]

    def waits(self) -> dict[int, tuple[Array, Array]]:
        """Of each process of the job: seconds that it waited, and seconds of its own work, in each stretch."""
        return {rank: (waited, own) for rank, (waited, own) in sorted(self._waits.items())}
