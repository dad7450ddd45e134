"""Rows that are put into their batch ahead of time: what is taken for a batch is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from headrace.dataset.seats import Seats, seated

LARGE = 70_000


def rows(first: int, count: int) -> npt.NDArray[Any]:
    return np.repeat(np.arange(first, first + count, dtype=np.uint8)[:, None], LARGE, axis=1)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=6), st.integers(1, 5), st.randoms(use_true_random=False))
def test_a_batch_is_all_of_its_seats_in_order(counts: list[int], size: int, chance: Any) -> None:
    seats = Seats(size)
    firsts = np.cumsum([0, *counts])[:-1].tolist()
    order = list(range(len(counts)))
    chance.shuffle(order)
    taken = {at: seats.take("x", rows(firsts[at], counts[at]), firsts[at]) for at in order}
    for low in range(len(counts)):
        for high in range(low + 1, len(counts) + 1):
            batch = seated([taken[at] for at in range(low, high)])
            begin, end = firsts[low], firsts[high - 1] + counts[high - 1]
            some = zip(firsts[low:high], counts[low:high], strict=True)
            fits = all(first % size + count <= size for first, count in some)
            assert (batch is not None) == (fits and begin % size == 0 and end - begin == size)
            if batch is not None:
                assert (batch == rows(begin, size)).all()


def test_rows_that_are_unlike_the_others_get_no_seat() -> None:
    seats = Seats(3)
    assert seats.take("x", rows(0, 1), 0) is not None
    assert seats.take("x", rows(1, 1)[:, 1:], 1) is None
    assert seats.take("x", rows(1, 1).view(np.int8), 1) is None
    assert seats.take("x", rows(1, 1)[:, :9], 1) is None
    assert seats.take("y", rows(1, 1).view(np.int8), 1) is not None


def test_seats_in_another_order_are_no_batch() -> None:
    seats = Seats(2)
    first, second = seats.take("x", rows(0, 1), 0), seats.take("x", rows(1, 1), 1)
    assert seated([second, first]) is None
    assert seated([first, second]) is not None
