"""What a store gives, as measured: never more than its answers allow."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.loader.order.store_rates import settled_rate

LATENCY_S = 0.3
waits = st.just(LATENCY_S) | st.floats(LATENCY_S, 2 * LATENCY_S)
answers = st.lists(waits, min_size=1, max_size=12)
in_rounds = st.builds(lambda waits, at_once: [waits] * at_once, answers, st.integers(1, 20))


@given(in_rounds | st.lists(answers, min_size=1, max_size=20))
def test_late_answers_never_make_a_store_look_quicker(places: list[list[float]]) -> None:
    """Each place under way asks again as soon as it is answered, and no answer comes within the latency."""
    ends = sorted((10.0 + at, 1000) for place in places for at in itertools.accumulate(place))
    rate = settled_rate(10.0, ends, len(places))
    assert rate.requests_per_s <= len(places) / LATENCY_S * 1.000001
    assert rate.bytes_per_s == pytest.approx(rate.requests_per_s * 1000)


@given(st.integers(1, 20), st.integers(1, 40))
def test_answers_at_an_even_pace_are_that_pace(at_once: int, rounds: int) -> None:
    ends = [(0.01 * number, 1000) for number in range(1, at_once * rounds + 1)]
    assert settled_rate(0.0, ends, at_once).requests_per_s == pytest.approx(100)
