"""Columns made of buffers are the ones that pyarrow makes of values, and are seen as it sees them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.arrow import from_flags, from_numbers, from_texts, null, scalar, to_flags, to_numbers

TEXT = st.text(max_size=6)
KINDS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


@settings(deadline=None)  # the first pa.array imports pandas
@given(st.lists(TEXT | st.none(), max_size=40), st.integers(0, 40))
def test_texts(values: list[str | None], cut: int) -> None:
    column = from_texts(values)
    column.validate(full=True)
    expected = pa.array(values, pa.large_string())
    assert column.equals(expected)
    assert column.null_count == expected.null_count
    assert column[cut:].equals(expected[cut:])


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_flags(values: list[bool], start: int, stop: int) -> None:
    column = from_flags(np.array(values, bool))
    column.validate(full=True)
    assert column.to_pylist() == values
    assert to_flags(column[start:stop]).tolist() == values[start:stop]


@given(st.sampled_from(KINDS), st.lists(st.integers(0, 100), max_size=40), st.integers(0, 40), st.integers(1, 3))
def test_numbers(kind: str, values: list[int], start: int, step: int) -> None:
    array = np.array(values, kind)[::step]
    column = from_numbers(array)
    column.validate(full=True)
    assert column.equals(pa.array(array))
    seen = to_numbers(column[start:])
    assert (seen.dtype, seen.tolist()) == (array.dtype, array[start:].tolist())


@given(TEXT)
def test_one_value(text: str) -> None:
    assert scalar(text).equals(pa.scalar(text, pa.large_string()))
    assert null(pa.int64()).equals(pa.scalar(None, pa.int64()))


def test_what_is_no_text() -> None:
    with pytest.raises(UnicodeEncodeError):
        from_texts(["fine", "\udcff"])
