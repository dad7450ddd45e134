"""Windows: N consecutive samples of one folder as one sample (video frames, sequences), each frame fetched once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headrace.base.errors import InputError
from headrace.catalog import SampleIndex
from headrace.loader.order.order import Ints

GRAIN = 64
"""Consecutive windows that stay together when shuffled or dealt to ranks: their overlap is fetched once."""
_CHUNK = 4096  # rows whose keys are made at a time: what a step costs is shared, and memory stays small


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """Which rows each window covers. Memory: 16 bytes a folder."""

    length: int
    stride: int
    starts: Ints
    """First row of each folder that holds at least one window, int64."""
    ends: Ints
    """Running total of windows up to and with each such folder, int64."""

    @property
    def size(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def first_rows(self, windows: Ints) -> Ints:
        """Window numbers → first rows."""
        folder = np.searchsorted(self.ends, windows, side="right")
        before = np.concatenate([np.zeros(1, dtype=np.int64), self.ends])[folder]
        return self.starts[folder] + (windows - before) * self.stride


def cut(index: SampleIndex, length: int, stride: int) -> Windows:
    """All windows of `length` samples, `stride` apart, of consecutive samples (in key order; a table's in its own).

    No window crosses the border of a folder. Where a sub-folder sorts between two samples of a folder (``a/9.jpg``,
    ``a/b/…``, ``a/c.jpg``), these two are not consecutive.

    Raises:
        InputError: length or stride below one, or no folder holds `length` samples.
    """
    if length < 1 or stride < 1:
        raise InputError(f"windows({length}, stride={stride})", hint="both must be at least 1")
    starts = folder_starts(index)
    lengths = np.diff(starts, append=len(index))
    counts = np.where(lengths >= length, (lengths - length) // stride + 1, 0)
    kept = counts > 0
    if not kept.any():
        longest = int(lengths.max()) if len(lengths) else 0
        raise InputError(f"no folder holds {length} consecutive samples", hint=f"the longest holds {longest}")
    return Windows(length, stride, starts[kept], np.cumsum(counts[kept]).astype(np.int64))


def folder_starts(index: SampleIndex) -> Ints:
    """Rows at which another folder begins, the first being 0.

    An index that cannot tell is asked for every sample (about 5 s a million).
    """
    known = index.abilities.folders
    if known is not None:
        return known()
    starts: list[int] = []
    previous: str | None = None
    for first in range(0, len(index), _CHUNK):
        rows = np.arange(first, min(first + _CHUNK, len(index)), dtype=np.int64)
        for row, (key, _, _) in enumerate(index.specs(rows), start=first):
            folder = key.rpartition("/")[0]
            if folder != previous:
                starts.append(row)
                previous = folder
    return np.asarray(starts, dtype=np.int64)
