"""Samples of whole objects as columns, and what the node's cache calls their parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace.cache import DIGEST, Digests
from headrace.catalog.sample_index import Rows

_MOST_KNOWN = 1 << 21
"""Objects: 32 MB of digests."""
_MOST_KINDS = 255  # a sample's kind is one byte; with more kinds it is not noted


class Wholes(NamedTuple):
    """Samples whose parts have the same names. `keys`: their ``__key__``, [n]; `names`: of the parts. Key in the store,
    version and size in bytes of every part, sample after sample, [n · len(names)]; `extra`: values by name, [n] each.
    """

    keys: list[str]
    names: tuple[str, ...]
    objects: list[str]
    versions: list[str]
    sizes: list[int]
    extra: dict[str, list[Any]]


class Known:
    """What was worked out of samples before: the names of their parts, and what the cache calls these. 16 bytes an
    object, of which only what was asked for is taken; nothing where there are too many objects. Any thread.
    """

    def __init__(self, samples: int, objects: int) -> None:
        few = objects <= _MOST_KNOWN
        self.digests: Digests = np.zeros((objects if few else 0, DIGEST), np.uint8)
        """By row of the objects, [objects, 16]; of samples that `names` knows."""
        self._kinds = np.zeros(samples if few else 0, np.uint8)
        self._names: list[tuple[str, ...]] = []

    def names(self, rows: Rows) -> tuple[str, ...] | None:
        """The names that the parts of all these samples have; None where they differ, or one is not known."""
        if not len(self._kinds) or not len(rows):
            return None
        kinds = self._kinds[rows]
        kind = int(kinds[0])
        return self._names[kind - 1] if kind and (kinds == kind).all() else None

    def note(self, rows: Rows, objects: Rows, names: tuple[str, ...], digests: Digests) -> None:
        """The samples at `rows` have parts of these names, the objects at `objects`, one sample after the other."""
        if not len(self._kinds):
            return
        if names not in self._names:
            if len(self._names) == _MOST_KINDS:
                return
            self._names.append(names)
        self.digests[objects] = digests
        self._kinds[rows] = self._names.index(names) + 1  # last: others may be looking
