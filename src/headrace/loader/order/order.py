"""Order: which sample stands at which position of an epoch. Pure functions of (seed, epoch, position).

A `Stream` is a sequence of positions 0 … size-1 (or without end); `locate` says for any of them which leaf (data
source) and which row stands there, for thousands of positions in one vectorised call and without any memory that
grows with the data. Because nothing is drawn from a running generator, a position is all the state there is.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.base.errors import InputError
from headrace.catalog import Ints

Words: TypeAlias = npt.NDArray[np.uint64]

_TABLE = 4096
"""Up to this size a permutation is a table (32 kB at most): a cipher's quality is poor on tiny domains."""
_ROUNDS = 8
"""Turns of the Feistel network, an even number, as two are taken at a time. States that were saved count on it."""
_FOREVER = 1 << 32
"""Passes told apart inside one epoch of an endless `Repeat`."""


def key_of(*parts: int | str) -> int:
    """A 64-bit key from seeds, epochs and names; the same on every machine and in every version."""
    text = "\0".join(str(part) for part in ("headrace-order-1", *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def distinct(values: Ints) -> Ints:
    """The values that occur, each once, in order. As `numpy.unique`, whose import of `numpy.ma` would cost the first
    batch 8 ms; and quick where many that are the same stand together.
    """
    return _without_repeats(np.sort(_without_repeats(values)))


def _without_repeats(values: Ints) -> Ints:
    return values[np.concatenate((np.ones(1, np.bool_), values[1:] != values[:-1]))] if len(values) else values


def mix64(words: Words) -> Words:
    """The finaliser of SplitMix64, element by element (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, OOPSLA 2014; constants by David Stafford, "Better Bit Mixing", variant 13).
    """
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words = words ^ (words >> np.uint64(27))
    words = words * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


class Permutation:
    """A bijection of range(size), chosen by a 64-bit key; O(1) memory, any part of it computable by itself.

    A Feistel network over Z_a x Z_b with a·b just above `size`, and cycle walking for what falls outside: the
    generalised Feistel construction of Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002.
    Less than one position in sqrt(size) has to walk. Not cryptography: it only has to look random to a model.
    Threads: immutable, share freely.
    """

    def __init__(self, size: int, key: int) -> None:
        if size < 1:
            raise InputError(f"a permutation of {size} items", hint="there must be at least one")
        self.size = size
        self._table: Ints | None = None
        if size <= _TABLE:
            words = mix64(np.arange(size, dtype=np.uint64) + np.uint64(key))
            self._table = np.argsort(words, kind="stable").astype(np.int64)
        self._a = math.isqrt(size - 1) + 1
        self._b = -(-size // self._a)
        self._keys = [np.uint64(key_of(key, turn)) for turn in range(_ROUNDS)]

    def __call__(self, positions: Ints) -> Ints:
        """Where each position goes. Shape kept; every position must lie in [0, size)."""
        if self._table is not None:
            return self._table[positions]
        found = self._pass(positions.astype(np.uint64))
        outside = np.flatnonzero(found >= self.size)
        while outside.size:
            found[outside] = self._pass(found[outside])
            outside = outside[found[outside] >= self.size]
        return found.astype(np.int64)

    def _pass(self, words: Words) -> Words:
        a, b = np.uint64(self._a), np.uint64(self._b)
        left = words // b
        right = words - left * b
        for turn in range(0, _ROUNDS, 2):
            left = _add(left, right, self._keys[turn], a)
            right = _add(right, left, self._keys[turn + 1], b)
        return left * b + right


def _add(half: Words, other: Words, key: np.uint64, modulus: np.uint64) -> Words:
    """(half + F(other)) mod modulus, F uniform on [0, modulus); both halves lie below 2**32."""
    shift = np.uint64(32)
    total = half + (((mix64(other + key) >> shift) * modulus) >> shift)
    return np.where(total >= modulus, total - modulus, total)


@lru_cache(maxsize=64)
def permutation(size: int, key: int) -> Permutation:
    """A `Permutation`, kept: an epoch asks for the same one in every chunk."""
    return Permutation(size, key)


class Stream(Protocol):
    """A sequence of samples by position. Immutable; any thread may call."""

    @property
    def size(self) -> int | None:
        """Positions in one epoch; None: without end."""
        ...

    @property
    def grain(self) -> int:
        """This many consecutive positions are best read together (overlapping windows); 1: no such ties."""
        ...

    @property
    def is_part(self) -> bool:
        """Whether it leaves out, on purpose, some of what its sources hold."""
        ...

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        """(leaf, row) of each position, two int64 arrays of the same length."""
        ...

    def describe(self, *, named: bool = True) -> str:
        """The order in words. Without names: equal words over equal sources <=> equal order."""
        ...


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one source, in its own order. `grain` above 1: neighbours share data (windows)."""

    size: int
    name: str
    grain: int = 1

    @property
    def is_part(self) -> bool:
        return False

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:  # noqa: ARG002
        return np.zeros(len(positions), dtype=np.int64), positions

    def describe(self, *, named: bool = True) -> str:
        return f"{self.name if named else ''}[{self.size}]"


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Another order in every epoch. Where neighbours share data, whole blocks of `grain` positions move."""

    child: Stream
    seed: int

    def __post_init__(self) -> None:
        if self.child.size is None:
            raise InputError("an endless dataset cannot be shuffled", hint="shuffle first, then repeat")

    @property
    def size(self) -> int | None:
        return self.child.size

    @property
    def grain(self) -> int:
        return self.child.grain

    @property
    def is_part(self) -> bool:
        return self.child.is_part

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        size, grain, key = self.child.size or 0, self.child.grain, key_of(self.seed, epoch)
        if not len(positions):
            return positions, positions
        moved = permutation(size, key)(positions) if grain == 1 else _move_blocks(positions, size, grain, key)
        return self.child.locate(epoch, moved)

    def describe(self, *, named: bool = True) -> str:
        return f"shuffle({self.seed}, {self.child.describe(named=named)})"


def _move_blocks(positions: Ints, size: int, grain: int, key: int) -> Ints:
    """Permute blocks of `grain` positions. The short block comes last, so that blocks keep to the grain by which ranks
    are dealt; the data is rotated, so that it is another piece in every epoch.
    """
    blocks = size // grain
    moved = positions
    if blocks:
        full = np.minimum(positions, blocks * grain - 1)
        inside = permutation(blocks, key)(full // grain) * grain + full % grain
        moved = np.where(positions < blocks * grain, inside, positions)
    return (moved + key % size) % size


@dataclass(frozen=True, slots=True)
class Take:
    """The first `count` positions of another stream."""

    child: Stream
    count: int

    @property
    def size(self) -> int | None:
        return self.count if self.child.size is None else min(self.count, self.child.size)

    @property
    def grain(self) -> int:
        return self.child.grain

    @property
    def is_part(self) -> bool:
        return True

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        return self.child.locate(epoch, positions)

    def describe(self, *, named: bool = True) -> str:
        return f"take({self.count}, {self.child.describe(named=named)})"


@dataclass(frozen=True, slots=True)
class Slice:
    """`count` positions of another stream, from `first` on, `step` apart (which may be negative)."""

    child: Stream
    first: int
    step: int
    count: int

    @property
    def size(self) -> int | None:
        return self.count

    @property
    def grain(self) -> int:
        return 1

    @property
    def is_part(self) -> bool:
        return True

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        return self.child.locate(epoch, self.first + self.step * positions)

    def describe(self, *, named: bool = True) -> str:
        return f"slice({self.first}, {self.step}, {self.count}, {self.child.describe(named=named)})"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Another stream several times over (None: without end), each pass as an epoch of its own.

    A pass that begins inside a grain, as the passes before it are no multiple of one, is rotated: its last positions
    fill that grain up, and then its grains are the whole's. Else every one of them would be read in two halves.
    """

    child: Stream
    times: int | None

    def __post_init__(self) -> None:
        if not self.child.size:
            raise InputError("an empty or endless dataset cannot be repeated", hint="repeat something finite, once")

    @property
    def size(self) -> int | None:
        return None if self.times is None else (self.child.size or 0) * self.times

    @property
    def grain(self) -> int:
        return self.child.grain

    @property
    def is_part(self) -> bool:
        return self.child.is_part

    def locate(self, epoch: int, positions: Ints) -> tuple[Ints, Ints]:
        size, grain = self.child.size or 1, self.child.grain
        passes, inner = np.divmod(positions, np.int64(size))
        leaf, row = np.empty_like(positions), np.empty_like(positions)
        for number in distinct(passes).tolist():
            here = passes == number
            inner_epoch = epoch * (self.times or _FOREVER) + number
            begun = -number * size % grain
            leaf[here], row[here] = self.child.locate(inner_epoch, (inner[here] - begun) % size)
        return leaf, row

    def describe(self, *, named: bool = True) -> str:
        return f"repeat({self.times}, {self.child.describe(named=named)})"


def straight(stream: Stream, epoch: int, first: int, stop: int) -> int | None:
    """Where positions [first, stop) are neighbouring rows of the only source, the first of these; None: they are not,
    or nobody can tell without looking.
    """
    if isinstance(stream, Rows):
        return first
    if isinstance(stream, Take):
        return straight(stream.child, epoch, first, stop)
    if isinstance(stream, Repeat) and stream.grain == 1 and stream.child.size:
        number, inner = divmod(first, stream.child.size)
        if inner + stop - first <= stream.child.size:
            return straight(stream.child, epoch * (stream.times or _FOREVER) + number, inner, inner + stop - first)
    return None
