"""The blocked order: what lies together is read together, and mixed with what lies elsewhere. See design/005.

A source's rows are cut into *blocks* that one read brings. In every epoch the blocks are put into another order, and
stretches of that order, `mixed` samples long, are shuffled within: each holds the samples of a handful of blocks from
anywhere. As everywhere in `loader.order.order`, a sample's place is a pure function of (seed, epoch, position).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from headrace.loader.order.order import Ints, Rows, distinct, key_of, permutation

_MIXED = 16
"""Blocks mixed together: a batch is drawn from as many places of the data. States that were saved count on it."""
_LEAST = 4  # blocks mixed together of a small source, which has few stretches for the ranks then
_STRETCHES = 32
"""Ranks are dealt whole stretches, so they may differ by one: of so many, it is a small part of an epoch."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """How well a blocked order mixes. `blocks`: how many there are; `samples`: in a block, on average;
    `mixed_blocks`: how many are shuffled together; `mixed_samples`: how many samples these hold.

    A batch smaller than `mixed_samples` draws from `mixed_blocks` places of the data, as a shuffle buffer of
    `mixed_samples` samples over as many readers would; the global order draws from all of them.
    """

    blocks: int
    samples: float
    mixed_blocks: int
    mixed_samples: int


@dataclass(frozen=True, eq=False)
class Blocked:
    """A `headrace.loader.order.order.Stream` over the rows of one source. `starts`: int64, the row at which each block
    begins, rising, the first 0; `block`: bytes, as they were asked for. Memory: 24 bytes a block for each epoch in use.
    """

    child: Rows
    seed: int
    starts: Ints
    mixed: int
    block: int | None = field(default=None, kw_only=True)

    @property
    def size(self) -> int | None:
        return self.child.size

    @property
    def grain(self) -> int:
        return self.mixed

    @property
    def is_part(self) -> bool:
        return False

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        if not len(positions):
            return positions, positions
        size, key = self.child.size, key_of(self.seed, epoch)
        stretches, inside = np.divmod(positions, np.int64(self.mixed))
        place = np.empty_like(positions)
        for stretch in distinct(stretches).tolist():
            here = stretches == stretch
            first = stretch * self.mixed
            shuffled = permutation(min(self.mixed, size - first), key_of(key, "stretch", stretch))
            place[here] = first + shuffled(inside[here])
        order, ends = self.layout(key)
        block = np.searchsorted(ends, place, side="right")
        return self.child.locate(epoch, self.stops[order[block]] - (ends[block] - place))

    def describe(self, *, named: bool = True) -> str:
        inner = self.child.describe(named=named)
        return f"shuffle({self.seed}, {len(self.starts)} blocks {self.digest}, mixed {self.mixed}, {inner})"

    @property
    def mixing(self) -> Mixing:
        samples = self.child.size / len(self.starts)
        return Mixing(len(self.starts), samples, min(len(self.starts), max(1, round(self.mixed / samples))), self.mixed)

    def layout(self, key: int) -> tuple[Ints, Ints]:
        """The epoch's order of the blocks, and where each ends in it. `key`: of the epoch."""
        return _layout(self, key)

    @cached_property
    def stops(self) -> Ints:
        """The row after each block."""
        return np.append(self.starts[1:], np.int64(self.child.size))

    @cached_property
    def digest(self) -> str:
        """Of where blocks begin."""
        return hashlib.blake2b(self.starts.astype("<i8").tobytes(), digest_size=6).hexdigest()


@lru_cache(maxsize=4)
def _layout(order: Blocked, key: int) -> tuple[Ints, Ints]:
    chosen = permutation(len(order.starts), key_of(key, "blocks"))(np.arange(len(order.starts), dtype=np.int64))
    return chosen, np.cumsum(np.diff(order.starts, append=order.child.size)[chosen])


def blocked(child: Rows, seed: int, starts: Ints, block: int | None = None) -> Blocked:
    """`_MIXED` blocks mixed together; fewer of a small source, whose stretches are to be dealt to several ranks."""
    together = min(len(starts), max(_LEAST, min(_MIXED, len(starts) // _STRETCHES)))
    return Blocked(child, seed, starts, max(1, round(child.size * together / len(starts))), block=block)
