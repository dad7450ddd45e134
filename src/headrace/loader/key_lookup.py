"""Which row has a key: by halving where rows are in the order of their keys, else by hashes that are sorted once.

Once a node and set of samples; mapped, never loaded: a look-up touches a few pages. 16 bytes a sample. Where records
may have keys of their own (`headrace.catalog.record_keys`), which the index does not know, they are read once for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.base.errors import HeadraceError
from headrace.base.settings import Settings
from headrace.catalog import KEY, GivesKeys, SampleIndex, Shelf, Stage
from headrace.fetch import Fetcher
from headrace.formats import as_table
from headrace.loader.epoch_pipeline import Pipeline
from headrace.loader.order.order import Rows
from headrace.loader.order.progress_state import Progress, Residual
from headrace.loader.pipeline.batch_builder import Delivery
from headrace.loader.pipeline.epoch_plan import Plan
from headrace.loader.pipeline.feeder import Course, Leaf
from headrace.loader.random_access import samples_at

_FILE = "keys.npy"
_STEP = 8192  # samples whose keys are made at a time: what a step costs is shared, and memory stays small
_PREFETCH = 64 << 20  # bytes of keys on their way
_NUMBERED = "\0number"
"""Stands for the number of a row that is looked at for a key of its own."""
_PAIR = np.dtype([("hash", "<u8"), ("row", "<i8")])


def find(
    leaves: Sequence[Leaf], stages: Sequence[Stage], key: str, settings: Settings, fetcher: Fetcher
) -> tuple[int, int] | None:
    """The number of the first leaf that has `key`, and the row there; None: no sample has it. `stages`: what all leaves
    pass. Any thread.

    Of several it is the first; but where `key` is the number of the first row of that number, and that has no key of
    its own, it is that, which is found without reading the others.

    Raises:
        OSError: the index of keys cannot be built. Where records are read: as the loader.
    """
    for number, leaf in enumerate(leaves):
        through = _naming([*leaf.stages, *stages])
        row = row_of(leaf.index, key, settings)
        if through and (row is None or _named(leaf.index, row, through, fetcher, _NUMBERED) != _NUMBERED):
            row = _row_by_own(leaf.index, through, key, settings, fetcher)
        if row is not None:
            return number, row
    return None


def may_name(stages: Iterable[Stage]) -> bool:
    """Whether samples may come out of these stages with keys that the index does not know."""
    return bool(_naming(stages))


def row_of(index: SampleIndex, key: str, settings: Settings) -> int | None:
    """The first row that the index calls `key`; None: there is none. Any thread.

    Raises OSError: the index of keys cannot be built.
    """
    if index.abilities.sorted_by_key:
        return _halved(index, key)

    def keys() -> Iterator[list[str]]:
        for first in range(0, len(index), _STEP):
            rows = np.arange(first, min(first + _STEP, len(index)), dtype=np.int64)
            yield [spec[0] for spec in index.specs(rows)]

    pairs = _pairs(f"keys-{index.fingerprint}", len(index), keys, settings)
    return next((row for row in _alike(pairs, key) if _key(index, row) == key), None)


def _naming(stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """Those of the first stages that give samples their records' own keys; none where no record has any."""
    first = tuple(takewhile(lambda stage: isinstance(stage.function, GivesKeys), stages))
    return first if any(cast("GivesKeys", stage.function).may_name() for stage in first) else ()


def _row_by_own(
    index: SampleIndex, through: tuple[Stage, ...], key: str, settings: Settings, fetcher: Fetcher
) -> int | None:
    table = as_table(index)
    if table is not None:
        index, through = table.named, table.named.stages
        leaf = Leaf(index, stages=through)
    else:
        leaf = Leaf(index, stages=(Stage("map", _KeyOnly(through), max(stage.threads for stage in through)),))
    names = "-".join(type(stage.function).__name__.lower() for stage in through)
    pairs = _pairs(f"own-keys-{names}-{index.fingerprint}", len(index), lambda: _read(leaf, fetcher), settings)
    return next((row for row in _alike(pairs, key) if _named(index, row, through, fetcher) == key), None)


def _named(
    index: SampleIndex, row: int, through: tuple[Stage, ...], fetcher: Fetcher, number: str | None = None
) -> str:
    """A row's key behind these stages; `number`: what to call it, where it has none of its own."""
    leaf = Leaf(index, stages=(Stage("map", _KeyOnly(through, number)),))
    return samples_at(Rows(len(index), "key"), (leaf,), (), 0, np.asarray([row], np.int64), fetcher)[0][KEY]


@dataclass(frozen=True)
class _KeyOnly:
    """A sample as its key alone. A damaged record has its number, or what `number` calls it."""

    through: tuple[Stage, ...]
    number: str | None = None

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        if self.number is not None:
            sample = {**sample, KEY: self.number}
        found: Any = sample
        try:
            for stage in self.through:
                found = stage.function(found)
        except HeadraceError:
            found = sample
        return {KEY: found[KEY]}


def _read(leaf: Leaf, fetcher: Fetcher) -> Iterator[Sequence[str]]:
    """The keys of all samples, in their order."""
    stream, size = Rows(len(leaf.index), "keys"), len(leaf.index)
    plan = Plan((leaf,), (), batch=_STEP, drop_last=False, skip=None, prefetch=_PREFETCH, window=None)
    running = Pipeline(plan, Course(stream, Residual(grain=stream.grain), 0, Progress(), size), fetcher, [])
    try:
        while isinstance(delivery := running.take(), Delivery):
            yield delivery.data[KEY]
    finally:
        running.close()


def _halved(index: SampleIndex, key: str) -> int | None:
    wanted = _bytes(key)
    low, high = 0, len(index)
    while low < high:
        middle = (low + high) // 2
        if _bytes(_key(index, middle)) < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < len(index) and _key(index, low) == key else None


def _key(index: SampleIndex, row: int) -> str:
    return index.specs(np.asarray([row], np.int64))[0][0]


def _bytes(key: str) -> bytes:
    return key.encode("utf-8", "surrogateescape")


def _alike(pairs: npt.NDArray[np.void], key: str) -> Iterator[int]:
    """Rows whose keys have the same hash, in their order."""
    wanted = np.uint64(xxhash.xxh3_64_intdigest(_bytes(key)))
    at = int(np.searchsorted(pairs["hash"], wanted))
    while at < len(pairs) and pairs["hash"][at] == wanted:
        yield int(pairs["row"][at])
        at += 1


def _pairs(
    name: str, count: int, keys: Callable[[], Iterator[Sequence[str]]], settings: Settings
) -> npt.NDArray[np.void]:
    """Hashes of keys, sorted, and their rows; made once on a node. `keys`: all of them, in the order of their rows."""

    def build(folder: Path) -> dict[str, Any]:
        pairs = np.lib.format.open_memmap(folder / _FILE, "w+", _PAIR, (count,))
        first = 0
        for some in keys():
            rows = slice(first, first + len(some))
            pairs["row"][rows] = np.arange(first, first + len(some))
            pairs["hash"][rows] = [xxhash.xxh3_64_intdigest(_bytes(key)) for key in some]
            first += len(some)
        pairs[:] = pairs[np.argsort(pairs["hash"], kind="stable")]
        pairs.flush()
        return {"samples": count}

    folder, _ = Shelf.of(settings).get(name, build)
    return np.load(folder / _FILE, mmap_mode="r")
