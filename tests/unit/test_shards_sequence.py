"""`tf.train.SequenceExample`: what TensorFlow wrote comes out, without TensorFlow."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import BadSampleError, CorruptError
from headrace.formats.tfrecord.sequence_example import sequence

WRITTEN = Path(__file__).parents[1] / "compat" / "shards" / "sequences.tfrecord"


def samples(**how: Any) -> list[dict[str, Any]]:
    return list(hr.Dataset.open(WRITTEN).map(hr.decode.sequence_example(**how)))


def test_what_tensorflow_wrote() -> None:
    found = samples()
    assert len(found) == 5
    for n, one in enumerate(found[:4]):
        assert one["__key__"] == f"clip/{n}"
        assert (one["id"].tolist(), one["name"]) == ([n], ["größe".encode()])
        assert one["frame"] == [[bytes([n, s])] for s in range(n)]
        assert one["pair"] == [[b"a", b"b"]] * n
        if n:
            assert (one["feature"].dtype, one["feature"].tolist()) == ("f4", [[s, n, 0.5] for s in range(n)])
            assert (one["label"].dtype, one["label"].tolist()) == ("i8", [[1000 * s] for s in range(n)])
        assert [np.asarray(step, "i8").tolist() for step in one["ragged"]] == [list(range(s)) for s in range(n)]
    assert found[4].keys() == {"__key__", "__shard__"}
    assert found[4]["__key__"] == "00000004"


def test_single_values() -> None:
    dataset = hr.Dataset.open(WRITTEN)[:4].map(hr.decode.sequence_example(single=["id", "name", "frame", "label"]))
    found = list(dataset)
    assert [one["id"] for one in found] == [0, 1, 2, 3]
    assert found[3]["name"] == "größe".encode()
    assert found[3]["frame"] == [bytes([3, s]) for s in range(3)]
    assert found[3]["label"].tolist() == [0, 1000, 2000]
    with pytest.raises(BadSampleError, match="'pair' holds 2 values"):
        samples(single=["pair"])
    with pytest.raises(BadSampleError, match="no feature 'nothing'"):
        samples(single=["nothing"])


def test_keys_are_looked_up() -> None:
    dataset = hr.Dataset.open(WRITTEN).map(hr.decode.sequence_example())
    assert dataset["clip/2"]["id"].tolist() == [2]
    assert dataset["00000004"]["__shard__"] == "sequences.tfrecord"
    assert "clip/4" not in dataset


def message() -> bytes:
    return bytes(hr.Dataset.open(WRITTEN)[3]["data"])


def test_a_name_that_is_both_is_refused() -> None:
    context = b"\x0a\x07\x0a\x05\x0a\x01a\x12\x00"  # a feature `a` of the context, and a list `a`
    lists = b"\x12\x07\x0a\x05\x0a\x01a\x12\x00"
    assert sequence(context).context.keys() == {"a"}
    with pytest.raises(CorruptError, match="'a' is a feature of the context, and"):
        hr.decode.sequence_example()({"__key__": "k", "data": context + lists})


@given(st.integers(0, 700), st.integers(0, 255), st.integers(0, 20))
def test_damage_ends_in_an_error_or_a_message(place: int, value: int, cut: int) -> None:
    data = bytearray(message())
    data[place % len(data)] = value
    with contextlib.suppress(CorruptError):
        sequence(bytes(data[: len(data) - cut]))
