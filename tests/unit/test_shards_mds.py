"""Records of MDS shards: what mosaicml-streaming wrote comes out; nothing else does."""

import json
import pickle
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.streaming.mds import MDS
from tests.shard_formats_kit import Shard, ranges, values

COMPAT = Path(__file__).parents[1] / "compat" / "shards"
SHARDS = sorted((COMPAT / "mds").glob("*.mds"))


def described(names: Any, encodings: Any, sizes: Any, **more: Any) -> bytes:
    said = {"column_names": names, "column_encodings": encodings, "column_sizes": sizes, "format": "mds", "version": 2}
    return json.dumps(said | more).encode()


def shard(about: bytes, *records: bytes) -> bytes:
    """A shard written here."""
    at = np.cumsum([4 * (len(records) + 2) + len(about), *map(len, records)]).astype("<u4")
    return len(records).to_bytes(4, "little") + at.tobytes() + about + b"".join(records)


def one(encoding: str, data: bytes, size: int | None = None) -> Any:
    """The value of a shard of one record of one column."""
    record = data if size is not None else len(data).to_bytes(4, "little") + data
    return values(MDS, shard(described(["x"], [encoding], [size]), record))[0]["x"]


def pixels(n: int, channels: int) -> Any:
    numbers = [(n * 5 + i) % 256 for i in range(6 * channels)]
    return np.array(numbers, np.uint8).reshape((2, 3, channels) if channels > 1 else (2, 3))


def test_what_mosaicml_streaming_wrote() -> None:
    assert len(SHARDS) == 3
    found = [record for path in SHARDS for record in values(MDS, path.read_bytes())]
    assert len(found) == 9
    for n, sample in enumerate(found):
        images = {name: sample.pop(name) for name in ("pil", "jpeg", "png", "jpegs", "pngs", "pils")}
        arrays = {name: sample.pop(name) for name in ("any", "typed", "fixed")}
        assert sample == {
            "bytes": bytes(range(n)),
            "text": "größe " * n,
            "int": -n,
            "u8": n,
            "i16": -n,
            "u64": 2**64 - 1 - n,
            "f16": n / 2,
            "f32": n / 4,
            "f64": n / 3,
            "str_int": 10**20 + n,
            "str_float": n / 7,
            "str_decimal": Decimal(n) / 8,
            "json": {"n": n, "list": [n, None, "é"]},
        }
        assert (type(sample["int"]), type(sample["u8"]), type(sample["f16"])) == (int, np.uint8, np.float16)
        expected = [
            np.arange(n + 1, dtype=[np.int8, np.float64][n % 2]).reshape(1, -1),
            np.full((n + 1, 2), n, np.float32),
            np.full((2, 3), n, np.uint16),
        ]
        for array, other in zip(arrays.values(), expected, strict=True):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other)
        assert images["jpegs"] == [bytes([n]), bytes([n, n])]
        np.testing.assert_array_equal(images["pil"], pixels(n, 1))
        np.testing.assert_array_equal(images["pils"], [pixels(n, 4)])
        decoded = hr.decode.image("png", "jpeg")(images)
        np.testing.assert_array_equal(decoded["png"], pixels(n, 3))
        assert decoded["jpeg"].shape == (2, 3, 3)
        second = hr.decode.image("png")({"png": images["pngs"][1]})
        np.testing.assert_array_equal(second["png"], pixels(n + 1, 3))


def test_only_the_table_and_the_columns_are_read() -> None:
    about = described(["x"], ["bytes"], [None])
    data = Shard(shard(about, *[b"\xfc\x0f\0\0" + bytes(4092)] * 100))
    MDS.preamble(data)
    assert sum(1 for _ in MDS.scan(data)) == 100
    assert data.bytes_read < 1000


def test_a_shard_without_records_and_one_of_all_sizes_fixed() -> None:
    about = described(["a", "b"], ["uint8", "ndarray:int16:2"], [1, 4])
    assert list(MDS.scan(Shard(shard(about)))) == []
    (record,) = values(MDS, shard(about, b"\x07\x01\x00\xff\xff"))
    assert (record["a"], record["b"].tolist()) == (7, [1, -1])


def test_pickled_columns_are_never_unpickled() -> None:
    path = COMPAT / "refused" / "mds-pickled" / "shard.00000.mds"
    with pytest.raises(UnsupportedError, match="column 'x': pickled") as caught:
        MDS.preamble(Shard(path.read_bytes()))
    assert caught.value.path == Shard.path
    with pytest.raises(UnsupportedError, match="pickled"):
        MDS.decoder(json.dumps([["x", "pkl", None]]).encode())


@pytest.mark.parametrize("encoding", ["msgpack", "list[pkl]", "", "pkl:x"])
def test_encodings_that_are_not_known(encoding: str) -> None:
    with pytest.raises(UnsupportedError, match="not known"):
        one(encoding, b"x")


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "too deeply"),
        (b"[1]", "no JSON object"),
        (b"\xff", "not JSON"),
        (b"{}", "format 'None'"),
        (described([], [], []), "0 columns"),
        (described(None, [], []), "names no columns"),
        (described(["x"], ["int"], []), "0 sizes"),
        (described(["x", "x"], ["int", "int"], [8, 8]), "two columns"),
        (described(["x"], [1], [8]), "names that are none"),
        (described(["x"], ["int"], [4]), "cannot have the size 4"),
        (described(["x"], ["int"], [None]), "cannot have the size None"),
        (described(["x"], ["str"], [0]), "cannot have the size 0"),
        (described(["x"], ["uint8"], [True]), "cannot have the size True"),
        (described(["x"], ["ndarray:uint8:3"], [4]), "cannot have the size 4"),
        (described(["x"], ["ndarray:complex64"], [None]), "which is none"),
        (described(["x"], ["ndarray:uint8:0"], [0]), "which is none"),
        (described(["x"], ["ndarray:uint8:" + "9" * 5000], [1]), "which is none"),
        (described(["x"] * 2000, ["int"] * 2000, [8] * 2000), "2000 columns"),
        (b" " * (2 << 20), "1048576 are the most"),
    ],
)
def test_descriptions_that_are_none(about: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=rf"at byte 12: .*{reason}") as caught:
        MDS.preamble(Shard(shard(about, b"12345678")))
    assert caught.value.path == Shard.path


def test_another_version_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="version 3"):
        MDS.preamble(Shard(shard(described(["x"], ["int"], [8], version=3), bytes(8))))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:7], "at byte 0: no MDS shard"),
        (lambda data: data[:100], "at byte 0: no MDS shard"),
        (lambda data: data[:-1], r"at byte 12: record 1 would reach from byte \d+ to \d+"),
        (lambda data: data + b"x", "at byte 12: the last record ends at byte"),
        (lambda data: data[:8] + b"\xff\xff\xff\x7f" + data[12:], "at byte 8: record 0 would reach"),
        (lambda data: data[:8] + data[4:8] + data[12:], "at byte 8: record 0 would reach"),
        (lambda data: b"\xff\xff\xff\xff" + data[4:], "at byte 0: no MDS shard: 4294967295 records"),
        (lambda data: data[:4] + b"\0\0\0\0" + data[8:], "at byte 0: no MDS shard"),
    ],
)
def test_tables_that_are_none(change: Any, reason: str) -> None:
    data = shard(described(["x"], ["int"], [8]), bytes(8), bytes(8))
    with pytest.raises(CorruptError, match=reason) as caught:
        list(MDS.scan(Shard(change(data))))
    assert caught.value.path == Shard.path


@pytest.mark.parametrize(
    ("encoding", "data", "size", "reason"),
    [
        ("int", b"1234", 8, "ends at byte 8 of the record, which has 4"),
        ("int", b"123456789", 8, "end at byte 8 of the record, which has 9"),
        ("str", b"\xff", None, "column 'x': not UTF-8"),
        ("json", b"[" * 100_000, None, "too deeply"),
        ("str_int", b"1.5", None, "not a number"),
        ("str_int", b"9" * 5000, None, "not a number"),
        ("str_float", b"", None, "not a number"),
        ("str_decimal", b"x", None, "not a number"),
        ("ndarray", b"", None, "no known type"),
        ("ndarray", b"\x07\x04\x01x", None, "no known type"),
        ("ndarray", b"\x08", None, "no array of 0 axes"),
        ("ndarray", b"\x08\xfc", None, "63 axes"),
        ("ndarray", b"\x08\x04\x02x", None, r"no uint8 of shape \(2,\)"),
        ("ndarray:float64", b"\x07" + b"\xff" * 8, None, "no float64"),
        ("pil", b"123", None, "no image"),
        ("pil", b"\xff" * 12, None, "4294967295 bytes"),
        ("pil", b"\xff\xff\xff\xff" * 2 + b"\x03\0\0\0RGB", None, "of shape"),
        ("jpeg_array", b"\xff\xff\xff\xff", None, "too few for a list of 4294967295"),
        ("jpeg_array", b"\x01\0\0\0\x05\0\0\0abc", None, "kept in 11"),
        ("list[png]", b"\0\0\0", None, "too few"),
    ],
)
def test_records_that_are_none(encoding: str, data: bytes, size: int | None, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason):
        one(encoding, data, size)


def test_an_image_of_bits_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="mode '1'"):
        one("pil", b"\x08\0\0\0\x01\0\0\0\x01\0\0\x001\xff")


def test_lengths_of_columns_that_do_not_add_up() -> None:
    about = described(["a", "b"], ["bytes", "bytes"], [None, None])
    for record in (b"123", b"\x01\0\0\0\xff\xff\xff\xffab", b"\0\0\0\0\0\0\0\0a"):
        with pytest.raises(CorruptError, match="the record"):
            values(MDS, shard(about, record))


def test_decoders_travel_between_processes() -> None:
    data = SHARDS[0].read_bytes()
    decode = pickle.loads(pickle.dumps(MDS.decoder(MDS.preamble(Shard(data)))))
    assert [decode(record)["int"] for record in ranges(MDS, data)][:2] == [0, -1]


def read_all(data: bytes) -> None:
    """Everything of a shard, as long as it is one."""
    try:
        MDS.recognise(memoryview(data)[:4096])
        decode = MDS.decoder(MDS.preamble(Shard(data)))
        for member in MDS.scan(Shard(data)):
            decode(memoryview(data)[member.start : member.stop])
    except (CorruptError, UnsupportedError):
        pass


REAL = min((path.read_bytes() for path in SHARDS), key=len)


@given(st.lists(st.tuples(st.integers(0, len(REAL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_shard_is_corrupt_or_read_and_nothing_else(changes: list[tuple[int, int]]) -> None:
    data = bytearray(REAL)
    for at, value in changes:
        data[at] = value
    read_all(bytes(data))


@given(st.binary(max_size=200), st.sampled_from(["ndarray", "pil", "list[pil]", "jpegarray", "json", "str_decimal"]))
def test_any_bytes_as_a_column(data: bytes, encoding: str) -> None:
    read_all(shard(described(["x"], [encoding], [None]), len(data).to_bytes(4, "little") + data))


@given(st.binary(max_size=100))
def test_any_bytes_as_a_shard(data: bytes) -> None:
    read_all(data)


def test_claims_of_gigabytes_cost_nothing() -> None:
    tracemalloc.start()
    read_all(b"\xff\xff\xff\x3f" + bytes(100_000))
    for claim in (b"\x08\x05\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff" * 100):
        for encoding in ("ndarray", "pil", "list[pil]", "jpeg_array"):
            read_all(shard(described(["x"], [encoding], [None]), len(claim).to_bytes(4, "little") + claim))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
