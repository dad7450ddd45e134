"""Which node an object version falls to: rendezvous hashing.

Each node has a score for each name, and the highest wins. Who knows the same nodes comes to the same answer without
asking anybody, and when a node goes, only what fell to it moves (Thaler and Ravishankar, "Using Name-Based Mappings to
Increase Hit Rates", 1998).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import numpy as np
import xxhash
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint64]
_GOLDEN: Final = 0x9E3779B97F4A7C15
"""2⁶⁴ over the golden ratio: neighbouring pieces get numbers far apart (Knuth)."""
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF  # 64 bits


def word_of(name: str, piece: int = 0) -> int:
    """64 bits of the name of a cache entry, and of a piece of it."""
    return (int(name[:16], 16) + piece * _GOLDEN) & _MASK


def names_of(addresses: Sequence[str]) -> list[str]:
    """Names for nodes by their addresses, in their order: the same machine has the same name in the next job, too. Of
    several at one address the second is ``ADDRESS#1``.
    """
    met: Counter[str] = Counter()
    names: list[str] = []
    for address in addresses:
        names.append(f"{address}#{met[address]}" if met[address] else address)
        met[address] += 1
    return names


class Rendezvous:
    """Some nodes, by their names. Immutable; any thread."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes = tuple(sorted(nodes))
        self._seeds = np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in self.nodes], np.uint64)

    def first(self, word: int) -> str:
        """The node that a name falls to. About 10 µs."""
        return self.nodes[int(self._scores(np.array([word], np.uint64))[0].argmax())]

    def first_of_each(self, words: Words) -> NDArray[np.intp]:
        """The same for many: places in `nodes`. Eight bytes a word and node meanwhile."""
        return self._scores(words).argmax(axis=1)

    def ranked(self, word: int, count: int) -> list[str]:
        """So many nodes, the one that the name falls to first; the others would be next."""
        order = np.argsort(self._scores(np.array([word], np.uint64))[0])[::-1][:count]
        return [self.nodes[place] for place in order.tolist()]

    def _scores(self, words: Words) -> Words:
        mixed = self._seeds ^ words[:, np.newaxis]
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64's last steps
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))
