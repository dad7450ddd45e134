"""What a data set looks like before anyone trains on it: counts, sizes, and what seems to be missing or twice there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.base.arrow import Batch, Column, pa, to_numbers
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.key_columns import folders_of
from headrace.catalog.listed_places import find_place, recent_objects
from headrace.catalog.object_index import Objects
from headrace.catalog.sample_grouping import Groups, open_groups
from headrace.catalog.snapshot import is_snapshot_name, open_snapshot, snapshot_objects
from headrace.namespace import Namespace

EXAMPLES = 10  # keys that show what is meant
_MOST_SUFFIXES = 1000
"""Beyond these the rest is counted as one (`(other)`): such dots are parts of names, not suffixes."""
_MOST_FOLDERS = 1000  # the largest, so that a report stays small


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of objects."""

    smallest: int
    median: int
    largest: int
    total: int


@dataclass(frozen=True, slots=True)
class SampleGroup:
    """A folder or a suffix: how many objects, how many bytes."""

    name: str
    objects: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Missing:
    """A part that at least half of all samples have, and these lack; the first of them by key."""

    suffix: str
    samples: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Objects with the ETag and size of another one: `copies` could go, of `bytes` together. Empty ones don't count."""

    copies: int
    bytes: int
    examples: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report. `folders` are parent folders, the largest thousand; `suffixes` by number of objects."""

    objects: int
    samples: int
    sizes: Sizes
    folder_count: int
    folders: tuple[SampleGroup, ...]
    suffixes: tuple[SampleGroup, ...]
    empty: int
    empty_examples: tuple[str, ...]
    duplicates: Duplicates
    missing: tuple[Missing, ...]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


def quality_report(
    target: str, *, namespace: Namespace, settings: Settings, progress: Progress = SILENT
) -> Report:
    """Report on a snapshot (``name@version``), a path or a URL (listed now).

    Takes about a minute and 400 MB of memory for ten million objects.

    Raises what opening the target raises (see `headrace.formats.opening_targets.open_source`).
    """
    if is_snapshot_name(target):
        snapshot = open_snapshot(target, namespace=namespace, settings=settings)
        objects = snapshot_objects(snapshot, settings, progress)
    else:
        objects = recent_objects(find_place(target, namespace), settings, progress)
    return report(objects, Shelf.of(settings))


def report(objects: Objects, shelf: Shelf) -> Report:
    """The report on mapped objects."""
    survey = _Survey(len(objects))
    for batch in objects.batches(("key", "size", "version", "suffix")):
        survey.add(batch)
    groups = open_groups(shelf, objects, "stem")
    return Report(
        objects=len(objects),
        samples=len(groups),
        sizes=_sizes(survey.sizes),
        folder_count=len(survey.folders),
        folders=_largest(survey.folders, survey.folder_bytes, _MOST_FOLDERS),
        suffixes=_largest(survey.suffix_objects(), survey.suffix_bytes(), _MOST_SUFFIXES + 1),
        empty=int((survey.sizes == 0).sum()),
        empty_examples=_keys(objects, np.flatnonzero(survey.sizes == 0)[:EXAMPLES]),
        duplicates=_duplicates(objects, survey.sizes, survey.hashes),
        missing=tuple(_missing(objects, groups, survey)),
    )


class _Survey:
    """One pass: three numbers kept for each object (18 bytes), and a table each of folders and suffixes."""

    def __init__(self, count: int) -> None:
        self.sizes = np.empty(count, np.int64)
        self.hashes = np.empty(count, np.uint64)
        self.codes = np.empty(count, np.int16)
        self.names: dict[str, int] = {}
        self.folders: Counter[str] = Counter()
        self.folder_bytes: Counter[str] = Counter()
        self._row = 0

    def add(self, batch: Batch) -> None:
        here = slice(self._row, self._row + batch.num_rows)
        self._row = here.stop
        self.sizes[here] = size = np.maximum(to_numbers(batch["size"]), 0)
        digest = xxhash.xxh3_64_intdigest
        # An absent version hashes to 0, which means "not comparable".
        self.hashes[here] = [digest(v) if v else 0 for v in batch["version"].cast(pa.large_binary()).to_pylist()]
        self._count_folders(batch["key"], size)
        self._code_suffixes(batch["suffix"], here)

    def _count_folders(self, key: Column, size: npt.NDArray[np.int64]) -> None:
        folders = folders_of(key).dictionary_encode()
        index, names = to_numbers(folders.indices), folders.dictionary.to_pylist()
        for name, count, total in zip(
            names, np.bincount(index, minlength=len(names)), _sum_by(index, size, len(names)), strict=True
        ):
            self.folders[name] += int(count)
            self.folder_bytes[name] += int(total)

    def _code_suffixes(self, suffix: Column, here: slice) -> None:
        encoded = suffix.dictionary_encode()
        codes = [self._code(name) for name in encoded.dictionary.to_pylist()]
        self.codes[here] = np.array(codes, np.int16)[to_numbers(encoded.indices)]

    def _code(self, name: str) -> int:
        if name not in self.names and len(self.names) >= _MOST_SUFFIXES:
            name = "(other)"
        return self.names.setdefault(name, len(self.names))

    def suffix_objects(self) -> Counter[str]:
        counts = np.bincount(self.codes, minlength=len(self.names))
        return Counter({name: int(counts[code]) for name, code in self.names.items()})

    def suffix_bytes(self) -> Counter[str]:
        totals = _sum_by(self.codes, self.sizes, len(self.names))
        return Counter({name: int(totals[code]) for name, code in self.names.items()})


def _sum_by(index: npt.NDArray[Any], values: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
    totals = np.zeros(count, np.int64)
    np.add.at(totals, index, values)
    return totals


def _sizes(sizes: npt.NDArray[np.int64]) -> Sizes:
    if not len(sizes):
        return Sizes(0, 0, 0, 0)
    return Sizes(int(sizes.min()), int(np.median(sizes)), int(sizes.max()), int(sizes.sum()))


def _largest(counts: Counter[str], totals: Counter[str], most: int) -> tuple[SampleGroup, ...]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return tuple(SampleGroup(name, count, totals[name]) for name, count in ordered)


def _keys(objects: Objects, rows: npt.NDArray[np.int64]) -> tuple[str, ...]:
    return tuple(key for key, _, _, _ in objects.read(rows)) if len(rows) else ()


def _duplicates(objects: Objects, sizes: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> Duplicates:
    rows = np.flatnonzero((sizes > 0) & (hashes != 0))
    rows = rows[np.lexsort((rows, sizes[rows], hashes[rows]))]
    same = (hashes[rows][1:] == hashes[rows][:-1]) & (sizes[rows][1:] == sizes[rows][:-1])
    starts = np.flatnonzero(np.concatenate([[True], ~same]))[: len(rows)]
    counts = np.diff(np.append(starts, len(rows)))
    first = sorted((int(rows[s]), int(s), int(c)) for s, c in zip(starts[counts > 1], counts[counts > 1], strict=True))
    examples = tuple(_keys(objects, np.sort(rows[s : s + min(c, EXAMPLES)])) for _, s, c in first[:EXAMPLES])
    return Duplicates(int(same.sum()), int(sizes[rows[1:][same]].sum()), examples)


def _missing(objects: Objects, groups: Groups, survey: _Survey) -> Iterable[Missing]:
    """For each suffix that at least half of the samples, but not all, have."""
    if groups.first is None or not len(groups):
        return
    codes = survey.codes if groups.order is None else survey.codes[groups.order]
    starts = groups.first[:-1]
    for name, code in survey.names.items():
        has = np.logical_or.reduceat(codes == code, starts)
        count = int(has.sum())
        if name == "(other)" or count == len(groups) or 2 * count < len(groups):
            continue
        rows = groups.first[np.flatnonzero(~has)[:EXAMPLES]]
        objects_of = rows if groups.order is None else groups.order[rows]
        stems = tuple(key[:stem] for key, stem, _, _ in objects.read(objects_of))
        yield Missing(name or "data", len(groups) - count, stems)
