"""What an index of samples can do beside naming the objects of each one: stated by itself, present or None."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.cache import Cache, Entries
from headrace.catalog.stages import Stage
from headrace.store.protocol import Store

Ints: TypeAlias = npt.NDArray[np.int64]


class Ranges(NamedTuple):
    """Where samples lie. `parts`: int64 [n], of each sample, one or more; of all parts, sample after sample, int64 [m]:
    the number of the object, and start and stop within it.
    """

    parts: Ints
    object: Ints
    start: Ints
    stop: Ints


class Ranged(Protocol):
    """Samples that are ranges of few large objects. Any thread."""

    @property
    def store(self) -> Store: ...

    def ranges(self, rows: Ints) -> Ranges:
        """Where the samples at `rows` lie. Raises IndexError for a row out of range."""
        ...

    def object_at(self, number: int) -> tuple[str, int, str | None]:
        """Key, size in bytes and version of an object."""
        ...

    def blanks(self, rows: Ints, objects: Sequence[int]) -> Sequence[tuple[str, tuple[str, ...], Mapping[str, Any]]]:
        """``__key__``, names of the parts in the order of `ranges`, and extra fields of each sample. `objects`: the
        number of each one's first.
        """
        ...

    def columns(self, rows: Ints, objects: Sequence[int]) -> tuple[dict[str, list[Any]], tuple[str, ...] | None]:
        """The same by columns: ``__key__`` and extra fields; and the names of the parts, None where they differ."""
        ...


class CachedSamples(NamedTuple):
    """Samples of whole objects as the cache knows them. `keys`: their ``__key__``, [n]; `names`: of the parts, the same
    for all; `entries`: of all parts, sample after sample, [n · len(names)]; `extra`: values by name, [n] each.
    """

    keys: list[str]
    names: tuple[str, ...]
    entries: Entries
    extra: dict[str, list[Any]]

    def part(self, start: int, stop: int) -> CachedSamples:
        """Samples `start` to `stop`."""
        step = len(self.names)
        entries = self.entries[start * step : stop * step]
        extra = {name: values[start:stop] for name, values in self.extra.items()}
        return CachedSamples(self.keys[start:stop], self.names, entries, extra)


class OfObjects(Protocol):
    """Samples that are whole objects. Any thread."""

    def kept(self, rows: Ints, cache: Cache) -> CachedSamples | None:
        """The samples at `rows`, to be read from `cache`; quicker where they were asked for before. None where names of
        parts or extra fields differ, or an object's size or version is not known. Raises IndexError for a row out of
        range.
        """
        ...


class IndexFolder(NamedTuple):
    """Where an index of shards, and what else is known of them, may be kept: below `prefix` (empty, or ending in ``/``)
    of `store`.

    `writable`: False where that is attached read-only.
    """

    store: Store
    prefix: str
    writable: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Abilities:
    """What an index can do. None, empty or False: it cannot, or has none."""

    ranges: Ranged | None = None
    """Samples are ranges of few large objects: they are planned and read by arrays."""
    objects: OfObjects | None = None
    """Samples are whole objects: those that the cache holds are read some dozens at a time."""
    table: object | None = None
    """Samples are rows of tables: see `headrace.formats.tables.table_samples.as_table`."""
    blocks: Callable[[int], Ints] | None = None
    """The samples at which blocks of about so many bytes begin, the first being 0. A block lies in one object."""
    together: int | None = None
    """Blocks can only be had whole, as of compressed shards; so many may be mixed at a time."""
    folders: Callable[[], Ints] | None = None
    """The samples at which another folder begins, the first being 0."""
    stages: tuple[Stage, ...] = ()
    """What makes values of the bytes, before the user's own stages."""
    records: object | None = None
    """What makes values of records; it is one of the stages. See `headrace.formats.shard_samples.records_of`."""
    format: object | None = None
    """Of the shards. See `headrace.formats.shard_samples.shard_format_of`."""
    home: IndexFolder | None = None
    """Of a snapshot: where what is known of these samples is kept beside it."""
    sorted_by_key: bool = False
    """Rows are in the order of their keys, in UTF-8 bytes."""
    shares: bool = False
    """Neighbours lie in the very same parts, as rows of one row group do: planned together, many are one read."""
    reports: bool = False
    """The loader names objects that it reads in another version than is listed."""
    lazy: object | None = None
    """Some parts are not read. See `headrace.catalog.lazy_samples.lazy_of`."""
