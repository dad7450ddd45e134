"""A stretch of an epoch that travels by value, to be read in another process or on another machine.

What is opened there is what was opened here: the same object versions at the same places. Nothing is listed, no shard
is indexed and no footer read a second time, and neither home nor mounts of the other machine are asked.

`Source` is what all stretches of a dataset share, `Stretch` is one of them; `Source.open` makes a `Dataset` of both.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from headrace.base.errors import HeadraceError
from headrace.base.settings import Settings
from headrace.catalog import Abilities, LazySamples, Rows, SampleIndex, SampleSpec, Stage, lazy_of
from headrace.formats import Decompressed, Groups, Packed, Shard, TablePart, as_table
from headrace.loader.dataset import Dataset
from headrace.loader.order.order import Ints
from headrace.loader.order.windows import Windows
from headrace.loader.pipeline.bad_samples import Skip
from headrace.loader.pipeline.feeder import Leaf
from headrace.loader.reopening import Reopened
from headrace.namespace import Namespace
from headrace.store.protocol import Store

_LEVEL = 1  # zlib's quickest level
_ENDLESS = np.asarray([1 << 62], np.int64)


@dataclass(frozen=True)
class Placed:
    """A `headrace.loader.order.order.Stream` whose places are listed: the samples of a stretch, in their order."""

    leaf: Ints
    row: Ints

    @property
    def size(self) -> int:
        return len(self.row)

    @property
    def grain(self) -> int:
        return 1

    @property
    def is_part(self) -> bool:
        return True

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:  # noqa: ARG002
        return self.leaf[positions], self.row[positions]

    def describe(self, *, named: bool = True) -> str:  # noqa: ARG002
        return f"placed[{self.size}]"


@dataclass(frozen=True)
class Chosen:
    """Some samples of an index, each with its parts. Small when pickled.

    `packed`: of those of its shards that are compressed, what is stored.
    """

    specs: Sequence[SampleSpec]
    sizes: Rows
    packed: Mapping[str, tuple[Shard, Packed]] = field(default_factory=dict[str, tuple[Shard, Packed]])

    def __reduce__(self) -> tuple[Any, ...]:
        told = pickle.dumps((self.specs, self.sizes, self.packed), pickle.HIGHEST_PROTOCOL)
        return _unpacked, (zlib.compress(told, _LEVEL),)


def _unpacked(data: bytes) -> Chosen:
    return Chosen(*pickle.loads(zlib.decompress(data)))  # noqa: S301 - `Chosen` wrote it


class ChosenSamples:
    """A `headrace.catalog.sample_index.SampleIndex` over `Chosen`. Any thread; survives fork."""

    def __init__(self, store: Store, chosen: Chosen, like: LeafSource) -> None:
        self.store = Decompressed(store, chosen.packed, Settings.load()) if chosen.packed else store
        self.fingerprint, self.pinned, self.classes = like.fingerprint, like.pinned, like.classes
        self.abilities = Abilities(reports=like.reports)
        self._chosen = chosen

    def __len__(self) -> int:
        return len(self._chosen.specs)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        specs = self._chosen.specs
        return [specs[row] for row in rows.tolist()]

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        return self._chosen.sizes[rows]


@dataclass(frozen=True)
class StoreAt:
    """A store, as another process opens it: through the namespace, by path or URL; or the store itself."""

    namespace: Namespace | None
    path: str
    store: Store | None = None

    @staticmethod
    def of(index: SampleIndex) -> StoreAt:
        """Where `index` reads from."""
        store = index.store.inner if isinstance(index.store, Decompressed) else index.store
        if isinstance(index, Reopened):
            space = index.namespace
            for path in (*(mount.path for mount in space.mounts()), store.url, f"{store.url}/"):
                if _leads(space, path, store):
                    return StoreAt(space, path)
        return StoreAt(None, store.url, store)

    def open(self) -> Store:
        """Raises as `headrace.namespace.Namespace.resolve`."""
        return self.store if self.store is not None else cast("Namespace", self.namespace).resolve(self.path).store


def _leads(namespace: Namespace, path: str, store: Store) -> bool:
    try:
        return namespace.resolve(path).store is store
    except HeadraceError:
        return False


@dataclass(frozen=True)
class LeafSource:
    """Of one of a dataset's sources, what all stretches share. `window`: samples in one, None: no windows."""

    store: StoreAt
    stages: tuple[Stage, ...]
    window: int | None
    fingerprint: str
    pinned: bool
    reports: bool
    classes: list[str] | None
    lazy: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """What all stretches of a dataset share. Pickles where the functions of its stages do."""

    leaves: tuple[LeafSource, ...]
    stages: tuple[Stage, ...]
    skip: Skip | None

    @staticmethod
    def of(dataset: Dataset) -> Source:
        """Its order stays here: each stretch has its own."""
        leaves = [
            LeafSource(
                StoreAt.of(leaf.index), leaf.stages, None if leaf.window is None else leaf.window.length,
                leaf.index.fingerprint, leaf.index.pinned, leaf.index.abilities.reports, leaf.index.classes,
                () if (lazy := lazy_of(leaf.index)) is None else lazy.suffixes,
            )
            for leaf in dataset.leaves
        ]  # fmt: skip
        return Source(tuple(leaves), dataset.stages, dataset.skip)

    def open(self, stretch: Stretch) -> Dataset:
        """The samples of a stretch, behind all stages, not batched. Makes no request. Raises as `StoreAt.open`."""
        held = [number for number, part in enumerate(stretch.parts) if part is not None]
        leaves = tuple(_opened(self.leaves[number], stretch.parts[number]) for number in held)
        leaf = np.searchsorted(np.asarray(held, np.int64), stretch.leaf)
        return Dataset(Placed(leaf, stretch.row), leaves, self.stages, skip=self.skip)


@dataclass(frozen=True)
class Stretch:
    """Samples that follow one another in an epoch. `leaf`, `row`: of each, int64 [n], rows being numbered as in
    `parts`, one a leaf, None where it has none of them.
    """

    leaf: Ints
    row: Ints
    parts: tuple[Chosen | Groups | None, ...]

    @staticmethod
    def of(dataset: Dataset, epoch: int, first: int, stop: int) -> Stretch:
        """The samples at places [first, stop); a few microseconds each. Raises as the indices do."""
        leaf, row = dataset.stream.locate(epoch, np.arange(first, stop, dtype=np.int64))
        found: list[Chosen | Groups | None] = []
        for number, one in enumerate(dataset.leaves):
            mine = leaf == number
            part = None
            if mine.any():
                part, rows = _part(one, row[mine])
                row = np.array(row)
                row[mine] = rows
            found.append(part)
        return Stretch(leaf, row, tuple(found))


def sizes_at(dataset: Dataset, epoch: int, first: int, stop: int) -> Ints:
    """Stored bytes of the samples at places [first, stop) of an epoch; of parts of unknown size 0."""
    leaf, row = dataset.stream.locate(epoch, np.arange(first, stop, dtype=np.int64))
    found = np.zeros(len(row), np.int64)
    for number, one in enumerate(dataset.leaves):
        mine = leaf == number
        if mine.any():
            window = one.window
            rows = row[mine] if window is None else window.first_rows(row[mine])
            found[mine] = one.index.sizes(rows) * (1 if window is None else window.length)
    return found


def _part(leaf: Leaf, rows: Rows) -> tuple[Chosen | Groups, Rows]:
    """What of a leaf is needed for these rows (or windows), and how they are numbered in it."""
    if leaf.window is None:
        wanted, at = np.unique(rows, return_inverse=True)
    else:
        begin = leaf.window.first_rows(rows)
        wanted = np.unique(begin[:, None] + np.arange(leaf.window.length))
        at = np.searchsorted(wanted, begin)
    table = as_table(leaf.index)
    if table is not None:
        groups, places = Groups.of(table, wanted)
        return groups, places[at]
    lazy = lazy_of(leaf.index)
    specs = (leaf.index if lazy is None else lazy.index).specs(wanted)  # what is not read does not travel
    packed = _packed(leaf.index.store, specs)
    return Chosen(specs, leaf.index.sizes(wanted), packed), at.astype(np.int64)


def _packed(store: Store, specs: Sequence[SampleSpec]) -> Mapping[str, tuple[Shard, Packed]]:
    if not isinstance(store, Decompressed):
        return {}
    return store.stored({part.key for _, parts, _ in specs for part in parts})


def _opened(source: LeafSource, part: Chosen | Groups | None) -> Leaf:
    store = source.store.open()
    index: SampleIndex
    if isinstance(part, Groups):
        index = TablePart(store, source.stages, part, source.fingerprint)
    else:
        index = ChosenSamples(store, cast("Chosen", part), source)
        index = LazySamples(index, source.lazy) if source.lazy else index
    window = None
    if source.window is not None:  # rows are those at which windows begin
        window = Windows(source.window, 1, np.zeros(1, np.int64), _ENDLESS)
    return Leaf(index, window, source.stages)
