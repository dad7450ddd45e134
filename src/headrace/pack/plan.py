"""Which samples go into which shard: a pure function of the samples, their order and the shards' size.

Nothing is read for it but the index, so every worker, and every later run, comes to the same plan.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headrace.base.errors import BadSampleError, InputError
from headrace.base.progress import Progress
from headrace.base.where import Where
from headrace.catalog import GivesKeys, Rows, SampleIndex, SampleSpec, Stage
from headrace.formats import records_of
from headrace.loader import Dataset, Ints, Stream
from headrace.pack.layouts import Layout, layout_named
from headrace.pack.options import PackOptions

FORMAT = 1
_AT_ONCE = 1 << 12  # samples looked at together


@dataclass(frozen=True, slots=True)
class Span:
    """Positions [start, start + size) of another stream, as they are in any epoch."""

    child: Stream
    start: int
    size: int

    @property
    def grain(self) -> int:
        return self.child.grain

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        return self.child.locate(epoch, positions + self.start)

    def describe(self, *, named: bool = True) -> str:
        return f"span({self.start}, {self.size}, {self.child.describe(named=named)})"


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Some positions of another stream, in its order: those that an expression keeps. Memory: 8 bytes for each."""

    child: Stream
    kept: Ints
    """int64 [n], rising."""
    text: str

    @property
    def size(self) -> int:
        return len(self.kept)

    @property
    def grain(self) -> int:
        return self.child.grain

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        return self.child.locate(epoch, self.kept[positions])

    def describe(self, *, named: bool = True) -> str:
        return f"where({self.text!r}, {self.size}, {self.child.describe(named=named)})"


class Pinned:
    """A sample index whose objects must be as they were listed: else a shard would hold what no plan has foreseen."""

    pinned = True

    def __init__(self, index: SampleIndex) -> None:
        self._index = index
        self.store = index.store
        self.fingerprint = index.fingerprint
        self.classes = index.classes
        self.abilities = dataclasses.replace(index.abilities, reports=False)

    def __len__(self) -> int:
        return len(self._index)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        return self._index.specs(rows)

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        return self._index.sizes(rows)


@dataclass(frozen=True, slots=True, eq=False)
class Cuts:
    """What a plan takes from the whole index: made once, and good wherever the same samples are found."""

    starts: Ints
    """As in `Plan`."""
    kept: Ints | None
    """Rows that ``where`` keeps, as far as names and sizes decide it, rising; None: all."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Shard k holds positions [starts[k], starts[k + 1]) of `dataset`. Immutable; any thread."""

    dataset: Dataset
    starts: Ints
    terms: Mapping[str, Any]
    """What the plan follows from, as it is noted beside the shards."""
    kept: Ints | None = None
    """As in `Cuts`."""

    @property
    def cuts(self) -> Cuts:
        """What `planned` makes the same plan of."""
        return Cuts(self.starts, self.kept)

    @property
    def shards(self) -> int:
        return len(self.starts) - 1

    @property
    def samples(self) -> int:
        return int(self.starts[-1])

    def count(self, number: int) -> int:
        """Samples planned for shard `number`."""
        return int(self.starts[number + 1] - self.starts[number])

    def shard(self, number: int) -> Dataset:
        """The samples of shard `number`, in order."""
        span = Span(self.dataset.stream, int(self.starts[number]), self.count(number))
        return dataclasses.replace(self.dataset, stream=span)


def make_plan(dataset: Dataset, options: PackOptions, progress: Progress) -> Plan:
    """Cut `dataset`, in its order, into shards of at most ``options.shard_size`` bytes.

    Raises:
        InputError: (BadSampleError) samples that cannot be packed. What the index raises.
    """
    kept = _kept(dataset, options, progress)
    starts = _cut(_ordered(dataset, options, kept), options, progress)
    return planned(dataset, options, Cuts(np.asarray(starts, dtype=np.int64), kept))


def planned(dataset: Dataset, options: PackOptions, cuts: Cuts) -> Plan:
    """The plan of `dataset` by cuts that `make_plan` came to, here or in another process. Looks at no sample."""
    ordered, starts = _ordered(dataset, options, cuts.kept), cuts.starts
    terms = {
        "format": FORMAT,
        "layout": options.layout,
        "fingerprint": ordered.fingerprint,
        "by": options.by,
        "shuffle": options.seed,
        "shard_size": options.shard_size,
        "map": options.function,
        "name": options.names,
        "where": options.where,
        "columns": options.columns,
        "samples": len(ordered),
        "shards": len(starts) - 1,
        "cuts": hashlib.blake2b(starts.astype("<i8").tobytes(), digest_size=16).hexdigest(),
    }
    return Plan(ordered, starts, terms, cuts.kept)


def _ordered(dataset: Dataset, options: PackOptions, kept: Ints | None) -> Dataset:
    """The samples that are packed, in the order in which they are."""
    if kept is not None:
        dataset = dataclasses.replace(dataset, stream=Chosen(dataset.stream, kept, (options.where or "").strip()))
    named = (Stage("map", name_by_shard, threads=1),) if is_numbered(dataset) else ()
    leaves = tuple(
        dataclasses.replace(leaf, index=Pinned(leaf.index), stages=(*named, *leaf.stages)) for leaf in dataset.leaves
    )
    dataset = dataclasses.replace(dataset, leaves=leaves)
    return dataset if options.seed is None else dataset.shuffle(options.seed)


def is_numbered(dataset: Dataset) -> bool:
    """Whether its samples are called by their numbers in their shards, those apart that have keys of their own."""
    abilities = dataset.leaves[0].index.abilities
    return abilities.records is not None or abilities.table is not None


def where_of(options: PackOptions, dataset: Dataset) -> Where | None:
    """The expression, if there is one. Raises InputError."""
    if not options.where:
        return None
    return dataclasses.replace(Where.parse(options.where), read_keys=has_own_keys(dataset))


def has_own_keys(dataset: Dataset) -> bool:
    """Whether records have keys of their own, as their header, or their first lines, tell."""
    records = records_of(dataset.leaves[0].index)
    if records is not None:
        return records.keyed
    functions = [stage.function for stage in dataset.leaves[0].stages]
    return any(isinstance(one, GivesKeys) and one.may_name() for one in functions)


def name_by_shard(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Records are numbered shard by shard: with the shard's name in front, keys differ. Before a record is decoded: one
    that has a key of its own keeps that.
    """
    folder, slash, name = str(sample["__shard__"]).rpartition("/")
    shard = f"{folder}{slash}{name.rpartition('.')[0].replace('.', '_') or name}"
    return {**sample, "__key__": f"{shard}/{sample['__key__']}"}


def _kept(dataset: Dataset, options: PackOptions, progress: Progress) -> Ints | None:
    """See `Cuts.kept`."""
    where, records = where_of(options, dataset), is_numbered(dataset)
    if where is None:
        return None
    if not where.planned:
        if "size" in where.names and dataset.leaves[0].index.abilities.records is not None:
            raise InputError(
                "--where asks for the size and for fields of a record at once", hint="pack twice, or filter in --map"
            )
        return None
    index, total = dataset.leaves[0].index, len(dataset)
    kept: list[Ints] = []
    progress.total(total)
    for first in range(0, total, _AT_ONCE):
        rows = np.arange(first, min(first + _AT_ONCE, total), dtype=np.int64)
        specs, sizes = index.specs(rows), index.sizes(rows).tolist()
        flags = [_keeps(where, spec, size, records=records) for spec, size in zip(specs, sizes, strict=True)]
        kept.append(rows[np.array(flags, np.bool_)])
        progress.advance(len(rows))
    chosen = np.concatenate(kept)
    if not len(chosen):
        raise InputError(f"none of {total:,} samples is kept by --where", hint=where.text)
    return chosen


def _keeps(where: Where, spec: SampleSpec, size: int, *, records: bool) -> bool:
    key, parts, extra = spec
    if records:
        key = name_by_shard({"__key__": key, **extra})["__key__"]
    names = (*(part.name for part in parts), *(name for name in extra if not name.startswith("__")))
    scope = {"key": key, "size": size, "parts": names, "shard": extra.get("__shard__", "")}
    try:
        return where.keeps(scope)
    except BadSampleError as error:
        raise InputError(error.reason, path=key, hint=error.hint) from None


def _cut(dataset: Dataset, options: PackOptions, progress: Progress) -> list[int]:
    index, total = dataset.leaves[0].index, len(dataset)
    layout = layout_named(options.layout)
    room, checked = options.shard_size - layout.end, options.function is None
    starts, filled = [0], 0
    progress.total(total)
    for first in range(0, total, _AT_ONCE):
        positions = np.arange(first, min(first + _AT_ONCE, total), dtype=np.int64)
        _, rows = dataset.stream.locate(0, positions)
        sizes = index.sizes(rows).tolist()
        if options.columns:
            weights = [size + 1 for size in sizes]
        else:
            pairs = zip(index.specs(rows), sizes, strict=True)
            weights = [_weigh(layout, spec, size, checked=checked) for spec, size in pairs]
        for position, weight in zip(positions.tolist(), weights, strict=True):
            if filled and filled + weight > room:
                starts.append(position)
                filled = 0
            filled += weight
        progress.advance(len(positions))
    return [*starts, total]


def _weigh(layout: Layout, spec: SampleSpec, size: int, *, checked: bool) -> int:
    try:
        return layout.weigh(spec, size, checked=checked)
    except BadSampleError:
        if checked:
            raise
        return size  # what a function makes of it is what counts
    except UnicodeEncodeError as error:
        raise InputError("is no valid Unicode", path=ascii(spec[0]), hint="rename the object") from error
