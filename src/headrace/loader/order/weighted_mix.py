"""Mixing several streams by weight; the schedule is a pure function of the position, like every order here.

Positions are cut into blocks. Every block holds the same number of samples of each stream (largest-remainder rounding
of the weights), at places permuted anew in each block; inside the mix each stream keeps its own order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from headrace.base.errors import InputError
from headrace.loader.order.order import Ints, Stream, distinct, key_of, mix64, permutation

_BLOCK = 256  # samples of a block of the schedule; doubled until every share is kept
_BLOCK_MAX = 4096  # samples of the longest block: the least shares are kept less exactly then
_TOLERANCE = 0.01  # share of a share by which it may be missed


def block_counts(weights: Sequence[float]) -> tuple[int, ...]:
    """Samples of each stream in one block: the smallest block (256, 512 … 4096) that keeps every share within 1 %.

    Every stream with a weight gets at least one place.

    Raises:
        InputError: a weight is not a positive finite number.
    """
    if not weights or any(not math.isfinite(weight) or weight <= 0 for weight in weights):
        raise InputError(f"weights {list(weights)}", hint="give one positive number for each dataset")
    shares = [weight / sum(weights) for weight in weights]
    block = _BLOCK
    while True:
        counts = _largest_remainder(shares, max(block, len(shares)))
        exact = all(
            abs(count / block - share) <= _TOLERANCE * share for count, share in zip(counts, shares, strict=True)
        )
        if exact or block >= _BLOCK_MAX:
            return counts
        block *= 2


def _largest_remainder(shares: Sequence[float], total: int) -> tuple[int, ...]:
    counts = [max(1, int(share * total)) for share in shares]
    order = sorted(range(len(shares)), key=lambda i: (counts[i] - shares[i] * total, i))
    turn = 0
    while sum(counts) < total:
        counts[order[turn % len(order)]] += 1
        turn += 1
    while sum(counts) > total:
        counts[counts.index(max(counts))] -= 1
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class Mix:
    """Streams interleaved by weight. An epoch ends where the first of them would run out, so nothing repeats; give a
    small one `.repeat(None)` to have it go on.
    """

    children: tuple[Stream, ...]
    leaves: tuple[int, ...]
    """How many leaves each child has: leaf numbers are shifted by those before it."""
    counts: tuple[int, ...]
    seed: int

    @property
    def size(self) -> int | None:
        plan = self._ending()
        return None if plan is None else plan[0] * sum(self.counts) + sum(plan[1])

    @property
    def grain(self) -> int:
        return 1

    def _ending(self) -> tuple[int, tuple[int, ...]] | None:
        """(number of whole blocks, counts of the short block after them); None: no end."""
        finite = [
            (child.size, count)
            for child, count in zip(self.children, self.counts, strict=True)
            if child.size is not None
        ]
        if not finite:
            return None
        blocks = min(size // count for size, count in finite)
        top, bottom = min(
            ((size - blocks * count, count) for size, count in finite), key=lambda pair: pair[0] / pair[1]
        )
        return blocks, tuple(count * top // bottom for count in self.counts)

    @property
    def is_part(self) -> bool:
        return any(child.is_part for child in self.children)

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        block = sum(self.counts)
        ending = self._ending()
        whole = None if ending is None else ending[0]
        numbers, places = np.divmod(positions, np.int64(block))
        child_of, inner = np.empty_like(positions), np.empty_like(positions)
        for number in distinct(numbers).tolist():
            here = numbers == number
            counts = self.counts if ending is None or number != whole else ending[1]
            which, rank = _schedule(counts, key_of(self.seed, epoch, number))
            child_of[here] = which[places[here]]
            inner[here] = rank[places[here]] + number * np.asarray(self.counts, dtype=np.int64)[child_of[here]]
        return self._descend(epoch, child_of, inner)

    def _descend(self, epoch: int, child_of: Ints, inner: Ints) -> tuple[Ints, Ints]:
        leaf, row = np.empty_like(inner), np.empty_like(inner)
        first = 0
        for number, (child, leaves) in enumerate(zip(self.children, self.leaves, strict=True)):
            here = child_of == number
            if here.any():
                found, row[here] = child.locate(epoch, inner[here])
                leaf[here] = found + first
            first += leaves
        return leaf, row

    def describe(self, *, named: bool = True) -> str:
        parts = ", ".join(
            f"{count}:{child.describe(named=named)}" for count, child in zip(self.counts, self.children, strict=True)
        )
        return f"mix({self.seed}, {parts})"


@lru_cache(maxsize=256)
def _schedule(counts: tuple[int, ...], key: int) -> tuple[Ints, Ints]:
    """For each place of a block: which stream, and the how-manieth of that stream in this block."""
    block = sum(counts)
    stream = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    order = np.argsort(mix64(np.arange(block, dtype=np.uint64) + np.uint64(key)), kind="stable")
    which = stream[order]
    rank = np.empty(block, dtype=np.int64)
    rank[np.argsort(which, kind="stable")] = np.arange(block) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, rank


@dataclass(frozen=True, slots=True)
class Join:
    """Streams put together, every sample of every one exactly once an epoch, interleaved in proportion to their
    lengths by one permutation (their own order is not kept).
    """

    children: tuple[Stream, ...]
    leaves: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        if any(child.size is None for child in self.children):
            raise InputError("an endless dataset in a mix without weights", hint="give weights")

    @property
    def size(self) -> int | None:
        return sum(child.size or 0 for child in self.children)

    @property
    def grain(self) -> int:
        return 1

    @property
    def is_part(self) -> bool:
        return any(child.is_part for child in self.children)

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        if not len(positions):
            return positions, positions
        moved = permutation(self.size or 0, key_of(self.seed, epoch))(positions)
        ends = np.cumsum([child.size or 0 for child in self.children])
        child_of = np.searchsorted(ends, moved, side="right").astype(np.int64)
        leaf, row = np.empty_like(moved), np.empty_like(moved)
        first = 0
        for number, (child, leaves) in enumerate(zip(self.children, self.leaves, strict=True)):
            here = child_of == number
            if here.any():
                found, row[here] = child.locate(epoch, moved[here] - (ends[number] - (child.size or 0)))
                leaf[here] = found + first
            first += leaves
        return leaf, row

    def describe(self, *, named: bool = True) -> str:
        return f"join({self.seed}, {', '.join(child.describe(named=named) for child in self.children)})"
