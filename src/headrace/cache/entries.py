"""Names of many entries in arrays: what a warm sample may cost leaves no room for several strings of each.

They stand for the names of `headrace.cache.names`: digests and sizes, and the files' paths as the kernel wants them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.cache.names import DIGEST, digest_of

_PAIRS = np.frombuffer("".join(f"{number:02x}" for number in range(256)).encode(), np.uint8).reshape(256, 2)
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_SHARD = 2
"""Digits of a digest that name a folder."""
_DASH, _SLASH = ord("-"), ord("/")
_MOST_DIGITS = 16
"""Hexadecimal digits of a size: 64 bits."""

Digests: TypeAlias = npt.NDArray[np.uint8]
"""Of object versions, [n, 16]: the first half of their names."""
Sizes: TypeAlias = npt.NDArray[np.int64]
"""Bytes of objects, [n]."""


def digests_of(identity: str, keys: Sequence[str], versions: Sequence[str]) -> Digests:
    """`headrace.cache.names.digest_of` several versions in one store."""
    found = b"".join(map(partial(digest_of, identity), keys, versions))
    return np.frombuffer(found, np.uint8).reshape(-1, DIGEST)


class Entries:
    """Complete entries of one cache, in an order. A slice shares the arrays. Any thread."""

    __slots__ = ("digests", "paths", "sizes")

    def __init__(self, digests: Digests, sizes: Sizes, paths: npt.NDArray[np.bytes_]) -> None:
        self.digests, self.sizes = digests, sizes
        self.paths = paths
        """Absolute, and ended by a zero byte in memory, [n]."""

    @classmethod
    def below(cls, folder: str, digests: Digests, sizes: Sizes) -> Entries:
        """Those of the cache whose complete entries lie below `folder`, which ends with a slash."""
        return cls(digests, sizes, _paths(os.fsencode(folder), digests, sizes))

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, part: slice) -> Entries:
        return Entries(self.digests[part], self.sizes[part], self.paths[part])

    def name(self, at: int) -> str:
        """The name of one of them."""
        return f"{self.digests[at].tobytes().hex()}-{int(self.sizes[at]):x}"

    @property
    def marks(self) -> npt.NDArray[np.int64]:
        """A number for each, equal where names are, else almost surely not, [n]."""
        return np.ascontiguousarray(self.digests).view(np.int64)[:, 0] ^ self.sizes


def _paths(folder: bytes, digests: Digests, sizes: Sizes) -> npt.NDArray[np.bytes_]:
    """``<folder>ab/<30 hex>-<size hex>`` of each; some tenths of a microsecond where there are many."""
    at, end = len(folder), len(folder) + 1 + 2 * DIGEST + 1
    text = np.zeros((len(sizes), end + _MOST_DIGITS + 1), np.uint8)
    pairs = _PAIRS[digests].reshape(-1, 2 * DIGEST)
    text[:, :at] = np.frombuffer(folder, np.uint8)
    text[:, at : at + _SHARD] = pairs[:, :_SHARD]
    text[:, at + _SHARD] = _SLASH
    text[:, at + _SHARD + 1 : end - 1] = pairs[:, _SHARD:]
    text[:, end - 1] = _DASH
    digits = _digits(sizes)
    for place in range(int(digits.max(initial=0))):
        there = place < digits
        shift = np.where(there, 4 * (digits - 1 - place), 0)
        text[:, end + place] = np.where(there, _DIGITS[(sizes >> shift) & 15], 0)
    return text.view(f"S{text.shape[1]}")[:, 0]


def _digits(sizes: Sizes) -> npt.NDArray[np.int64]:
    """How many hexadecimal digits each has."""
    digits = np.ones(len(sizes), np.int64)
    rest = sizes >> 4
    while rest.any():
        digits += rest > 0
        rest = rest >> 4
    return digits
