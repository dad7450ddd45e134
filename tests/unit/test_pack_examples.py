"""Examples and records written here are those that TensorFlow wrote, and are read back as they were."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import BadSampleError
from headrace.formats.tfrecord.example import example as read_example
from headrace.formats.tfrecord.tfrecord import TFRECORD
from headrace.pack.examples import RecordWriter, example
from tests.shard_formats_kit import values

COMPAT = Path(__file__).parents[1] / "compat" / "shards"


def written(records: list[bytes]) -> bytes:
    file = io.BytesIO()
    writer = RecordWriter(file)
    for one in records:
        writer.add(one)
    writer.finish()
    assert writer.size == len(file.getvalue())
    return file.getvalue()


def test_records_and_examples_have_the_very_bytes_that_tensorflow_gave_them() -> None:
    raw = (COMPAT / "raw.tfrecord").read_bytes()
    assert written([bytes(one) for one in values(TFRECORD, raw)]) == raw
    made = (COMPAT / "examples.tfrecord").read_bytes()
    records = [bytes(one) for one in values(TFRECORD, made)]
    again = [example({k: v for k, v in read_example(one).items() if k != "unset"}) for one in records]
    assert len(records) == 5
    for place, (ours, theirs) in enumerate(zip(again, records, strict=True)):
        if place != 2:  # the third has a feature without a kind, and lists without values, whose kind is not told
            assert ours == theirs


fields = st.dictionaries(
    st.text(max_size=6),
    st.one_of(
        st.binary(max_size=300),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.floats(width=32, allow_nan=False),
        st.lists(st.integers(-(1 << 63), (1 << 63) - 1), min_size=1, max_size=40).map(lambda v: np.array(v, np.int64)),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40).map(lambda v: np.array(v, np.float32)),
    ),
    max_size=5,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(fields, max_size=4))
def test_what_is_written_is_read_back(samples: list[dict[str, Any]]) -> None:
    data = written([example(one) for one in samples])
    found = [read_example(one) for one in values(TFRECORD, data)] if data else []
    assert len(found) == len(samples)
    for ours, theirs in zip(samples, found, strict=True):
        assert list(theirs) == sorted(ours, key=str.encode)
        for name, value in ours.items():
            expected = [value] if isinstance(value, bytes) else np.atleast_1d(value).tolist()
            got = theirs[name]
            assert (got if isinstance(got, list) else got.tolist()) == expected


@pytest.mark.parametrize(
    "wrong",
    [1 << 63, -(1 << 63) - 1, np.array([1 << 63], np.uint64), 1e39, np.array([1e300]), object(), [1, "a"], 1j,
     np.array([b"a"])],
)  # fmt: skip
def test_what_no_example_holds_is_a_bad_sample(wrong: object) -> None:
    with pytest.raises(BadSampleError):
        example({"x": wrong})
