"""TFRecord files: what TensorFlow's writers, Spark and Beam leave.

A record is its length (u64, little endian), the masked CRC-32C of those eight bytes, the data, and the masked CRC-32C
of the data: TensorFlow's ``core/lib/io/record_writer.h`` and the guide *TFRecord and tf.train.Example*.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.base.errors import CorruptError
from headrace.formats.checksums.crc32c import crc32c, crc32c_of, masked, masked_of, masked_of_rows, unmasked_of
from headrace.formats.checksums.crc_chain import chained
from headrace.formats.columns.buffer_slices import Pieces
from headrace.formats.shard_format import Member, ShardBytes

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEAD = _LENGTH.size + _CRC.size
_FIRST = 64 << 10  # bytes of the first read: enough to see how large records are
_MANY = 256  # records from which on one checksum of all is quicker than one of each
_PIECE = 1 << 20  # bytes a read, when records are smaller than that; else only heads are read


@dataclass(frozen=True)
class TFRecord:
    """Raw records: one record is one sample with the part ``data``, its key the record's number in the shard.

    A member covers the data and its checksum, so that `decode` can verify it. `example.example` turns a record that
    holds a ``tf.train.Example`` into arrays.
    """

    name: str = "tfrecord"
    version: int = 1
    suffixes: tuple[str, ...] = (".tfrecord", ".tfrecords")
    may_be_empty: ClassVar[bool] = True

    def recognise(self, head: memoryview) -> bool:
        """Whether they start with a length and its checksum. An empty object is a TFRecord too, but says nothing."""
        return len(head) >= _HEAD and _first_wrong(head, [0]) is None

    def scan(self, shard: ShardBytes) -> Iterator[Member]:
        """Every record. The checksum of every length is verified before that length is believed.

        Reads through in pieces of 1 MiB while records are small, else only their 12-byte heads.

        Raises:
            CorruptError: a length's checksum is wrong, or the shard ends inside a record.
        """
        at, number, want = 0, 0, _FIRST
        while at < shard.size:
            piece = shard.read(at, at + want)
            if at == shard.size:  # of a compressed shard, known only now
                break
            if at > shard.size:
                raise CorruptError(f"the shard ends at byte {shard.size}, inside record {number - 1}", path=shard.path)
            heads, lengths, used = _walk(piece)
            if not heads:
                raise CorruptError(f"the shard ends inside the head of record {number}, at byte {at}", path=shard.path)
            wrong = _first_wrong(piece, heads)
            if wrong is not None:
                raise CorruptError(
                    f"the length of record {number + wrong}, at byte {at + heads[wrong]}, fails its checksum",
                    path=shard.path,
                    hint="the shard is damaged, or it is compressed or no TFRecord at all",
                )
            if at + used > shard.size:
                raise CorruptError(
                    f"the shard ends at byte {shard.size}, inside record {number + len(heads) - 1}, which starts at "
                    f"byte {at + heads[-1]} and has {lengths[-1]} bytes",
                    path=shard.path,
                )
            for head, length in zip(heads, lengths, strict=True):
                start = at + head + _HEAD
                yield Member(f"{number:08d}", "data", start, start + length + _CRC.size)
                number += 1
            at += used
            want = _PIECE if used < _PIECE * len(heads) else _HEAD

    def decode(self, data: memoryview) -> memoryview:
        """The record's data, without a copy.

        Raises:
            CorruptError: the data fails its checksum.
        """
        payload = data[: -_CRC.size]
        if len(data) < _CRC.size or masked(crc32c(payload)) != _CRC.unpack_from(data, len(payload))[0]:
            raise CorruptError("the record fails its checksum", hint="the shard is damaged")
        return payload

    def decode_all(self, data: Sequence[memoryview]) -> Sequence[memoryview]:
        """As `decode`, for several records: a fraction of the time for each. Raises as `decode`, for any of them."""
        if isinstance(data, Pieces):
            payloads = Pieces(data.data, data.start, data.stop - _CRC.size)
            right = _all_right(payloads)
        else:
            payloads = [one[: -_CRC.size] for one in data]
            found = crc32c_of(payloads)  # first: it brings the end of each record into the processor's cache
            stored = b"".join([one[-_CRC.size :] for one in data])
            whole = len(stored) == _CRC.size * len(data)
            right = whole and bool((masked_of(found) == np.frombuffer(stored, "<u4")).all())
        if not right:
            raise CorruptError("the record fails its checksum", hint="the shard is damaged")
        return payloads

    def preamble(self, _: ShardBytes, /) -> bytes:
        """Nothing: a record needs no more than itself."""
        return b""

    def decoder(self, _: bytes, /) -> Callable[[memoryview], memoryview]:
        """`decode`, and `decode_all`."""
        return Verified()


TFRECORD = TFRecord()


class Verified:
    """What a record holds, its checksum verified. Pickles; any thread."""

    def __call__(self, data: memoryview) -> memoryview:
        """See `TFRecord.decode`."""
        return TFRECORD.decode(data)

    def all(self, data: Sequence[memoryview]) -> Sequence[memoryview]:
        """See `TFRecord.decode_all`."""
        return TFRECORD.decode_all(data)


def _all_right(payloads: Pieces) -> bool:
    """Whether each is followed by its checksum."""
    data, start, stop = payloads.data, payloads.start, payloads.stop
    if (stop < start).any():
        return False
    stored = np.frombuffer(data, np.uint8)[stop[:, None] + np.arange(_CRC.size)].view("<u4")[:, 0]
    right = chained(data, start, stop, unmasked_of(stored)) if len(payloads) >= _MANY else None
    return bool((masked_of(crc32c_of(payloads)) == stored).all()) if right is None else right


def _walk(piece: memoryview) -> tuple[list[int], list[int], int]:
    """The heads that lie whole in `piece`, which starts with one: offsets, lengths, and where the next head would be.

    Lengths are believed here; who calls verifies all of them before anything comes of it.
    """
    heads: list[int] = []
    lengths: list[int] = []
    at, last = 0, len(piece) - _HEAD
    while at <= last:
        (length,) = _LENGTH.unpack_from(piece, at)
        heads.append(at)
        lengths.append(length)
        at += length + _HEAD + _CRC.size
    return heads, lengths, at


def _first_wrong(piece: memoryview, heads: list[int]) -> int | None:
    """Which of the heads is the first whose checksum is wrong."""
    rows = np.frombuffer(piece, np.uint8)[np.array(heads)[:, None] + np.arange(_HEAD)]
    stored = np.ascontiguousarray(rows[:, _LENGTH.size :]).view("<u4")[:, 0]
    wrong = np.flatnonzero(masked_of_rows(rows[:, : _LENGTH.size]) != stored)
    return int(wrong[0]) if len(wrong) else None
