"""An epoch cut into stretches, each of which is a task of seconds."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.formats import as_table
from headrace.loader import Dataset, Ints, sizes_at, straight

_BYTES: Final = 64 << 20
"""Stored bytes of a stretch."""
_SAMPLES: Final = 8192
"""At most in a stretch, but of tables: a row costs nothing by itself."""
_EACH: Final = 4096
"""What a sample costs beside its bytes, in bytes that take as long."""
_CHUNK: Final = 1 << 16  # samples whose sizes are looked up at a time


class Cut(NamedTuple):
    """Places [first, stop) of an epoch, and their stored bytes."""

    first: int
    stop: int
    bytes: int


def cut(dataset: Dataset, epoch: int, tasks: int) -> list[Cut]:
    """At least `tasks` stretches, fewer samples allowing, that take about as long as each other.

    Rows of tables in the order in which they lie are cut where row groups begin: a row group is read once.
    """
    total = len(dataset)
    sizes = [sizes_at(dataset, epoch, at, min(at + _CHUNK, total)) for at in range(0, total, _CHUNK)]
    bytes_to = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))])
    rows = all(as_table(leaf.index) is not None for leaf in dataset.leaves)
    effort = bytes_to + (0 if rows else _EACH) * np.arange(total + 1) + np.arange(total + 1)  # never level
    count = max(tasks, -(-int(bytes_to[-1]) // _BYTES), 0 if rows else -(-total // _SAMPLES))
    wanted = np.linspace(0, float(effort[-1]), min(count, total) + 1)
    edges = np.searchsorted(effort, wanted)
    borders = _borders(dataset, epoch)
    if borders is not None:
        edges = borders[np.minimum(np.searchsorted(borders, edges), len(borders) - 1)]
    edges[0], edges[-1] = 0, total
    edges = np.unique(edges)
    return [
        Cut(first, stop, int(bytes_to[stop] - bytes_to[first]))
        for first, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def _borders(dataset: Dataset, epoch: int) -> Ints | None:
    """The places at which row groups begin, where rows come as they lie."""
    table = as_table(dataset.leaves[0].index)
    begin = straight(dataset.stream, epoch, 0, len(dataset)) if len(dataset.leaves) == 1 else None
    if table is None or begin is None or dataset.leaves[0].window is not None:
        return None
    return np.clip(table.first - begin, 0, len(dataset))
