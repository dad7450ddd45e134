"""Which objects a node gets, and in which slices: pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from headrace.catalog import NamedObject
from headrace.fetch.rendezvous import Rendezvous

SLICE_BYTES: Final = 256 << 20
"""Of a slice, unless one object alone is larger: some seconds of work for a worker."""
SLICE_OBJECTS: Final = 1000  # objects of a slice: of small ones, some seconds of work too


class Sharing:
    """Nodes that each get a share of the objects, or all of them. Immutable.

    Args:
        nodes: by name.
        copies: on how many of them each object is to be: those that would keep it in caches that are shared. None: all.
        lost: other nodes, which had their share once: only what they held falls to anybody.
    """

    def __init__(self, nodes: Sequence[str], copies: int | None, lost: frozenset[str] = frozenset()) -> None:
        self.nodes = tuple(nodes)
        self._copies = None if copies is None or copies >= len(nodes) + len(lost) else copies
        self._now, self._before = Rendezvous(nodes), Rendezvous([*nodes, *lost])
        self._lost = lost

    def owners(self, word: int) -> Sequence[str]:
        """The nodes that an object falls to, by the word of its cache entry's name (`word_of`)."""
        if self._copies is None:
            return () if self._lost else self.nodes
        now = self._now.ranked(word, self._copies)
        if not self._lost:
            return now
        before = set(self._before.ranked(word, self._copies))
        return [node for node in now if node not in before]


def slices(
    objects: Iterable[NamedObject], word: Callable[[NamedObject], int], sharing: Sharing
) -> Iterator[tuple[str, tuple[NamedObject, ...]]]:
    """(node, its next slice), cut where a slice holds `SLICE_OBJECTS` or `SLICE_BYTES`; the rests come last.

    Args:
        objects: one after the other; their sizes are in bytes.
        word: of an object, see `Sharing.owners`.
        sharing: the nodes.
    """
    held: dict[str, list[NamedObject]] = {node: [] for node in sharing.nodes}
    sizes = dict.fromkeys(sharing.nodes, 0)
    for one in objects:
        for node in sharing.owners(word(one)):
            held[node].append(one)
            sizes[node] += max(0, one.size or 0)
            if len(held[node]) >= SLICE_OBJECTS or sizes[node] >= SLICE_BYTES:
                yield node, tuple(held[node])
                held[node], sizes[node] = [], 0
    yield from ((node, tuple(rest)) for node, rest in held.items() if rest)
