"""Items of litdata's chunks: what litdata wrote comes out; nothing else does."""

import json
import pickle
import shutil
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import CorruptError, NotFoundError, UnsupportedError
from headrace.formats.streaming.litdata import LITDATA
from tests.shard_formats_kit import Shard

COMPAT = Path(__file__).parents[1] / "compat" / "shards"
LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
PAIR = {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF, LEAF]}


def spec(tree: Any, protocol: int = 1) -> str:
    return json.dumps([protocol, tree])


def index(chunk: bytes, leaves: Any = ("bytes",), tree: Any = LEAF, **more: Any) -> bytes:
    """An index of one chunk; the kit's shard is named ``shard``."""
    config = {"data_format": leaves, "data_spec": spec(tree), "compression": None, "encryption": None} | more
    return json.dumps({"chunks": [{"filename": "shard", "chunk_bytes": len(chunk)}], "config": config}).encode()


def chunk(*items: bytes) -> bytes:
    at = np.cumsum([4 * (len(items) + 2), *map(len, items)]).astype("<u4")
    return len(items).to_bytes(4, "little") + at.tobytes() + b"".join(items)


def item(*leaves: bytes) -> bytes:
    return b"".join(len(leaf).to_bytes(4, "little") for leaf in leaves) + b"".join(leaves)


def read(data: bytes, about: bytes) -> list[Any]:
    """Every item of a chunk, by an index."""
    said = LITDATA.about(Shard(about), ["shard"])
    decode = LITDATA.decoder(LITDATA.preamble(Shard(data), said))
    return [decode(memoryview(data)[one.start : one.stop]) for one in LITDATA.scan(Shard(data))]


def one(kind: str, data: bytes) -> Any:
    """The value of a chunk of one item of one leaf."""
    held = chunk(item(data))
    return read(held, index(held, [kind]))[0]


def opened(folder: Path) -> list[Any]:
    return list(hr.Dataset.open(folder.as_uri(), format="litdata").loader())


def pixels(n: int) -> Any:
    return np.array([(n * 5 + i) % 256 for i in range(18)], np.uint8).reshape(2, 3, 3)


def test_what_litdata_wrote() -> None:
    found = opened(COMPAT / "litdata")
    assert [(sample["__shard__"], sample["__key__"]) for sample in found[:5]] == [
        *(("chunk-0-0.bin", f"0000000{n}") for n in range(4)),
        ("chunk-0-1.bin", "00000000"),
    ]
    assert len(found) == 9
    for n, sample in enumerate(found):
        arrays = {name: sample.pop(name) for name in ("tensor", "flat", "flags", "numpy", "row", "pil")}
        images = {name: sample.pop(name) for name in ("jpeg", "jpegs")}
        plain = {name: value for name, value in sample.items() if name[:2] != "__"}
        assert plain == {
            "int": -n,
            "float": n / 3,
            "bool": n % 2 == 0,
            "str": "größe " * n,
            "bytes": bytes(range(n)),
            "image": b"any file",
            "tree": {"b": (n, [n + 1, "x"]), "a": 1.5},
            "json": ["a", "é"] * n,
            "json_list": ["a", "é"] * n,
            "json_whole": [n, -n],
            "json_real": [n / 3],
            "json_flags": [True, False],
            "json_mixed": [n, "x", None],
            "json_rows": [{"a": 1, "b": None}, {"a": -2.5, "b": "ü"}, {"a": True, "b": n}],
            "json_empty": [],
            "json_deep": {"x": {"y": n}},
        }
        expected = [
            np.full((n + 1, 2), n, np.float16),
            np.arange(n + 1),
            np.array([[True, False]]),
            np.full((2, n + 1), n, np.uint16),
            np.arange(n + 1, dtype=np.float64),
            pixels(n),
        ]
        for array, other in zip(arrays.values(), expected, strict=True):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other)
        assert hr.decode.image("jpeg")(images)["jpeg"].shape == (2, 3, 3)
        assert [bytes(one[:2]) for one in images["jpegs"]] == [b"\xff\xd8"] * 2


def test_an_item_that_is_no_dict_is_the_part_data() -> None:
    found = [sample["data"] for sample in opened(COMPAT / "litdata-tuple")]
    assert [(number, array.tolist()) for number, array in found] == [(n, [[n]]) for n in range(5)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("packed", "compressed"),
        ("packed-file", "compressed"),
        ("packed-sample", "compressed"),
        ("arrow", "rows of an Arrow table"),
        ("pickled", "leaf 1 of its items: pickled"),
    ],
)
def test_what_is_refused(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason) as caught:
        opened(COMPAT / "refused" / f"litdata-{name}")
    assert f"litdata-{name}" in str(caught.value)


def test_compressed_chunks_are_seen_without_the_index_too() -> None:
    for name in ("packed/chunk-0-0.bin", "packed-file/chunk-0-0.zstd.bin"):
        data = (COMPAT / "refused" / f"litdata-{name}").read_bytes()
        with pytest.raises(UnsupportedError, match="at byte 0: the chunk is compressed"):
            read(data, index(data))


def test_a_folder_must_be_whole(tmp_path: Path) -> None:
    folder = tmp_path / "chunks"
    shutil.copytree(COMPAT / "litdata-tuple", folder)
    (folder / "chunk-9-9.bin").write_bytes(chunk(item(b"x")))
    with pytest.raises(CorruptError, match=r"chunk-9-9.bin.*does not list it"):
        opened(folder)
    (folder / "chunk-9-9.bin").unlink()
    (folder / "chunk-0-1.bin").rename(tmp_path / "away")
    with pytest.raises(CorruptError, match=r"index.json: lists 1 chunks that are not there, such as 'chunk-0-1.bin'"):
        opened(folder)
    (tmp_path / "away").rename(folder / "chunk-0-1.bin")
    (folder / "index.json").rename(tmp_path / "index.json")
    with pytest.raises(NotFoundError, match=r"chunk-0-\d.bin: no index.json lies beside it"):
        opened(folder)


def test_a_chunk_that_is_gone_is_missed_though_the_others_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_TTL", "0s")
    folder = tmp_path / "chunks"
    shutil.copytree(COMPAT / "litdata-tuple", folder)
    assert len(opened(folder)) == 5
    (folder / "chunk-0-1.bin").unlink()
    with pytest.raises(CorruptError, match="lists 1 chunks that are not there"):
        opened(folder)


def test_another_index_makes_other_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_TTL", "0s")
    held = chunk(item(b"12345678"))
    (tmp_path / "shard.bin").write_bytes(held)
    for kind, expected in (("int", 0x3837363534333231), ("str", "12345678")):
        about = json.loads(index(held, [kind]))
        about["chunks"][0]["filename"] = "shard.bin"
        (tmp_path / "index.json").write_text(json.dumps(about, indent=2 if kind == "int" else 0))
        assert [sample["data"] for sample in opened(tmp_path)] == [expected]


def test_folders_have_an_index_each(tmp_path: Path) -> None:
    for name in ("train", "val"):
        shutil.copytree(COMPAT / "litdata-tuple", tmp_path / name)
    about = json.loads((tmp_path / "val" / "index.json").read_text())
    about["config"]["data_format"] = ["bytes", "tensor"]
    (tmp_path / "val" / "index.json").write_text(json.dumps(about))
    found = opened(tmp_path)
    assert [bytes(sample["data"][0]) for sample in found[5:]] == [struct.pack("<q", n) for n in range(5)]
    assert [sample["data"][0] for sample in found[:5]] == list(range(5))


def test_only_the_table_is_read() -> None:
    data = Shard(chunk(*[item(bytes(4000))] * 100))
    assert sum(1 for _ in LITDATA.scan(data)) == 100
    assert data.bytes_read < 1000


def test_tensors_of_older_litdata_in_little_endian() -> None:
    head = struct.pack("<4I", 16, 2, 1, 2)
    array = one("tensor", head + struct.pack("<2i", 5, -6))
    assert (array.dtype, array.tolist()) == (np.int32, [[5, -6]])
    assert one("tensor", struct.pack(">4I", 16, 2, 1, 2) + struct.pack("<2i", 5, -6)).tolist() == [[5, -6]]


def test_items_for_the_tokens_loader_come_as_they_were_written() -> None:
    data = chunk(struct.pack("<3i", 1, 2, 3), struct.pack("<i", 4))
    found = read(data, index(data, ["no_header_tensor:16"], item_loader="TokensLoader"))
    assert [one.tolist() for one in found] == [[1, 2, 3], [4]]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"data_format": ["graph"]}, "leaf 0 of its items: pickled"),
        ({"data_format": ["mine"]}, "kind 'mine'"),
        ({"data_format": ["no_header_tensor:10"]}, "bfloat16"),
        ({"data_format": ["no_header_numpy:14"]}, "NumPy type 14"),
        ({"data_format": ["no_header_numpy:x"]}, "NumPy type -1"),
        ({"compression": "zstd"}, "compressed"),
        ({"encryption": {"algorithm": "fernet"}}, "encrypted"),
        ({"item_loader": "TemporalArrayLoader"}, "TemporalArrayLoader"),
        ({"data_spec": spec(LEAF, 2)}, "protocol 2"),
        ({"data_spec": spec(PAIR | {"type": "collections.defaultdict"})}, "defaultdict"),
        ({"data_spec": spec(PAIR | {"type": "builtins.dict", "context": "[1, 2]"})}, "not strings"),
    ],
)
def test_indices_that_are_refused(changed: dict[str, Any], reason: str) -> None:
    data = chunk(item(b"x"))
    with pytest.raises(UnsupportedError, match=reason) as caught:
        read(data, index(data, **changed))
    assert caught.value.path == Shard.path


DEEP = '[1, {"type": "builtins.list", "context": "null", "children_spec": [' * 3000


@pytest.mark.parametrize(
    "about",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b'{"config": {}}',
        b'{"chunks": [], "config": {"data_format": []}}',
        b'{"chunks": [{"filename": 1, "chunk_bytes": 1e999}], "config": {}}',
        index(b"", []),
        index(b"", None),
        index(b"", ["bytes"] * 5000),
        index(b"", ["bytes", "bytes"]),
        index(b"", ["no_header_tensor:99"]),
        index(b"", data_spec=None),
        index(b"", data_spec="x"),
        index(b"", data_spec="1"),
        index(b"", data_spec="[1, []]"),
        index(b"", data_spec=DEEP),
        index(b"", data_spec=spec({"type": None, "context": "x", "children_spec": []})),
        index(b"", data_spec=spec({"type": None, "context": None, "children_spec": 1})),
        index(b"", data_spec=spec({"type": [], "context": None, "children_spec": []})),
        index(b"", ["bytes"] * 2, PAIR | {"type": "builtins.dict", "context": '["x"]'}),
        index(b"", ["bytes"] * 2, PAIR | {"type": "builtins.dict", "context": '["x", "x"]'}),
        index(b"", ["bytes"] * 2, PAIR, item_loader="TokensLoader"),
    ],
)
def test_indices_that_are_none(about: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        LITDATA.about(Shard(about), ["shard"])
    assert caught.value.path == Shard.path


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:7], "at byte 0: no litdata chunk"),
        (lambda data: data[:-1], r"at byte 12: item|at byte 12: record 1 would reach"),
        (lambda data: data + b"x", "at byte 12: the last record ends at byte"),
        (lambda data: data[:8] + b"\xff\xff\xff\x7f" + data[12:], "at byte 8: record 0 would reach"),
        (lambda data: b"\xff\xff\xff\xff" + data[4:], "at byte 0: no litdata chunk: 4294967295 records"),
    ],
)
def test_tables_that_are_none(change: Any, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason) as caught:
        list(LITDATA.scan(Shard(change(chunk(item(b"12"), item(b"34"))))))
    assert caught.value.path == Shard.path


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        ("int", b"1234", "leaf 0: 4 bytes, where int64 has 8"),
        ("float", b"", "0 bytes, where float64 has 8"),
        ("bool", b"", "0 bytes"),
        ("str", b"\xff", "not UTF-8"),
        ("no_header_numpy:3", b"123", "no array of int64"),
        ("numpy", b"1234567", "no array"),
        ("numpy", struct.pack("<2I", 3, 0xFFFFFFFF), "4294967295 axes"),
        ("numpy", struct.pack("<3I", 3, 1, 2), r"no int64 of shape \(2,\)"),
        ("numpy", struct.pack("<2I", 3, 70) + bytes(280), r"no int64 of shape"),
        ("tensor", struct.pack(">2I", 99, 0), "type 99"),
        ("jpeg_array", b"\xff\xff\xff\xff", "too few for a list"),
        ("json", b"", "ends early"),
        ("json", b"\x0c", "tag 12"),
        ("json", b"\x01\xff\xff\xff\xff", "ends early"),
        ("json", b"\x02\xff\xff\xff\xff", "ends early"),
        ("json", b"\x06\xff\xff\xff\xff\0\0\0\0", "rows without columns"),
        ("json", b"\x06\xff\xff\xff\xff\x01\0\0\0\0\0\0\0\x09", "cell's tag 9"),
        ("json", b"\x0b\x0b", "ends at byte 1 of 2"),
        ("json", b"\x05\x01\0\0\0\0\0\0\0" * 20_000, "too deeply"),
        ("json", b"[1", "not JSON"),
    ],
)
def test_leaves_that_are_none(kind: str, data: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason):
        one(kind, data)


def test_lengths_of_leaves_that_do_not_add_up() -> None:
    for record in (b"123", b"\x01\0\0\0\xff\xff\xff\xffab", b"\0\0\0\0\0\0\0\0a"):
        data = chunk(record)
        with pytest.raises(CorruptError, match=r"the item|of the item"):
            read(data, index(data, ["bytes", "bytes"], PAIR))


def test_decoders_travel_between_processes() -> None:
    data = chunk(item(b"a", b"b"))
    said = LITDATA.about(Shard(index(data, ["str", "json"], PAIR)), ["shard"])
    decode = pickle.loads(pickle.dumps(LITDATA.decoder(LITDATA.preamble(Shard(data), said))))
    assert decode(memoryview(item(b"a", b"[1]"))) == ("a", [1])


def read_all(data: bytes, about: bytes) -> None:
    """Everything of a chunk, as long as it is one; a wrong item does not end it."""
    try:
        said = LITDATA.about(Shard(about), ["shard"])
        decode = LITDATA.decoder(LITDATA.preamble(Shard(data), said))
        for member in LITDATA.scan(Shard(data)):
            try:
                decode(memoryview(data)[member.start : member.stop])
            except (CorruptError, UnsupportedError):
                pass
    except (CorruptError, UnsupportedError):
        pass


REAL = (COMPAT / "litdata" / "chunk-0-2.bin").read_bytes()
CONFIG = json.loads((COMPAT / "litdata" / "index.json").read_text())["config"]
ABOUT = json.dumps({"chunks": [{"filename": "shard", "chunk_bytes": len(REAL)}], "config": CONFIG}).encode()


def test_the_chunk_that_is_damaged_below_is_read_whole() -> None:
    assert [one["int"] for one in read(REAL, ABOUT)] == [-8]


@given(st.lists(st.tuples(st.integers(0, len(REAL) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_damaged_chunk_is_corrupt_or_read_and_nothing_else(changes: list[tuple[int, int]]) -> None:
    data = bytearray(REAL)
    for at, value in changes:
        data[at] = value
    read_all(bytes(data), ABOUT)


@given(st.integers(0, len(ABOUT) - 1), st.binary(min_size=1, max_size=3))
def test_a_damaged_index_is_corrupt_or_read_and_nothing_else(at: int, data: bytes) -> None:
    read_all(REAL, ABOUT[:at] + data + ABOUT[at + len(data) :])


@given(
    st.binary(max_size=200), st.sampled_from(["json", "tensor", "numpy", "pil", "jpeg_array", "no_header_tensor:16"])
)
def test_any_bytes_as_a_leaf(data: bytes, kind: str) -> None:
    held = chunk(item(data))
    read_all(held, index(held, [kind]))


@given(st.integers(0, 11), st.binary(max_size=200))
def test_any_bytes_as_nested_values(tag: int, data: bytes) -> None:
    held = chunk(item(bytes([tag]) + data))
    read_all(held, index(held, ["json"]))


def test_claims_of_gigabytes_cost_nothing() -> None:
    tracemalloc.start()
    read_all(b"\xff\xff\xff\x3f" + bytes(100_000), index(bytes(100_004)))
    for tag in range(12):
        for kind in ("json", "tensor", "numpy", "pil", "jpeg_array"):
            held = chunk(item(bytes([tag]) + b"\xff\xff\xff\x7f" * 30))
            read_all(held, index(held, [kind]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
