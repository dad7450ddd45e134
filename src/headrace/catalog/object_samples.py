"""The sample index over mapped objects and groups: what `headrace.formats.opening_targets.open_source` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from headrace.base.arrow import Column, from_numbers, pc, to_flags
from headrace.base.progress import SILENT, Progress
from headrace.cache import Cache
from headrace.catalog.key_columns import folders_of
from headrace.catalog.object_index import Objects, expand
from headrace.catalog.record_keys import KEY, key_of, keys_of
from headrace.catalog.sample_abilities import Abilities, CachedSamples
from headrace.catalog.sample_grouping import Groups
from headrace.catalog.sample_index import Part, Rows, SampleSpec
from headrace.catalog.whole_samples import Known, Wholes
from headrace.namespace.home import url_of
from headrace.store.protocol import Store

_AT_ONCE = 1 << 13  # samples looked at together
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor

Extras: TypeAlias = Callable[[npt.NDArray[np.int64]], list[dict[str, Any]]]
"""Fields besides the parts, for the first object row of each sample."""


class ObjectSamples:
    """A `headrace.catalog.sample_index.SampleIndex`. Any thread; survives fork."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        objects: Objects,
        groups: Groups,
        *,
        fingerprint: str,
        pinned: bool,
        reports: bool = False,
        extras: Extras | None = None,
        sorted_by_key: bool = True,
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.fingerprint = fingerprint
        self.pinned = pinned
        self.classes = groups.classes
        self.objects = objects
        self.groups = groups
        self._extras = extras
        self._sorted_by_key, self._reports = sorted_by_key, reports
        self._known = Known(groups.samples, len(objects))

    def __len__(self) -> int:
        return self.groups.samples

    def __repr__(self) -> str:
        pinned = ", pinned" if self.pinned else ""
        below = url_of(self.store, self.prefix)
        return f"<{len(self):,} samples of {self.objects.objects:,} objects below {below}{pinned}>"

    @property
    def abilities(self) -> Abilities:
        """See `SampleIndex.abilities`. Rows of a table of paths are in the table's order."""
        return Abilities(objects=self, folders=self.folders, sorted_by_key=self._sorted_by_key, reports=self._reports)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        objects, counts = self._objects(rows)
        found = iter(self.objects.read(objects))
        extras = self._fields(rows, objects, counts)
        prefix, whole = self.prefix, self.groups.first is None
        specs: list[SampleSpec] = []
        for count, extra in zip(counts.tolist(), extras, strict=True):
            parts: list[Part] = []
            key, stem = "", 0
            for _ in range(count):
                key, stem, size, version = next(found)
                parts.append(_tuple(Part, (key[stem + 1 :] or "data", prefix + key, size, version, 0, None)))
            specs.append((_own(key if whole else key[:stem], extra), tuple(parts), extra))
        return specs

    def wholes(self, rows: Rows) -> Wholes | None:
        """The samples at `rows`. None and raises as `kept`."""
        places, counts = self._objects(rows)
        step = int(counts[0]) if len(counts) else 0
        extra = self._extra_columns(rows, places, counts)
        if not step or extra is None or (counts != step).any():
            return None
        keys, stems, sizes, versions = zip(*self.objects.read(places), strict=True)
        if None in versions or min(sizes) < 0:
            return None
        suffixes = [key[stem + 1 :] for key, stem in zip(keys, stems, strict=True)]
        names = tuple(suffix or "data" for suffix in suffixes[:step])
        if len(set(names)) < step or any(len(set(suffixes[place::step])) > 1 for place in range(step)):
            return None
        whole, first = self.groups.first is None, slice(0, None, step)
        found = keys[first] if whole else [key[:stem] for key, stem in zip(keys[first], stems[first], strict=True)]
        prefix = self.prefix
        objects = [prefix + key for key in keys] if prefix else list(keys)
        return Wholes(_all_own(list(found), extra), names, objects, list(versions), list(sizes), extra)

    def kept(self, rows: Rows, cache: Cache) -> CachedSamples | None:
        """See `headrace.catalog.sample_abilities.OfObjects.kept`."""
        places, counts = self._objects(rows)
        names = self._known.names(rows)
        if names is None:
            found = self.wholes(rows)
            if found is None:
                return None
            digests = cache.digests(self.store.identity, found.objects, found.versions)
            self._known.note(rows, places, found.names, digests)
            entries = cache.entries(digests, np.array(found.sizes, np.int64))
            return CachedSamples(found.keys, found.names, entries, found.extra)
        extra = self._extra_columns(rows, places, counts)
        if extra is None:
            return None
        keys = self.objects.texts(places[:: len(names)], stems=self.groups.first is not None)
        entries = cache.entries(self._known.digests[places], self.objects.sizes(places))
        return CachedSamples(_all_own(keys, extra), names, entries, extra)

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        objects, counts = self._objects(rows)
        size = np.maximum(self.objects.sizes(objects), 0)
        return np.add.reduceat(size, np.cumsum(counts) - counts) if len(counts) else size

    def folders(self) -> Rows:
        """The samples at which another folder begins, the first being 0; less than a microsecond a sample."""
        return np.concatenate([rows for rows, _ in self.folder_runs()])

    def folder_runs(self, progress: Progress = SILENT) -> Iterator[tuple[Rows, Column]]:
        """The samples at which another folder begins, and these folders, a stretch of samples after the other."""
        last: str | None = None
        for start in range(0, len(self), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(self)), dtype=np.int64)
            folder = folders_of(self.objects.keys(self._first_objects(rows)))
            new = np.empty(len(rows), np.bool_)
            new[0] = folder[0].as_py() != last
            new[1:] = to_flags(pc.not_equal(folder[1:], folder[:-1]))
            yield rows[new], folder.take(from_numbers(np.flatnonzero(new)))
            last = folder[-1].as_py()
            progress.advance(len(rows))

    def _first_objects(self, rows: Rows) -> Rows:
        first, order = self.groups.first, self.groups.order
        places = rows if first is None else first[rows]
        return places if order is None else order[places]

    def _objects(self, rows: Rows) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Object rows of all samples, one after the other, and how many each has."""
        rows = np.asarray(rows, np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)} samples")
        first, order = self.groups.first, self.groups.order
        if first is None:
            places, counts = rows, np.ones(len(rows), np.int64)
        else:
            starts = first[rows]
            counts = first[rows + 1] - starts
            places = expand(starts, counts)
        return (places if order is None else order[places]), counts

    def _extra_columns(
        self, rows: Rows, objects: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> dict[str, list[Any]] | None:
        """The extra fields by name; None where samples have different ones."""
        if self._extras is None:
            label = self.groups.label
            return {} if label is None else {"class": label[rows].tolist()}
        fields = self._fields(rows, objects, counts)
        names = fields[0].keys() if fields else ()
        if any(one.keys() != names for one in fields):
            return None
        return {name: [one[name] for one in fields] for name in names}

    def _fields(
        self, rows: Rows, objects: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
    ) -> list[Mapping[str, Any]] | list[dict[str, Any]]:
        if self._extras is not None:
            extras = self._extras(objects[np.cumsum(counts) - counts])
        else:
            extras = [{} for _ in range(len(counts))]
        if self.groups.label is not None:
            for extra, label in zip(extras, self.groups.label[rows].tolist(), strict=True):
                extra["class"] = label
        return extras


def _own(key: str, extra: Mapping[str, Any]) -> str:
    """A sample's key, whose extra fields may hold one of its own, which is then none of them any more."""
    return key_of(cast("dict[str, Any]", extra).pop(KEY), key) if KEY in extra else key


def _all_own(keys: list[str], extra: dict[str, list[Any]]) -> list[str]:
    """As `_own`, of several, by columns."""
    return keys_of(extra.pop(KEY), keys) if KEY in extra else keys
