"""The read-ahead's parts, growth and blocks. Cursors over bytes: `namespace/test_reader.py`; disorder: `mount/`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.fetch.readahead import BlockCursor, Limits, cut

BLOCK, ANNOUNCING = 1000, 100


def limits(ahead: int) -> Limits:
    """So many blocks ahead at most."""
    return Limits(first=BLOCK, most=ahead * BLOCK, part=BLOCK, jump=BLOCK, keep=2 * BLOCK)


@given(start=st.integers(0, 300), count=st.integers(-5, 300), part=st.integers(1, 90), aligned=st.booleans())
def test_parts_follow_on_each_other_and_cover(start: int, count: int, part: int, aligned: bool) -> None:
    spans = cut(start, start + count, part, aligned=aligned)
    assert [at for low, high in spans for at in range(low, high)] == list(range(start, start + count))
    assert all(0 < high - low <= part for low, high in spans)
    whole = spans[1:-1]
    assert all(high - low == part for low, high in whole)


@given(start=st.integers(0, 300), count=st.integers(1, 300), block=st.integers(1, 90))
def test_no_aligned_part_lies_in_two_blocks(start: int, count: int, block: int) -> None:
    parts = cut(start, start + count, block, aligned=True)
    assert all(low // block == (high - 1) // block for low, high in parts)
    assert len(parts) == (start + count - 1) // block - start // block + 1


def test_a_window_grows_by_its_factor_up_to_its_bound() -> None:
    steps = Limits(first=3, most=100, growth=4)
    windows = [0]
    while windows[-1] < steps.most:
        windows.append(steps.grown(windows[-1]))
    assert windows == [0, 12, 48, 100]
    assert steps.grown(100) == 100


def test_blocks_under_way_end_at_the_bound_and_with_the_object() -> None:
    cursor = BlockCursor(10 * BLOCK + 1, limits(ahead=3), ANNOUNCING)
    asked = [list(cursor.read(at * BLOCK, ANNOUNCING)) for at in range(11)]
    assert asked[:3] == [[0, 1, 2], [1, 2, 3, 4], [2, 3, 4, 5]]
    assert asked[-3:] == [[8, 9, 10], [9, 10], [10]]


def test_a_block_is_among_them_until_the_reader_is_past_it() -> None:
    cursor = BlockCursor(10 * BLOCK, limits(ahead=2), ANNOUNCING)
    first = cursor.read(0, ANNOUNCING)
    assert cursor.read(ANNOUNCING, 1) == first == range(3), "it may have found no room the first time"


def test_a_small_read_begins_no_run_and_continues_one() -> None:
    cursor = BlockCursor(10 * BLOCK, limits(ahead=2), ANNOUNCING)
    assert not cursor.read(0, ANNOUNCING - 1)
    assert cursor.read(BLOCK, ANNOUNCING)
    assert cursor.read(BLOCK + ANNOUNCING, 1)


def test_a_read_two_blocks_behind_is_of_the_same_run_and_one_further_behind_is_not() -> None:
    for behind, goes_on in ((2, True), (3, False)):
        cursor = BlockCursor(20 * BLOCK, limits(ahead=2), ANNOUNCING)
        for at in range(6):
            cursor.read(at * BLOCK, ANNOUNCING)
        assert bool(cursor.read((5 - behind) * BLOCK, ANNOUNCING)) is goes_on
        assert cursor.front == (5 if goes_on else 2)


def test_a_jump_past_what_is_under_way_fetches_no_block() -> None:
    for on, goes_on in ((2, True), (3, False)):
        cursor = BlockCursor(20 * BLOCK, limits(ahead=2), ANNOUNCING)
        cursor.read(0, ANNOUNCING)
        assert bool(cursor.read(on * BLOCK, ANNOUNCING)) is goes_on
