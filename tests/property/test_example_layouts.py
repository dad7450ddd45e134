"""Examples whose layout is known are read like those whose layout is not, whatever their bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import CorruptError
from headrace.formats.columns.buffer_slices import Pieces
from headrace.formats.tfrecord import example as module
from headrace.formats.tfrecord.example import example, examples
from headrace.pack.examples import example as written

values = st.one_of(
    st.binary(max_size=20),
    st.lists(st.binary(max_size=5), max_size=3),
    st.integers(-3, 400),
    st.lists(st.integers(0, 127), min_size=1, max_size=6).map(lambda given: np.array(given, np.int64)),
    st.lists(st.floats(width=32), min_size=1, max_size=6).map(lambda given: np.array(given, np.float32)),
)
features = st.dictionaries(st.text("abé", min_size=1, max_size=3), values, max_size=4)


def plain(found: dict[str, Any]) -> dict[str, Any]:
    arrays = {name: one for name, one in found.items() if isinstance(one, np.ndarray)}
    return {**found, **{name: (str(one.dtype), one.tobytes()) for name, one in arrays.items()}}


def outcome(data: bytes) -> Any:
    try:
        return plain(example(data))
    except CorruptError as error:
        return error.reason


def unlearned(data: bytes) -> Any:
    module._layouts.clear()
    return outcome(data)


@given(features, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=20))
def test_a_known_layout_changes_nothing(given: dict[str, Any], changes: list[tuple[int, int]]) -> None:
    good = written(given)
    spoilt = []
    for place, byte in changes if good else ():
        data = bytearray(good)
        data[place % len(good)] = byte
        spoilt.append(bytes(data))
    expected = [unlearned(one) for one in spoilt]
    first = unlearned(good)
    assert [outcome(good) for _ in range(3)] == [first] * 3
    assert [outcome(one) for one in spoilt] == expected
    assert outcome(good) == first


def in_one_buffer(rows: list[bytes]) -> Pieces:
    """With something before, between and behind them."""
    lengths = np.array([len(row) for row in rows], np.int64)
    stop = np.cumsum(lengths + 3)
    return Pieces(memoryview(b"".join(b"\xff\x0a\x01" + row for row in rows) + b"\x08"), stop - lengths, stop)


@given(features, st.lists(st.binary(min_size=4, max_size=4), min_size=1, max_size=9), st.booleans(), st.booleans())
def test_several_at_once_are_as_one_by_one(
    given: dict[str, Any], texts: list[bytes], known: bool, together: bool
) -> None:
    rows = [written({**given, "text": text, "n": text[0] % 128}) for text in texts]
    module._layouts.clear()
    if known:
        for _ in range(2):
            example(rows[0])
    found = examples(in_one_buffer(rows) if together else [memoryview(row) for row in rows])
    assert found is not None
    one_by_one = [plain(example(row)) for row in rows]
    assert [plain(dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True)] == one_by_one


def test_names_that_differ_are_no_columns() -> None:
    assert examples([written({"a": 1}), written({"b": 1})]) is None
    step = hr.decode.example(single=["a"])
    assert step.columns({"__key__": ["x", "y"], "data": [written({"a": 1}), written({"b": 1})]}) is None


def test_columns_are_the_samples() -> None:
    step = hr.decode.example(single=["a"])
    rows = [written({"a": at, "b": np.arange(at % 3, dtype=np.float32)}) for at in range(40)]
    found = step.columns({"__key__": [str(at) for at in range(40)], "data": rows, "__shard__": ["s"] * 40})
    assert found is not None
    samples = [step({"__key__": str(at), "data": row, "__shard__": "s"}) for at, row in enumerate(rows)]
    assert list(found) == list(samples[0])
    for at, sample in enumerate(samples):
        assert {name: np.asarray(column[at]).tolist() for name, column in found.items()} == {
            name: np.asarray(value).tolist() for name, value in sample.items()
        }
    with pytest.raises(CorruptError):
        step.columns({"__key__": ["x"], "data": [b"\xff" * 9]})


def test_an_empty_list_has_a_layout_too() -> None:
    empty = bytes.fromhex("0a0b0a090a017812041a020a00")  # {"x": an int64 list without values}
    alone = plain(example(empty))
    module._layouts.clear()
    for _ in range(2):
        example(empty)
    found = examples([memoryview(empty)] * 3)
    assert found is not None
    assert [plain(dict(zip(found, row, strict=True))) for row in zip(*found.values(), strict=True)] == [alone] * 3


@given(features, st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=5))
def test_one_that_is_odd_among_those_in_one_buffer(given: dict[str, Any], changes: list[tuple[int, int]]) -> None:
    good = written({**given, "n": 3})
    odd = bytearray(good)
    for place, byte in changes:
        odd[place % len(good)] = byte
    rows = [good, good, bytes(odd), good]
    module._layouts.clear()
    for _ in range(2):
        example(good)

    def found() -> Any:
        columns = examples(in_one_buffer(rows))
        return columns and [plain(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]

    expected = outcome_of(lambda: [plain(example(row)) for row in rows])
    alike = isinstance(expected, str) or len({tuple(one) for one in expected}) == 1
    assert outcome_of(found) == (expected if alike else None)


def outcome_of(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except CorruptError as error:
        return error.reason
