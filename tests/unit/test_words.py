"""What is written on a page is what is there, and hides nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.words import number, plain, span

TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@given(st.text(st.characters(exclude_categories=[])))
def test_nothing_that_hides_or_turns_what_follows_is_left(text: str) -> None:
    shown = plain(text)
    assert not set(shown) & {*TURNS, "\x00", "\x1b", "\r", "\x7f", "\u0085"}
    shown.encode()  # no lone surrogates


@pytest.mark.parametrize("text", ["plain", "Ünïcode ✓ 日本語", "a\tb", "👩\u200d🚀"])
def test_what_people_write_stays(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (float("nan"), "NaN"),
        (float("-inf"), "−∞"),
        (1234.0, "1,234"),
        (1.2346e-4, "0.0001235"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(("seconds", "shown"), [(0.5, "500 ms"), (75, "1m 15s"), (7260, "2h 1m"), (200_000, "2d 7h")])
def test_spans(seconds: float, shown: str) -> None:
    assert span(seconds) == shown
