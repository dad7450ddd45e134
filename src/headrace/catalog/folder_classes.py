"""Samples by class, as far as keys tell: by the folders that they lie in. Nothing is read for it.

Samples are in the order of their keys, so those of a folder lie together, in few runs: what is kept of ten million
samples in a thousand folders is a thousand numbers. Built once a node, then mapped.

Files of the folder on the shelf: ``first`` (int64 LE [runs+1], the sample that each run starts at), ``folder`` (int32
LE [runs], the number of its folder); meta data: ``folders``, their names, and ``depth``, see `Classes`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import pa
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.object_index import expand
from headrace.catalog.object_samples import ObjectSamples
from headrace.catalog.sample_index import Rows, SampleIndex

CLASSES_FORMAT: Final = 1  # version of what is kept on the shelf
LAST_ROW: Final = 0
"""The level of the folder that a sample lies in, however deep that is."""
OUTSIDE_ALL: Final = "."
"""The class of samples that lie in no folder of a level."""
MOST_CLASSES: Final = 50_000
"""Folders: with more of them only the upper levels are looked at."""
_DEPTHS: Final = (None, 2, 1)


@dataclass(frozen=True, slots=True)
class Class:
    """A class, and how many samples it has."""

    name: str
    samples: int


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Places of the samples of one class, ascending, without a list of them. `starts` [runs]: of its runs; `ends`
    [runs]: how many samples there are up to the end of each.
    """

    starts: Rows
    ends: Rows

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def at(self, start: int, stop: int) -> Rows:
        """The `start`-th to `stop`-th of them; cut off at the end."""
        stop = min(stop, len(self))
        if start >= stop:
            return np.zeros(0, np.int64)
        first, last = np.searchsorted(self.ends, [start, stop - 1], side="right").tolist()
        ends = self.ends[first : last + 1]
        befores = np.concatenate([self.ends[first - 1 : first] if first else [0], ends[:-1]]).astype(np.int64)
        runs = expand(self.starts[first : last + 1], ends - befores)
        skipped = start - int(befores[0])
        return runs[skipped : skipped + stop - start]


@dataclass(frozen=True, slots=True, eq=False)
class Classes:
    """Frozen, over mapped files; any thread. `first` [runs+1], `folder` [runs], see above; `folders`: names by number.

    `depth`: folders below that many levels were not told apart, as there are too many; None: all were. `by_folder`:
    else `folders` are the values of a column, which have no levels.
    """

    first: Rows
    folder: npt.NDArray[np.int32]
    folders: tuple[str, ...]
    depth: int | None
    by_folder: bool = True

    @property
    def levels(self) -> int:
        """How deep the deepest folder lies."""
        if not self.by_folder:
            return 0
        return max((name.count("/") + 1 for name in self.folders if name), default=0)

    def by_level(self, level: int = LAST_ROW) -> list[Class]:
        """Classes by the name of the folder at `level` (1: the uppermost), the largest first; exact."""
        counts = np.zeros(len(self.folders), np.int64)
        np.add.at(counts, self.folder, np.diff(self.first))
        found: dict[str, int] = {}
        for name, count in zip(self._names(level), counts.tolist(), strict=True):
            found[name] = found.get(name, 0) + count
        return [Class(*pair) for pair in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))]

    def places(self, name: str, level: int = LAST_ROW) -> Places:
        """The samples of one class."""
        wanted = np.fromiter((one == name for one in self._names(level)), np.bool_, len(self.folders))
        runs = np.flatnonzero(wanted[self.folder])
        return Places(self.first[runs], np.cumsum(self.first[runs + 1] - self.first[runs]))

    def _names(self, level: int) -> list[str]:
        if not self.by_folder:
            return list(self.folders)
        return [_at_level(folder, level) for folder in self.folders]


def open_classes(index: SampleIndex, *, settings: Settings, progress: Progress = SILENT) -> Classes | None:
    """The classes of single objects in the order of their keys; None: samples of shards and tables, and sources with
    more than `MOST_CLASSES` folders at the uppermost level.

    The first process of a node looks at all keys, less than a microsecond each. `progress`: told of samples.

    Raises OSError: they cannot be kept.
    """
    if not isinstance(index, ObjectSamples) or not index.abilities.sorted_by_key:
        return None
    name = f"classes{CLASSES_FORMAT}-{index.fingerprint}"
    return mapped_classes(*Shelf.of(settings).get(name, lambda folder: _build(index, folder, progress)))


def mapped_classes(folder: Path, meta: dict[str, Any], *, by_folder: bool = True) -> Classes | None:
    """What lies in a folder of the shelf; None: there were too many."""
    if meta["folders"] is None or not os.path.getsize(folder / "folder"):
        return None
    first, numbers = np.memmap(folder / "first", "<i8", "r"), np.memmap(folder / "folder", "<i4", "r")
    return Classes(first.view(np.ndarray), numbers.view(np.ndarray), tuple(meta["folders"]), meta["depth"], by_folder)


class _TooManyError(Exception):
    pass


def _build(index: ObjectSamples, folder: Path, progress: Progress) -> dict[str, Any]:
    for depth in _DEPTHS:
        progress.total(len(index))
        try:
            names = _write(index, folder, depth, progress)
        except _TooManyError:
            continue
        pa.default_memory_pool().release_unused()
        return {"folders": names, "depth": depth}
    return {"folders": None, "depth": 0}


def _write(index: ObjectSamples, folder: Path, depth: int | None, progress: Progress) -> list[str]:
    """The names of all folders, in the order of their numbers."""
    numbers: dict[str, int] = {}
    with (folder / "first").open("wb") as first, (folder / "folder").open("wb") as file:
        for starts, column in index.folder_runs(progress):
            names = [_cut(name, depth) for name in column.to_pylist()]
            found = np.asarray([numbers.setdefault(name, len(numbers)) for name in names], "<i4")
            if len(numbers) > MOST_CLASSES:
                raise _TooManyError
            first.write(starts.astype("<i8").data)
            file.write(found.data)
        first.write(np.asarray([len(index)], "<i8").data)
    return list(numbers)


def _cut(folder: str, depth: int | None) -> str:
    return folder if depth is None else "/".join(folder.split("/", depth)[:depth])


def _at_level(folder: str, level: int) -> str:
    if not folder:
        return OUTSIDE_ALL
    parts = folder.split("/")
    if level == LAST_ROW:
        return parts[-1]
    return parts[level - 1] if level <= len(parts) else OUTSIDE_ALL


__all__ = ["LAST_ROW", "OUTSIDE_ALL", "Class", "Classes", "Places", "mapped_classes", "open_classes"]
