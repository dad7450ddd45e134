"""tf.train.Example without TensorFlow: values as TensorFlow wrote them, and protobuf's rules for odd messages."""

import struct
from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import CorruptError
from headrace.formats.tfrecord.example import example, varints
from headrace.formats.tfrecord.tfrecord import TFRECORD
from tests.shard_formats_kit import values

FIXTURES = Path(__file__).parents[1] / "compat/shards"


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 1 << 14
    length = [len(data)] if len(data) < 128 else [len(data) & 127 | 128, len(data) >> 7]
    return bytes([number << 3 | 2, *length]) + data


def feature(name: str, *values: bytes) -> bytes:
    """An Example of one feature, whose Feature message occurs once for each of `values`."""
    return field(1, field(1, field(1, name.encode()) + b"".join(field(2, value) for value in values)))


def only(data: bytes) -> object:
    (value,) = example(data).values()
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_what_tensorflow_wrote_is_read() -> None:
    found = [example(one) for one in values(TFRECORD, (FIXTURES / "examples.tfrecord").read_bytes())]
    plain = [{k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in one.items()} for one in found]
    assert plain == [
        {"label": [7], "image": [bytes(range(256))], "weight": [0.5]},
        {
            "label": [-1, 0, 1, 127, 128, -(2**63), 2**63 - 1, 300],
            "image": [b"", b"two"],
            "weight": [-1.5, float("inf"), 3.25],
        },
        {"label": [], "image": [], "weight": [], "unset": []},
        {"größe": list(range(-50, 50)), "名前": ["headrace ✓".encode()], "ramp": [i / 4 for i in range(1000)]},
        {},
    ]
    for one in found[:3]:
        assert isinstance(one["label"], np.ndarray)
        assert isinstance(one["weight"], np.ndarray)
        assert (one["label"].dtype, one["weight"].dtype) == (np.int64, np.float32)


def test_arrays_may_be_written_to_and_outlive_the_record() -> None:
    record = bytearray(feature("x", field(2, field(1, struct.pack("<2f", 1, 2)))))
    value = example(record)["x"]
    assert isinstance(value, np.ndarray)
    record[:] = bytes(len(record))
    value += 1
    assert value.tolist() == [2, 3]


def test_lists_written_value_by_value_are_read_like_packed_ones() -> None:
    floats = b"".join(b"\x0d" + struct.pack("<f", f) for f in (1, 2))
    assert only(feature("x", field(2, floats + field(1, struct.pack("<f", 3)) + floats))) == [1, 2, 3, 1, 2]
    numbers = b"\x08\x05" + b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert only(feature("x", field(3, numbers + field(1, b"\x07") + numbers))) == [5, -1, 7, 5, -1]


def test_a_repeated_feature_is_joined_and_another_kind_replaces_it() -> None:
    one, two = field(3, field(1, b"\x01")), field(3, field(1, b"\x02"))
    assert only(feature("x", one, two)) == [1, 2]
    assert only(feature("x", one + two)) == [1, 2]
    assert only(feature("x", one, field(1, field(1, b"text")))) == [b"text"]


def test_of_a_name_that_occurs_twice_the_last_one_counts() -> None:
    both = feature("x", field(3, field(1, b"\x01"))) + feature("x", field(1, field(1, b"late")))
    assert example(both) == {"x": [b"late"]}


def test_what_is_left_out_of_a_message_is_empty() -> None:
    assert example(b"") == example(field(1, b"")) == {}
    assert example(field(1, field(1, b""))) == example(field(1, field(1, field(2, b"")))) == {"": []}


def test_unknown_fields_are_skipped() -> None:
    odd = b"\x78\x96\x01" + field(9, b"?") + b"\x7d" + bytes(4) + b"\x79" + bytes(8) + b"\xfa\x7f\x01?"
    inner = field(1, odd + field(1, odd + field(1, b"x") + odd + field(2, odd + field(1, odd + field(1, b"ok")))))
    assert example(odd + inner + odd) == {"x": [b"ok"]}


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x00\x01",
        b"\x0b\x0c",
        b"\x08",
        b"\x0d\x00",
        feature("x", field(2, field(1, b"\0\0\0"))),
        feature("x", field(2, b"\x0d\0")),
        feature("x", field(3, field(1, b"\x80"))),
        feature("x", field(3, field(1, b"\x80" * 10 + b"\x01"))),
        feature("x", field(3, field(1, b"\x80" * 40))),
        feature("x", field(3, field(1, b"\x01" * 30 + b"\x80" * 10 + b"\x01" + b"\x01" * 9))),
        feature("x", field(1, field(1, b"?"))).replace(b"x", b"\xff"),
    ],
)
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptError):
        example(data)


def test_few_and_many_varints_are_read_alike() -> None:
    few = b"\x01\xff\x7f" + b"\xff" * 9 + b"\x01"
    assert varints(memoryview(few)).tolist() * 9 == varints(memoryview(few * 9)).tolist() == [1, 16383, -1] * 9
