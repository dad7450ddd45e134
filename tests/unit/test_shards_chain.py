"""Checksums of many records verified by one: what is found is what looking at each of them finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import CorruptError
from headrace.formats.checksums.crc32c import Words, crc32c, unmasked_of
from headrace.formats.checksums.crc_chain import chained
from headrace.formats.columns.buffer_slices import Pieces
from headrace.formats.tfrecord.tfrecord import TFRECORD
from tests.shard_formats_kit import record


def laid_out(payloads: list[bytes]) -> tuple[bytearray, Pieces]:
    """Records one behind the other, and where each and its checksum lie."""
    data = bytearray(b"".join(map(record, payloads)))
    stop = np.cumsum([16 + len(one) for one in payloads], dtype=np.int64)
    start = stop - np.array([4 + len(one) for one in payloads], np.int64)
    return data, Pieces(memoryview(data), start, stop)


def stored(pieces: Pieces) -> Words:
    return unmasked_of(np.array([int.from_bytes(one[-4:], "little") for one in pieces], np.uint32))


@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=12), st.integers(0), st.integers(0, 8))
def test_a_damaged_byte_is_noticed_exactly_where_it_belongs_to_a_record(
    payloads: list[bytes], place: int, bit: int
) -> None:
    data, pieces = laid_out(payloads)
    place %= len(data)
    data[place] ^= 1 << bit & 0xFF  # bit 8: nothing is damaged
    inside = bit < 8 and bool(((pieces.start <= place) & (place < pieces.stop)).any())
    assert chained(pieces.data, pieces.start, pieces.stop - 4, stored(pieces)) is not inside
    if inside:
        with pytest.raises(CorruptError):
            TFRECORD.decode_all(pieces)
    else:
        assert [bytes(one) for one in TFRECORD.decode_all(pieces)] == payloads


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=9), st.data())
def test_records_in_any_order_and_with_gaps_are_verified_too(payloads: list[bytes], draw: st.DataObject) -> None:
    data, pieces = laid_out(payloads)
    order = draw.draw(st.lists(st.integers(0, len(payloads) - 1), min_size=1, max_size=12))
    some = Pieces(pieces.data, pieces.start[order], pieces.stop[order])
    assert [bytes(one) for one in TFRECORD.decode_all(some)] == [payloads[at] for at in order]
    data[pieces.start[order[-1]]] ^= 1
    with pytest.raises(CorruptError):
        TFRECORD.decode_all(some)


def test_what_is_no_chain_is_not_taken_for_one() -> None:
    data = memoryview(bytes(range(200)))
    starts, stops = np.array([0, 60, 130]), np.array([50, 100, 190])  # gaps of 10 and of 30
    sums = np.array([crc32c(data[a:b]) for a, b in zip(starts, stops, strict=True)], np.uint32)
    assert chained(data, starts, stops, sums) is None
    assert chained(data, starts[:2], stops[:2], sums[:2]) is True
    assert chained(data, starts[:2], stops[:2], sums[:2] ^ np.uint32(1)) is False
    assert chained(data, np.array([60, 0]), np.array([100, 50]), sums[[1, 0]]) is None


def test_a_long_chain_is_told_from_a_damaged_one() -> None:
    data, pieces = laid_out([bytes([at % 256]) * (20_000 + at) for at in range(300)])
    assert len(TFRECORD.decode_all(pieces)) == 300
    data[len(data) // 2] ^= 0x40
    with pytest.raises(CorruptError):
        TFRECORD.decode_all(pieces)
