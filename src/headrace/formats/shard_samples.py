"""The sample index over shards: each part is a range of bytes of one of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from headrace.base.arrow import pc, to_flags
from headrace.catalog import Abilities, IndexFolder, Part, Ranges, Rows, SampleIndex, SampleSpec, Stage, folders_of
from headrace.formats.index.index_job import Shard
from headrace.formats.index.shard_index import ShardSet
from headrace.formats.record_decoding import Records, records, typed
from headrace.formats.shard_format import Format, Joined, Typed
from headrace.namespace.home import url_of
from headrace.store.protocol import Store

_AT_ONCE = 1 << 13  # samples looked at together
_BLOCK_SAMPLES = 512  # samples of a block, at most, so that some blocks can be mixed in memory
_DECODING = 2
"""Threads for what a format's own decoding takes: microseconds a record."""
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor


def records_of(index: SampleIndex) -> Records | None:
    """What makes values of its records, if it has any."""
    return cast("Records | None", index.abilities.records)


def shard_format_of(index: SampleIndex) -> Format | None:
    """The format of its shards, if it has any."""
    return cast("Format | None", index.abilities.format)


class ShardSamples:
    """A `headrace.catalog.sample_index.SampleIndex`. Any thread; survives fork.

    Samples come shard after shard in key order, within a shard as they lie there. ``__key__`` is the key within the
    shard, the extra field ``__shard__`` the shard's name below the root.
    """

    pinned = True
    """Always: where the bytes of a sample lie is known of one version of a shard only."""
    classes: list[str] | None = None
    home: IndexFolder | None = None
    """Of a snapshot: where what is known of these samples is kept beside it."""

    def __init__(self, store: Store, prefix: str, fmt: Format, shards: list[Shard], index: ShardSet) -> None:
        self.store = store
        self.prefix = prefix
        self.format = fmt
        self.fingerprint = _fingerprint(fmt, [shard._replace(key=shard.key[len(prefix) :]) for shard in shards])
        self._rows, self._first = index.rows, index.first
        self.decode: Records | None = None
        """What makes values of the records, where the format has any."""
        if isinstance(fmt, Typed):
            self.decode = records(fmt.decoder, _preambles(fmt, [shard.key[len(prefix) :] for shard in shards], index))
        self._shards = [
            (shard.key, shard.size, shard.version, {"__shard__": shard.key[len(prefix) :]}) for shard in shards
        ]

    @property
    def abilities(self) -> Abilities:
        """See `SampleIndex.abilities`."""
        return Abilities(
            ranges=self,
            blocks=self.blocks,
            folders=self.folders,
            stages=() if self.decode is None else (Stage("map", self.decode, _DECODING),),
            records=self.decode,
            format=self.format,
            home=self.home,
        )

    def give_types(self, types: Mapping[str, str]) -> None:
        """Have columns be of these types. Before anything is read. Raises InputError."""
        self.decode = typed(self.decode, types, url_of(self.store, self.prefix))

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        below = url_of(self.store, self.prefix)
        return f"<{len(self):,} samples of {len(self._shards):,} {self.format.name} shards below {below}>"

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        rows = self._checked(rows)
        shard = self._shard_of(rows).tolist()
        shards = self._shards
        specs: list[SampleSpec] = []
        for number, (sample, names, bounds) in zip(shard, self._rows.read(rows), strict=True):
            key, size, version, extra = shards[number]
            bound = iter(bounds)
            parts = [
                _tuple(Part, (name, key, size, version, start, next(bound)))
                for name, start in zip(names, bound, strict=False)
            ]
            specs.append((sample, tuple(parts), extra))
        return specs

    def ranges(self, rows: Rows) -> Ranges:
        """See `headrace.catalog.sample_abilities.Ranged.ranges`."""
        rows = self._checked(rows)
        parts, bounds = self._rows.bounds(rows)
        return Ranges(parts, np.repeat(self._shard_of(rows), parts), bounds[:, 0], bounds[:, 1])

    def object_at(self, number: int) -> tuple[str, int, str | None]:
        """See `headrace.catalog.sample_abilities.Ranged.object_at`."""
        key, size, version, _ = self._shards[number]
        return key, size, version

    def blanks(
        self, rows: Rows, objects: Sequence[int]
    ) -> list[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
        """See `headrace.catalog.sample_abilities.Ranged.blanks`."""
        shards = self._shards
        return [
            (key, layout, shards[shard][3])
            for shard, (key, layout) in zip(objects, self._rows.names(rows), strict=True)
        ]

    def columns(self, rows: Rows, objects: Sequence[int]) -> tuple[dict[str, list[Any]], tuple[str, ...] | None]:
        """See `headrace.catalog.sample_abilities.Ranged.columns`."""
        keys, layout = self._rows.keys_at(rows)
        shards = self._shards
        if len(objects) and objects.count(objects[0]) == len(objects):
            names = [shards[objects[0]][3]["__shard__"]] * len(objects)
        else:
            names = [shards[one][3]["__shard__"] for one in objects]
        return {"__key__": keys, "__shard__": names}, layout

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        parts, bounds = self._rows.bounds(self._checked(rows))
        sizes = bounds[:, 1] - bounds[:, 0]
        return np.add.reduceat(sizes, np.cumsum(parts) - parts) if len(sizes) else sizes

    def blocks(self, size: int) -> Rows:
        """The samples at which blocks of about `size` bytes begin, the first being 0. A block keeps to one shard, and
        holds at most 512 samples, so that those of some blocks can be mixed in memory.
        """
        counts = np.diff(self._first)
        held = np.array([shard[1] for shard in self._shards], np.float64)
        each = np.minimum(np.maximum(counts * size / np.maximum(held, 1), 1), _BLOCK_SAMPLES)
        cuts = [
            first + np.linspace(0, count, int(np.ceil(count / most)), endpoint=False).astype(np.int64)
            for first, count, most in zip(self._first[:-1], counts, each, strict=True)
            if count
        ]
        return np.concatenate(cuts)

    def folders(self) -> Rows:
        """The samples at which another shard, or another folder within it, begins, the first being 0."""
        found: list[Rows] = [self._first[:-1][np.diff(self._first) > 0]]
        last: str | None = None
        for start in range(0, len(self), _AT_ONCE):
            stop = min(start + _AT_ONCE, len(self))
            folder = folders_of(self._rows.keys(start, stop))
            new = np.empty(stop - start, np.bool_)
            new[0] = folder[0].as_py() != last
            new[1:] = to_flags(pc.not_equal(folder[1:], folder[:-1]))
            found.append(np.arange(start, stop, dtype=np.int64)[new])
            last = folder[-1].as_py()
        return np.unique(np.concatenate(found))

    def _shard_of(self, rows: Rows) -> Rows:
        return np.searchsorted(self._first, rows, side="right") - 1

    def _checked(self, rows: Rows) -> Rows:
        rows = np.asarray(rows, np.int64)
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise IndexError(f"rows {rows.min()} to {rows.max()} of {len(self)} samples")
        return rows


def _preambles(fmt: Typed, names: list[str], index: ShardSet) -> list[tuple[str, bytes]]:
    """Of the shards that hold any samples, by name."""
    held = np.diff(index.first).tolist()
    found = [(name, one) for name, one, count in zip(names, index.preambles, held, strict=True) if count]
    if isinstance(fmt, Joined):
        whole = fmt.together([one for _, one in found])
        return [(name, whole) for name, _ in found]
    return found


def _fingerprint(fmt: Format, shards: list[Shard]) -> str:
    """Of the shards' names below the root, sizes and versions: the same wherever the set is seen from."""
    digest = hashlib.sha256()
    for name, size, version in shards:
        digest.update(f"{len(name)}\n{name}\n{size}\n{version}\n".encode())
    return f"{fmt.name}{fmt.version}-{digest.hexdigest()[:32]}"
