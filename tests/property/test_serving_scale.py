"""How many replicas a service on a cluster wants: at once more, later fewer, never outside of what was asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import InputError
from headrace.cluster.serving.figures import figures_of, requests_a_second, under_way
from headrace.cluster.serving.scaling import Scale, wanted
from headrace.cluster.serving.told import Figures

NOW = 1000.0
_LOOKS = st.lists(st.tuples(st.floats(0, NOW), st.floats(0, 1e6)), max_size=30)
_SCALES = st.builds(
    lambda least, more, target, after: Scale(least, least + more, target, after),
    st.integers(1, 9), st.integers(0, 9), st.floats(0.1, 100), st.floats(0, 120),
)  # fmt: skip


@given(_SCALES, _LOOKS, st.floats(0, 1e6))
def test_more_at_once_and_fewer_only_after_a_while(scale: Scale, looks: list[tuple[float, float]], load: float) -> None:
    before = wanted(scale, looks, NOW)
    after = wanted(scale, [*looks, (NOW, load)], NOW)
    assert scale.least <= before <= after <= scale.most, "a further look never asks for fewer"
    needed = min(scale.most, math.ceil(load / scale.target))
    assert after >= needed, "what is there now is served now"
    later = wanted(scale, [*looks, (NOW, load)], NOW + 0.9 * scale.down_after)
    assert needed <= later <= after, "and no fewer before the time is over"
    recent = [under for at, under in [*looks, (NOW, load)] if at >= NOW - scale.down_after]
    assert after == scale.least or any(math.ceil(one / scale.target) >= after for one in recent), "some look asked"
    assert wanted(scale, [*looks, (NOW, load)], NOW + 1.01 * scale.down_after + 1) == scale.least


def test_a_range_is_read_as_it_is_written() -> None:
    assert (Scale.parse("2..8").least, Scale.parse("2..8").most, str(Scale.parse("2..8"))) == (2, 8, "2..8")
    assert (Scale.parse("3").least, Scale.parse("3").most, str(Scale.parse("3"))) == (3, 3, "3")
    for wrong in ("0", "8..2", "2..", "many", "-1", "1.5"):
        with pytest.raises(InputError):
            Scale.parse(wrong)


def test_quick_requests_are_counted_between_looks() -> None:
    text = "\n".join(
        f'{name}{{model="{model}"}} {value}'
        for model in ("a", "b")
        for name, value in (
            ("nv_inference_pending_request_count", 1),
            ("nv_inference_request_success", 100),
            ("nv_inference_request_failure", 10),
            ("nv_inference_request_duration_us", 2e6),
        )
    )
    now = figures_of("# TYPE nv_inference_request_success counter\n" + text, 12.0)
    assert now == Figures(12.0, 2.0, 200.0, 20.0, 4.0)
    before = Figures(11.0, 0.0, 100.0, 10.0, 1.0)
    assert under_way(before, now) == 3.0
    assert requests_a_second(before, now) == 110.0
    assert under_way(now, Figures(13.0, 1.0, 0.0, 0.0, 0.0)) == 1.0, "a version that was swapped counts from nothing"
    assert requests_a_second(now, Figures(13.0)) == 0.0
