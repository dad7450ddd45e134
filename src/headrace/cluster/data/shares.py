"""Which objects a node gets, and in which slices: pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import xxhash

from headrace.dataset.below import Named

SLICE_BYTES: Final = 256 << 20
"""Of a slice, unless one object alone is larger: some seconds of work for a worker."""
SLICE_OBJECTS: Final = 1000


def owners(name: str, nodes: Sequence[str], copies: int | None) -> Sequence[str]:
    """Those `copies` of the nodes that hold an object, by rendezvous hashing: a node more or less moves no other
    node's objects to and fro. None: all of them.
    """
    if copies is None or copies >= len(nodes):
        return nodes
    return sorted(nodes, key=lambda node: xxhash.xxh3_64_intdigest(f"{node}\0{name}".encode()), reverse=True)[:copies]


def slices(
    objects: Iterable[Named], nodes: Sequence[str], copies: int | None, lost: frozenset[str] = frozenset()
) -> Iterator[tuple[str, tuple[Named, ...]]]:
    """(node, its next slice), cut where a slice holds `SLICE_OBJECTS` or `SLICE_BYTES`; the rests come last.

    Args:
        objects: one after the other; their sizes are in bytes.
        nodes: by name.
        copies: as `owners` takes it.
        lost: other nodes, which had their share once: only what they held comes, for whoever holds it in their place.
    """
    held: dict[str, list[Named]] = {node: [] for node in nodes}
    sizes = dict.fromkeys(nodes, 0)
    for one in objects:
        for node in heirs(one.name, nodes, copies, lost) if lost else owners(one.name, nodes, copies):
            held[node].append(one)
            sizes[node] += max(0, one.size or 0)
            if len(held[node]) >= SLICE_OBJECTS or sizes[node] >= SLICE_BYTES:
                yield node, tuple(held[node])
                held[node], sizes[node] = [], 0
    yield from ((node, tuple(rest)) for node, rest in held.items() if rest)


def heirs(name: str, nodes: Sequence[str], copies: int | None, lost: frozenset[str]) -> list[str]:
    """Of the nodes that are left, those that hold an object now and did not before."""
    before = set(owners(name, [*nodes, *lost], copies))
    return [node for node in owners(name, nodes, copies) if node not in before]
