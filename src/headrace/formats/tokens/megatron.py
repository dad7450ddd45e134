"""Megatron-LM's pairs of files: ``.bin`` with the tokens, ``.idx`` beside it with their type and where documents end.

The index: ``MMIDIDX`` and two zero bytes, version 1 (uint64), a number for the type (uint8), how many sequences and how
many bounds of documents there are (uint64 each); the sequences' lengths (int32), where they begin in bytes (int64), and
with which sequence each document begins (int64), the last bound being the number of sequences. Read from
``megatron/core/datasets/indexed_dataset.py`` of Megatron-LM. Sequences have to lie one behind the other, as its writer
puts them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.shard_format import Alike, Member, ShardBytes
from headrace.formats.tokens.token_files import PART, TokenDecoder

_HEAD = struct.Struct("<9sQBQQ")
_MAGIC = b"MMIDIDX\0\0"
_TYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_PIECE = 4 << 20  # bytes a read
_TOGETHER = 1 << 16  # documents handed on together
_HINT = "are the two files of one pair, and whole?"


@dataclass(frozen=True)
class Megatron:
    """Documents of such pairs. The part ``tokens``, its key the document's number in the file.

    `ends`: of one shard, behind which byte each document ends; None: of no shard in particular.
    """

    ends: npt.NDArray[np.int64] | None = None
    dtype: str = ""
    name: str = "megatron"
    version: int = 1
    suffixes: tuple[str, ...] = (".bin",)
    paired: str = ".idx"
    may_be_empty: bool = True

    def recognise(self, head: memoryview) -> bool:  # noqa: ARG002
        """Any bytes may be tokens."""
        return True

    def with_pair(self, pair: ShardBytes) -> Megatron:
        """See `headrace.formats.shard_format.Paired`. Raises CorruptError, UnsupportedError."""
        head = bytes(pair.read(0, _HEAD.size))
        if len(head) < _HEAD.size or not head.startswith(_MAGIC):
            raise CorruptError("at byte 0: this is no Megatron index", path=pair.path, hint=_HINT)
        _, version, kind, sequences, bounds = _HEAD.unpack(head)
        if version != 1 or kind not in _TYPES:
            raise UnsupportedError(f"an index of version {version}, tokens of type {kind}", path=pair.path)
        at = [_HEAD.size, _HEAD.size + 4 * sequences, _HEAD.size + 12 * sequences]
        if at[2] + 8 * bounds > pair.size:
            reason = f"{pair.size:,} bytes, meant for {sequences:,} sequences and {bounds:,} bounds of documents"
            raise CorruptError(reason, path=pair.path, hint=_HINT)
        lengths = _numbers(pair, at[0], sequences, "<i4")
        firsts = _numbers(pair, at[2], bounds, "<i8")
        sizes = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))) * np.dtype(_TYPES[kind]).itemsize
        rising = bool((lengths >= 0).all() and (np.diff(firsts) >= 0).all())
        if not rising or not bounds or firsts[0] or firsts[-1] != sequences:
            raise CorruptError("documents do not lie one behind the other", path=pair.path, hint=_HINT)
        if not np.array_equal(_numbers(pair, at[1], sequences, "<i8"), sizes[:-1]):
            raise UnsupportedError("sequences do not lie one behind the other", path=pair.path)
        return Megatron(sizes[firsts[1:]], _TYPES[kind])

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every document. Reads nothing of the shard. Raises CorruptError: it is not what its index says."""
        for some in self.groups(shard):
            for number, key in enumerate(some.keys.tolist()):
                yield Member(key.decode(), PART, *some.bounds[number].tolist())

    def groups(self, shard: ShardBytes) -> Iterator[Alike]:
        """As `scan`, many at a time."""
        ends = self.ends
        if ends is None or shard.size != (int(ends[-1]) if len(ends) else 0):
            said = "nothing" if ends is None else f"{int(ends[-1]) if len(ends) else 0:,} bytes"
            raise CorruptError(f"has {shard.size:,} bytes, and its .idx tells of {said}", path=shard.path, hint=_HINT)
        starts = np.concatenate(([0], ends[:-1]))
        for at in range(0, len(ends), _TOGETHER):
            some = slice(at, at + _TOGETHER)
            keys = np.array([b"%08d" % one for one in range(at, at + len(ends[some]))])
            yield Alike(keys, (PART,), np.stack([starts[some], ends[some]], axis=1))

    def preamble(self, shard: ShardBytes) -> bytes:  # noqa: ARG002 - its index tells
        """The type of the tokens."""
        return self.dtype.encode()

    def decoder(self, preamble: bytes) -> Mapping[str, Callable[[memoryview], npt.NDArray[Any]]]:
        """What makes an array of a document's bytes, a view of them."""
        return {PART: TokenDecoder(preamble.decode())}


MEGATRON = Megatron()


def _numbers(pair: ShardBytes, start: int, count: int, dtype: str) -> npt.NDArray[Any]:
    stop = start + count * np.dtype(dtype).itemsize
    pieces = [np.frombuffer(pair.read(at, min(at + _PIECE, stop)), np.uint8) for at in range(start, stop, _PIECE)]
    return np.concatenate([np.empty(0, np.uint8), *pieces]).view(dtype)
