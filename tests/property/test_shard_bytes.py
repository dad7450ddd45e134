"""A shard's bytes as whoever indexes it sees them, however it jumps, against the bytes themselves."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.fetch import Read
from headrace.formats.index.shard_bytes import Reader, StoreBytes
from headrace.store import open_store
from headrace.store.protocol import Blob

SIZE = 3 << 20
MOST = 64 << 10
BODY = bytes(bytearray(n * 7 + (n >> 8) * 13 & 0xFF for n in range(1 << 16))) * (SIZE >> 16)

steps = st.lists(
    st.tuples(
        st.one_of(  # from where the last read ended: on, a little back, over a member, anywhere
            st.just(0),
            st.integers(-600, 600),
            st.integers(0, 700 << 10),
            st.integers(-SIZE, SIZE),
        ),
        st.one_of(st.integers(0, 3000), st.integers(0, 2 * MOST)),
    ),
    min_size=1,
    max_size=120,
)


@given(steps)
def test_reads_are_the_bytes_and_what_was_told_to_come_next_does(walk: list[tuple[int, int]]) -> None:
    store = open_store("memory://shard-bytes")
    store.put("k", BODY)
    asked: list[tuple[int, int, int]] = []

    def get(read: Read, until: int) -> Blob:
        assert read.stop is not None
        asked.append((read.start, read.stop, until))
        return store.get(read.key, read.start, read.stop)

    passed: list[int] = []
    shard = StoreBytes(Reader(get, MOST), store, "k", SIZE, None, passed.append)
    at = 0
    for step, size in walk:
        start = min(max(at + step, 0), SIZE)
        stop = start + size
        before = shard.at_hand(start)
        assert bytes(before) == BODY[start : start + len(before)]
        assert bytes(shard.read(start, stop)) == BODY[start:stop]
        at = min(stop, SIZE)
    for (start, stop, until), following in pairwise(asked):
        assert until in (0, SIZE)
        if until and following[2]:  # it goes on reading through: from the very next byte on
            assert following[0] == stop
        assert stop > start
    assert all(size > 0 for size in passed)
    assert sum(passed) == max((stop for _, stop, _ in asked), default=0)


@given(st.integers(600, 40_000), st.integers(1, 513))
def test_small_members_one_after_the_other_are_read_through_once(member: int, step: int) -> None:
    """As tars, TFRecords and lines are walked: no byte is asked for twice but while the reads still grow."""
    store = open_store("memory://shard-bytes-through")
    store.put("k", BODY)
    asked: list[tuple[int, int]] = []

    def get(read: Read, _: int) -> Blob:
        assert read.stop is not None
        asked.append((read.start, read.stop))
        return store.get(read.key, read.start, read.stop)

    shard = StoreBytes(Reader(get, MOST), store, "k", SIZE, None, lambda _: None)
    for at in range(0, SIZE, member):
        assert bytes(shard.read(at, at + step)) == BODY[at : at + step]
    assert len(asked) <= SIZE // MOST + 3
    assert sum(stop - start for start, stop in asked) < SIZE + 4 * 40_000


@given(st.sampled_from([1 << 10, 16 << 10, 64 << 10]))
def test_large_members_are_skipped_however_little_is_read_at_once(most: int) -> None:
    store = open_store("memory://shard-bytes-skipped")
    store.put("k", BODY)
    asked: list[int] = []

    def get(read: Read, _: int) -> Blob:
        assert read.stop is not None
        asked.append(read.stop - read.start)
        return store.get(read.key, read.start, read.stop)

    shard = StoreBytes(Reader(get, most), store, "k", SIZE, None, lambda _: None)
    for at in range(0, SIZE, 1 << 20):
        assert bytes(shard.read(at, at + 512)) == BODY[at : at + 512]
    assert asked == [16 << 10] * 3
