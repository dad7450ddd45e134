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
from headrace.dataset import Dataset
from headrace.dataset.order import Ints, Stream
from headrace.dataset.source import Rows, SampleIndex, SampleSpec
from headrace.pack.members import weigh
from headrace.pack.options import PackOptions
from headrace.pack.tar import END

FORMAT = 1
_AT_ONCE = 1 << 12


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


class Pinned:
    """A sample index whose objects must be as they were listed: else a shard would hold what no plan has foreseen."""

    pinned = True
    reports = False

    def __init__(self, index: SampleIndex) -> None:
        self._index = index
        self.store = index.store
        self.fingerprint = index.fingerprint
        self.classes = index.classes

    def __len__(self) -> int:
        return len(self._index)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._index, name)

    def specs(self, rows: Rows) -> list[SampleSpec]:
        """See `SampleIndex.specs`."""
        return self._index.specs(rows)

    def sizes(self, rows: Rows) -> Rows:
        """See `SampleIndex.sizes`."""
        return self._index.sizes(rows)


@dataclass(frozen=True, eq=False)
class Plan:
    """Shard k holds positions [starts[k], starts[k + 1]) of `dataset`. Immutable; any thread."""

    dataset: Dataset
    starts: Ints
    terms: Mapping[str, Any]
    """What the plan follows from, as it is noted beside the shards."""

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
    if getattr(dataset.leaves[0].index, "decode", None) is not None:
        dataset = dataset.map(name_by_shard, threads=1)
    leaves = tuple(dataclasses.replace(leaf, index=Pinned(leaf.index)) for leaf in dataset.leaves)
    dataset = dataclasses.replace(dataset, leaves=leaves)
    ordered = dataset if options.seed is None else dataset.shuffle(options.seed)
    starts = np.asarray(_cut(ordered, options, progress), dtype=np.int64)
    terms = {
        "format": FORMAT,
        "layout": "webdataset",
        "fingerprint": ordered.fingerprint,
        "by": options.by,
        "shuffle": options.seed,
        "shard_size": options.shard_size,
        "map": options.function,
        "name": options.name,
        "samples": len(ordered),
        "shards": len(starts) - 1,
        "cuts": hashlib.blake2b(starts.astype("<i8").tobytes(), digest_size=16).hexdigest(),
    }
    return Plan(ordered, starts, terms)


def name_by_shard(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Records are numbered shard by shard: with the shard's name in front, keys differ."""
    folder, slash, name = str(sample["__shard__"]).rpartition("/")
    shard = f"{folder}{slash}{name.rpartition('.')[0].replace('.', '_') or name}"
    return {**sample, "__key__": f"{shard}/{sample['__key__']}"}


def _cut(dataset: Dataset, options: PackOptions, progress: Progress) -> list[int]:
    index, total = dataset.leaves[0].index, len(dataset)
    room, checked = options.shard_size - len(END), options.function is None
    starts, filled = [0], 0
    progress.total(total)
    for first in range(0, total, _AT_ONCE):
        positions = np.arange(first, min(first + _AT_ONCE, total), dtype=np.int64)
        _, rows = dataset.stream.locate(0, positions)
        specs, sizes = index.specs(rows), index.sizes(rows).tolist()
        for position, spec, size in zip(positions.tolist(), specs, sizes, strict=True):
            weight = _weigh(spec, size, checked=checked)
            if filled and filled + weight > room:
                starts.append(position)
                filled = 0
            filled += weight
        progress.advance(len(positions))
    return [*starts, total]


def _weigh(spec: SampleSpec, size: int, *, checked: bool) -> int:
    try:
        return weigh(spec, size, checked=checked)
    except BadSampleError:
        if checked:
            raise
        return size  # what a function makes of it is what counts
    except UnicodeEncodeError as error:
        raise InputError("is no valid Unicode", path=ascii(spec[0]), hint="rename the object") from error
