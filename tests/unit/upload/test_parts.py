"""The arithmetic of parts, and the bound on bytes a second."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import InputError
from headrace.upload.bandwidth import Bandwidth
from headrace.upload.plan import plan

MIB = 1 << 20
SMALLEST, MOST, LARGEST = 5 * MIB, 10_000, 5 << 30
sizes = st.one_of(
    st.integers(0, 3 * SMALLEST), st.integers(0, 5 << 40), st.integers(1, 400).map(lambda n: n * 16 * MIB)
)


@settings(max_examples=60, deadline=None)
@given(size=sizes, share=st.floats(0, 1), part=st.integers(1, 64 * MIB))
def test_parts_follow_each_other_within_the_limits_of_s3(size: int, share: float, part: int) -> None:
    base = int(size * share)
    base = base if base >= SMALLEST else 0
    pieces = plan(size, base, part=part, smallest=SMALLEST, most=MOST)
    assert [piece.number for piece in pieces] == list(range(1, len(pieces) + 1))
    assert len(pieces) <= MOST
    assert pieces[0].at == 0
    assert all(one.at + one.size == two.at for one, two in itertools.pairwise(pieces))
    assert pieces[-1].at + pieces[-1].size == size
    assert all(piece.size >= SMALLEST for piece in pieces[:-1])
    assert all(piece.size <= LARGEST for piece in pieces)
    assert sum(piece.size for piece in pieces if piece.copied) == base


def test_a_base_too_small_to_copy_is_refused() -> None:
    with pytest.raises(InputError):
        plan(10 * MIB, MIB, part=16 * MIB, smallest=SMALLEST, most=MOST)


def test_parts_are_as_wanted_where_they_can() -> None:
    pieces = plan(100 * MIB, 0, part=16 * MIB, smallest=SMALLEST, most=MOST)
    assert [piece.size for piece in pieces] == [16 * MIB] * 6 + [4 * MIB]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=50), st.floats(1e3, 1e8))
def test_bandwidth_holds_on_average(asked: list[int], rate: float) -> None:
    clock = Clock()
    bound = Bandwidth(rate, clock=clock, sleep=clock.sleep)
    began = clock.now
    for size in asked:
        bound.take(size, lambda: False)
    took = clock.now - began
    assert took >= sum(asked[:-1]) / rate - 0.26  # what the last one takes is kept for the next
    assert took <= sum(asked) / rate + 0.01


def test_who_is_stopped_does_not_wait() -> None:
    clock = Clock()
    bound = Bandwidth(10.0, clock=clock, sleep=clock.sleep)
    bound.take(1_000_000, lambda: False)
    bound.take(1, lambda: clock.now > 100.5)
    assert clock.now < 101
    Bandwidth(None, clock=clock, sleep=clock.sleep).take(1 << 40, lambda: False)
    assert clock.now < 101


def test_what_is_urgent_passes_what_waits_and_the_average_holds() -> None:
    clock = Clock()
    bound = Bandwidth(10.0, clock=clock, sleep=clock.sleep)
    for _ in range(5):
        bound.take(10, lambda: True)  # five seconds of sending, asked for by threads that wait elsewhere
    bound.take(5, lambda: False, urgent=True)
    bound.take(5, lambda: False, urgent=True)
    assert clock.now - 100.0 <= 0.5, "it waited behind what is not urgent"
    bound.take(1, lambda: False)
    assert clock.now - 100.0 >= 5.5, "nobody made up for it"
