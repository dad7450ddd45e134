"""What a shard format must tell: where in the shard each part of each sample lies, and how its bytes are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Decode = Callable[[memoryview], Any]
"""Makes a value of a part's bytes; it pickles. Raises CorruptError: the bytes are none.

It may have a method ``all(data)``, which does the same for a list of them, quicker.
"""
UNKNOWN = 1 << 62
"""The size of a shard whose end nobody has seen yet."""


class Member(NamedTuple):
    """One part of one sample: bytes [start, stop) of the shard.

    `key`: the sample's ``__key__`` within the shard; members of one key are one sample, also where others lie between
    them (which costs the index a second pass over the shard's keys). `name`: the part's name in the sample (``image``,
    ``data``).
    """

    key: str
    name: str
    start: int
    stop: int


class Alike(NamedTuple):
    """Samples that lie one behind the other, each with parts of the same names in the same order.

    `keys`: [n], in UTF-8, without zeros in them, no two neighbours the same. `bounds`: int64 [n, 2 x parts], start and
    stop of each part.
    """

    keys: npt.NDArray[np.bytes_]
    names: tuple[str, ...]
    bounds: npt.NDArray[np.int64]


class ShardBytes(Protocol):
    """A shard's bytes, read by whoever indexes it. One thread."""

    @property
    def path(self) -> str:
        """The shard's URL, for errors."""
        ...

    @property
    def size(self) -> int:
        """Bytes. Of a compressed shard, decompressed; `UNKNOWN` until a read has reached its end."""
        ...

    def read(self, start: int, stop: int) -> memoryview:
        """Bytes [start, stop), cut off at the end of the shard. Going forward is cheap, skipping is too.

        Raises:
            HeadraceError: the store fails, or the shard has changed.
        """
        ...


@runtime_checkable
class AtHand(Protocol):
    """A `ShardBytes` that has more of the shard in memory than was asked for.

    `turn`: to be held while much of that is worked on together. Of threads that each work on arrays, one at a time has
    it: NumPy lets go of the interpreter with every array, and handing it from thread to thread, some dozen times for
    each piece of a shard, costs as much as the work.
    """

    @property
    def turn(self) -> AbstractContextManager[object]: ...

    def at_hand(self, start: int) -> memoryview:
        """The bytes from `start` on that need not be read: maybe none."""
        ...


class Format(Protocol):
    """One way to put samples into an object. Immutable; any thread."""

    @property
    def name(self) -> str:
        """As in ``Dataset.open(…, format="tar")``."""
        ...

    @property
    def version(self) -> int:
        """Raised whenever `scan` would give other members than before: indices made by an older one are made again."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File name endings that announce it, with the dot, lower case."""
        ...

    def recognise(self, head: memoryview) -> bool:
        """Whether the first bytes of an object (up to 4096) are this format."""
        ...

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """All members, in the order in which they lie there. Reads as little as it can; memory stays bounded.

        Raises:
            CorruptError: with the shard's path, the byte offset and the reason.
        """
        ...


@runtime_checkable
class Grouped(Format, Protocol):
    """A format that can tell of many samples at once."""

    def groups(self, shard: ShardBytes, /) -> Iterator[Member | Alike]:
        """As `scan`; where many samples are alike, these in place of their members."""
        ...


def groups_of(kind: Format, shard: ShardBytes) -> Iterator[Member | Alike]:
    """All samples, in the quickest way that the format has. Raises as `Format.scan`."""
    return kind.groups(shard) if isinstance(kind, Grouped) else kind.scan(shard)


@runtime_checkable
class Repacked(Format, Protocol):
    """A format some of whose shards cannot be read from their middle for a reason of the format's own."""

    def repacked(self, shard: ShardBytes, /) -> str | None:
        """How such a shard is made anew: a codec of `formats.codecs.compression`. None: it is read as it lies.

        Raises as `scan`.
        """
        ...


@runtime_checkable
class Typed(Format, Protocol):
    """A format whose records are more than bytes: numbers, rows, lines of JSON; or bytes with a checksum.

    Its samples have one part, ``data``, or several that are decoded each by itself; see
    `headrace.formats.record_decoding`.
    """

    def preamble(self, shard: ShardBytes, /) -> bytes:
        """What decoding a record needs to know of its shard (a header line, the type of an array); kept in the index.

        Raises as `scan`.
        """
        ...

    def decoder(self, preamble: bytes, /) -> Decode | Mapping[str, Decode]:
        """What makes a record's value of its bytes; or, for samples of several parts, what makes each part's, by name.

        Raises:
            CorruptError: the preamble is none.
        """
        ...


@runtime_checkable
class Joined(Typed, Protocol):
    """A format whose records are decoded alike in all shards of a set, by what all of their preambles say."""

    def together(self, preambles: Sequence[bytes], /) -> bytes:
        """The preamble that holds for all."""
        ...


@runtime_checkable
class Accompanied(Typed, Protocol):
    """A format whose shards cannot be read without another object of their folder, which describes them all."""

    @property
    def beside(self) -> str:
        """That object's name."""
        ...

    def about(self, beside: ShardBytes, shards: Sequence[str], /) -> Any:
        """What it says, read once for its folder. `shards`: the names of the shards that lie there.

        Raises:
            CorruptError: it is damaged, or names shards that are not there. UnsupportedError.
        """
        ...

    def preamble(self, shard: ShardBytes, about: Any = None, /) -> bytes:
        """See `Typed.preamble`. `about`: what `about` gave; None where the object is missing.

        Raises as `scan`; NotFoundError: the object is missing.
        """
        ...


@runtime_checkable
class Paired(Typed, Protocol):
    """A format each of whose shards has an object beside it, of the same name with another suffix, which says where its
    samples lie.
    """

    @property
    def paired(self) -> str:
        """That suffix."""
        ...

    def with_pair(self, pair: ShardBytes, /) -> Typed:
        """The format as it reads the one shard whose pair this is. Raises as `scan`."""
        ...
