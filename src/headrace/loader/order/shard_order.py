"""The blocked order of blocks that can only be had whole: compressed shards, which are decompressed from their start.

As `loader.order.blocked_order`, but a stretch that is mixed holds whole blocks, as many as can be kept at once: none is
needed again once its stretch is through. Blocks differ in size, and so do stretches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.loader.order.blocked_order import Blocked, Mixing
from headrace.loader.order.order import Ints, Rows, distinct, key_of, permutation

_DEALT = 32
"""Ranks are dealt runs of this share of an epoch, or shorter: else a few shards would not go round."""


@dataclass(frozen=True, eq=False)
class Wholes(Blocked):
    """A `headrace.loader.order.order.Stream`; see `Blocked`. `together`: blocks of a stretch."""

    together: int

    @property
    def grain(self) -> int:
        return max(1, min(self.mixed, self.child.size // _DEALT))

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        if not len(positions):
            return positions, positions
        key = key_of(self.seed, epoch)
        order, ends = self.layout(key)
        last = np.minimum(np.arange(self.together, len(ends) + self.together, self.together), len(ends)) - 1
        edges = np.concatenate([np.zeros(1, np.int64), ends[last]])
        stretches = np.searchsorted(edges, positions, side="right") - 1
        place = np.empty_like(positions)
        for stretch in distinct(stretches).tolist():
            here = stretches == stretch
            first, stop = int(edges[stretch]), int(edges[stretch + 1])
            shuffled = permutation(stop - first, key_of(key, "stretch", stretch))
            place[here] = first + shuffled(positions[here] - first)
        block = np.searchsorted(ends, place, side="right")
        return self.child.locate(epoch, self.stops[order[block]] - (ends[block] - place))

    def describe(self, *, named: bool = True) -> str:
        inner = self.child.describe(named=named)
        return f"shuffle({self.seed}, {len(self.starts)} whole shards {self.digest}, mixed {self.together}, {inner})"

    @property
    def mixing(self) -> Mixing:
        return Mixing(len(self.starts), self.child.size / len(self.starts), self.together, self.mixed)


def wholes(child: Rows, seed: int, starts: Ints, together: int) -> Wholes:
    """`together` blocks mixed at a time. `starts`: as in `Blocked`."""
    together = min(together, len(starts))
    return Wholes(child, seed, starts, max(1, round(child.size * together / len(starts))), together)
