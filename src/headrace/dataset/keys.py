"""Which row has a key: by halving where rows are in the order of their keys, else by hashes that are sorted once.

Once a node and set of samples; mapped, never loaded: a look-up touches a few pages. 16 bytes a sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from headrace.base.settings import Settings
from headrace.dataset.shelf import Shelf
from headrace.dataset.source import SampleIndex

_FILE = "keys.npy"
_STEP = 8192
_PAIR = np.dtype([("hash", "<u8"), ("row", "<i8")])


def find(indices: Iterable[SampleIndex], key: str, settings: Settings) -> tuple[int, int] | None:
    """The number of the first index that has `key`, and the row there. Any thread. Raises as `row_of`."""
    rows = ((number, row_of(index, key, settings)) for number, index in enumerate(indices))
    return next(((number, row) for number, row in rows if row is not None), None)


def row_of(index: SampleIndex, key: str, settings: Settings) -> int | None:
    """The first row whose ``__key__`` is `key`; None: no sample has it. Any thread. An index whose rows are in the
    order of their keys, in UTF-8 bytes, says so: `sorted_by_key`.

    Raises OSError: the index of keys cannot be built.
    """
    if getattr(index, "sorted_by_key", False):
        return _halved(index, key)
    pairs = _pairs(index, settings)
    wanted = np.uint64(xxhash.xxh3_64_intdigest(key.encode("utf-8", "surrogateescape")))
    at = int(np.searchsorted(pairs["hash"], wanted))
    while at < len(pairs) and pairs["hash"][at] == wanted:  # equal hashes stand in the order of their rows
        row = int(pairs["row"][at])
        if _key(index, row) == key:
            return row
        at += 1
    return None


def _halved(index: SampleIndex, key: str) -> int | None:
    wanted = key.encode("utf-8", "surrogateescape")
    low, high = 0, len(index)
    while low < high:
        middle = (low + high) // 2
        if _key(index, middle).encode("utf-8", "surrogateescape") < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < len(index) and _key(index, low) == key else None


def _key(index: SampleIndex, row: int) -> str:
    return index.specs(np.asarray([row], np.int64))[0][0]


def _pairs(index: SampleIndex, settings: Settings) -> npt.NDArray[np.void]:
    def build(folder: Path) -> dict[str, Any]:
        pairs = np.lib.format.open_memmap(folder / _FILE, "w+", _PAIR, (len(index),))
        for first in range(0, len(index), _STEP):
            rows = np.arange(first, min(first + _STEP, len(index)), dtype=np.int64)
            keys = (spec[0].encode("utf-8", "surrogateescape") for spec in index.specs(rows))
            pairs["row"][rows] = rows
            pairs["hash"][rows] = [xxhash.xxh3_64_intdigest(key) for key in keys]
        pairs[:] = pairs[np.argsort(pairs["hash"], kind="stable")]
        pairs.flush()
        return {"samples": len(index)}

    folder, _ = Shelf.of(settings).get(f"keys-{index.fingerprint}", build)
    return np.load(folder / _FILE, mmap_mode="r")
