"""Shard formats against independent writers, and against damage: CorruptError or a view of what is there, never
another error, never memory that the shard does not have."""

import csv
import io
import json
import struct
import tracemalloc
from typing import Any

import numpy as np
import numpy.lib.format
from hypothesis import example as given_example
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.numpy_files.npy import NPY
from headrace.formats.text.csv_records import CSV
from headrace.formats.text.jsonl import JSONL
from headrace.formats.tfrecord.example import example
from headrace.formats.tfrecord.tfrecord import TFRECORD
from tests.shard_formats_kit import Shard, ranges, record, values

FORMATS = {one.name: one for one in (TFRECORD, CSV, JSONL, NPY)}
INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8) | st.text(',"\r\n x', max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    head = bytearray()
    while value > 127:
        head.append(value & 127 | 128)
        value >>= 7
    return bytes([*head, value])


def field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


@st.composite
def features(draw: st.DrawFn) -> tuple[Any, bytes]:
    """A list of one kind, and the Feature message of it: packed, value by value, or some of each."""
    kind = draw(st.sampled_from(["bytes", "float", "int64"]))
    if kind == "bytes":
        texts = draw(st.lists(st.binary(max_size=200), max_size=4))
        return texts, field(1, b"".join(field(1, text) for text in texts))
    if kind == "float":
        numbers = draw(st.lists(st.floats(width=32, allow_nan=False), max_size=40))
        alone, whole = [b"\x0d" + struct.pack("<f", n) for n in numbers], [struct.pack("<f", n) for n in numbers]
    else:
        numbers = draw(st.lists(INT64, max_size=40))
        alone, whole = [b"\x08" + varint(n) for n in numbers], [varint(n) for n in numbers]
    first, last = sorted(draw(st.tuples(st.integers(0, 40), st.integers(0, 40))))
    packed = [field(1, b"".join(whole[first:last]))] if first < last else []
    return numbers, field(2 if kind == "float" else 3, b"".join([*alone[:first], *packed, *alone[last:]]))


def message(named: dict[str, tuple[Any, bytes]]) -> bytes:
    return field(1, b"".join(field(1, field(1, n.encode()) + field(2, m)) for n, (_, m) in named.items()))


EXAMPLES = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), features(), max_size=5)


@settings(deadline=None, max_examples=300)
@given(EXAMPLES)
def test_examples(named: dict[str, tuple[Any, bytes]]) -> None:
    found = example(message(named))
    assert {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in found.items()} == {
        name: value for name, (value, _) in named.items()
    }


def outcome(entry: bytes) -> str:
    """What comes of an Example whose features are this one entry, and something behind it."""
    try:
        return repr(example(field(1, field(1, entry)) + field(9, b"behind")))
    except CorruptError:
        return "refused"


@settings(deadline=None, max_examples=600)
@given(st.just("x") | st.text(max_size=3), features(), st.data())
def test_an_entry_means_the_same_behind_an_unknown_field(
    name: str, one: tuple[Any, bytes], data: st.DataObject
) -> None:
    """There is a fast way for entries that look as usual; this field makes them look unusual."""
    entry = damage(field(1, name.encode("utf-8", "replace")) + field(2, one[1]), data)
    assert outcome(entry) == outcome(field(9, b"?") + entry)


@given(st.binary(max_size=24))
@given_example(b"")
@given_example(b"\x0a\x01x\x12\x05\x0d\xff\xff\xff\xff")
@settings(deadline=None, max_examples=600)
def test_any_entry_means_the_same_behind_an_unknown_field(entry: bytes) -> None:
    assert outcome(entry) == outcome(field(9, b"?") + entry)


@settings(deadline=None, max_examples=400)
@given(EXAMPLES, st.data())
def test_damaged_examples(named: dict[str, tuple[Any, bytes]], data: st.DataObject) -> None:
    try:
        example(damage(message(named), data))
    except CorruptError:
        pass


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=100))
@given_example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
def test_bytes_taken_for_an_example(data: bytes) -> None:
    try:
        example(data)
    except CorruptError:
        pass


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=300), max_size=8))
def test_tfrecords(payloads: list[bytes]) -> None:
    assert values(TFRECORD, b"".join(record(payload) for payload in payloads)) == payloads


@settings(deadline=None, max_examples=300)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.data())
def test_damage_to_tfrecords_is_always_noticed(payloads: list[bytes], data: st.DataObject) -> None:
    """Unless the shard ends where a record does, which nothing in the format tells."""
    whole = b"".join(record(payload) for payload in payloads)
    hurt = damage(whole, data)
    try:
        found = values(TFRECORD, hurt)
    except CorruptError:
        assert hurt != whole
    else:
        assert whole.startswith(hurt)
        assert found == payloads[: len(found)]


@settings(deadline=None, max_examples=300)
@given(st.lists(JSON, max_size=10), st.sampled_from(["\n", "\r\n", "\n\n"]), st.booleans())
def test_json_lines(rows: list[Any], end: str, last: bool) -> None:
    text = end.join(json.dumps(row, ensure_ascii=False) for row in rows) + (end if last else "")
    found = [JSONL.decode(one) for one in ranges(JSONL, text.encode("utf-8", "replace"))]
    assert found == [json.loads(x) for x in text.split("\n") if x.strip()]


@settings(deadline=None, max_examples=400)
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(TEXT, min_size=n, max_size=n), max_size=10).map(tuple)),
    # Under LF, the module writes carriage returns without quotes before Python 3.13.
    st.sampled_from([("\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_ALL), ("\r\n", csv.QUOTE_MINIMAL)]),
)
def test_csv(rows: tuple[list[str], ...], dialect: tuple[str, Any]) -> None:
    end, quoting = dialect
    header = [f"c{n}" for n in range(len(rows[0]) if rows else 1)]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end, quoting=quoting).writerows([header, *rows])
    assert [list(row.values()) for row in values(CSV, text.getvalue().encode())] == list(rows)


@settings(deadline=None, max_examples=300)
@given(st.text(',"\r\nab ', max_size=40))
def test_csv_gives_what_the_csv_module_gives_or_refuses(text: str) -> None:
    """Every character is accounted for: a record read is one that csv's strict reader sees, none is left out."""
    data = ("x\n" + text).encode()
    try:
        found = [CSV.decode(memoryview(data)[m.start : m.stop]) for m in CSV.scan(Shard(data))]
    except CorruptError:
        return
    assert found == [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]


@settings(deadline=None, max_examples=200)
@given(
    st.sampled_from(["u1", "<i4", ">f8", "U3", "M8[s]", [("a", "i2"), ("b", "f4", (2,))]]),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
def test_npy(kind: Any, shape: list[int], version: tuple[int, int]) -> None:
    dtype = np.dtype(kind)
    array = np.frombuffer(bytes(dtype.itemsize * int(np.prod(shape))), dtype).reshape(shape)
    rows = values(NPY, npy(array, version))
    assert [(row.dtype, row.tobytes()) for row in rows] == [
        (dtype, array[n : n + 1].tobytes()) for n in range(len(array))
    ]


def npy(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    numpy.lib.format.write_array(file, array, version=version)
    return file.getvalue()


WHOLE = {
    "tfrecord": b"".join(record(bytes(n)) for n in (0, 5, 40)),
    "csv": b'a,b\r\n"1,\n""",2\n\n3,"4"\n5,6',
    "jsonl": '{"a": [1, "é"]}\n\n[]\r\n"x"'.encode(),
    "npy": npy(np.arange(12, dtype="<f4").reshape(4, 3)),
}


@settings(deadline=None, max_examples=500)
@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_damaged_shards(name: str, data: st.DataObject) -> None:
    hurt = damage(WHOLE[name], data)
    refusals = (CorruptError, UnsupportedError) if name == "npy" else CorruptError
    tracemalloc.start()
    try:
        FORMATS[name].recognise(memoryview(hurt)[:4096])
        values(FORMATS[name], hurt)
    except refusals:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 << 20


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(sorted(WHOLE)), st.binary(max_size=64))
def test_bytes_taken_for_a_shard(name: str, data: bytes) -> None:
    try:
        FORMATS[name].recognise(memoryview(data))
        values(FORMATS[name], data)
    except CorruptError:
        pass


def damage(whole: bytes, data: st.DataObject) -> bytes:
    """Cut off somewhere, and up to three bytes changed."""
    hurt = bytearray(whole[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)), "cut")])
    if hurt:
        for at, byte in data.draw(
            st.lists(st.tuples(st.integers(0, len(hurt) - 1), st.integers(0, 255)), max_size=3), "changes"
        ):
            hurt[at] = byte
    return bytes(hurt)
