"""safetensors as the library has them: what either writes the other reads; headers that lie are refused; slices are
those of NumPy.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import CorruptError, InputError, UnsupportedError
from headrace.models.loading.header import BITS, encode, header_length, parse
from headrace.models.loading.selecting import Wanted

TORCH = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16, torch.int32, torch.float32,
    torch.int64, torch.float64, torch.complex64, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip
NUMPY = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", "c8"]
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
names = st.text(st.characters(exclude_categories=("Cs",)), max_size=8).filter(lambda name: name != "__metadata__")
texts = st.dictionaries(st.text(st.characters(exclude_categories=("Cs",)), max_size=6), st.text("aä\n", max_size=9))


def tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int, kind: str) -> torch.Tensor:
    """With every bit pattern, and laid out in several ways."""
    if dtype is torch.bool:
        kind = "plain"
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    if not count:
        return torch.empty(shape, dtype=dtype)
    raw = torch.from_numpy(np.random.default_rng(seed).integers(0, 2 if dtype is torch.bool else 256, count, "u1"))
    made = raw.view(dtype).reshape(shape)
    if kind == "turned" and len(shape) > 1:
        return made.transpose(0, 1)
    return made[::2] if kind == "stepped" and shape else made


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, torch.Tensor]:
    found = {}
    for name in draw(st.lists(names, unique=True, max_size=5)):
        kind = draw(st.sampled_from(["plain", "turned", "stepped"]))
        found[name] = tensor(draw(st.sampled_from(TORCH)), draw(shapes), draw(st.integers(0, 99)), kind)
    return found


def raw(one: torch.Tensor) -> bytes:
    return bytes(one.clone(memory_format=torch.contiguous_format).untyped_storage())


def assert_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, one in expected.items():
        assert (found[name].dtype, found[name].shape) == (one.dtype, one.shape)
        assert raw(found[name]) == raw(one)


@settings(max_examples=40)
@given(tensors(), texts, st.booleans())
def test_the_library_reads_what_we_write(
    written: dict[str, torch.Tensor], metadata: dict[str, str], checksums: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.safetensors"
        hr.safetensors.save(written, path, metadata=metadata, checksums=checksums)
        assert_same(safetensors.torch.load_file(path), written)
        assert_same(hr.safetensors.load(path, verify=True), written)
        with safetensors.safe_open(path, "pt") as file:
            told = file.metadata() or {}
        assert {name: text for name, text in told.items() if name != "headrace.xxh3"} == metadata
        assert hr.safetensors.open(path).metadata() == told


@settings(max_examples=40)
@given(tensors(), st.none() | texts)
def test_we_read_what_the_library_writes(written: dict[str, torch.Tensor], metadata: dict[str, str] | None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.safetensors"
        plain = {name: one.contiguous() for name, one in written.items()}
        metadata = metadata if plain else None  # the library writes no JSON of no tensors with metadata
        safetensors.torch.save_file(plain, path, metadata)
        assert_same(hr.safetensors.load(path), plain)
        opened = hr.safetensors.open(path)
        assert opened.metadata() == (metadata or {})
        assert opened.shapes == {name: tuple(one.shape) for name, one in plain.items()}
        assert_same({name: opened.get_tensor(name) for name in opened}, plain)


@settings(max_examples=60)
@given(st.sampled_from(NUMPY), shapes, st.integers(0, 9), st.sampled_from(["C", "F", ">"]))
def test_arrays_of_numpy_go_both_ways(dtype: str, shape: tuple[int, ...], seed: int, order: str) -> None:
    count = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    data = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, count, "u1").view(dtype)
    array = data.reshape(shape)
    given_ = array.astype(np.dtype(dtype).newbyteorder(">")) if order == ">" else np.asarray(array, order=order)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.safetensors"
        hr.safetensors.save({"x": given_}, path)
        for found in (safetensors.numpy.load_file(path)["x"], hr.safetensors.load(path, framework="numpy")["x"]):
            assert (found.dtype, found.shape) == (array.dtype, array.shape)
            assert found.tobytes() == array.tobytes()


def file_of(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


BAD = {
    "nothing": b"",
    "seven bytes": b"1234567",
    "a length beyond the end": file_of({}, length=3),
    "a length beyond all bounds": file_of({}, length=2**63),
    "a length over the limit": file_of({}, b"x" * 16, length=100_000_001),
    "no JSON": file_of(b"{nonsense}"),
    "not UTF-8": file_of(b'{"\xff": 1}'),
    "a list": file_of([]),
    "nothing but spaces": file_of(b"    "),
    "deeply nested": file_of(b'{"x":' + b"[" * 100_000),
    "a number for a tensor": file_of({"x": 3}),
    "no dtype": file_of({"x": {"shape": [], "data_offsets": [0, 0]}}),
    "an unknown dtype": file_of(one("F128"), b"12345678"),
    "a negative extent": file_of(one(shape=[-2]), b"12345678"),
    "an extent that is no number": file_of(one(shape=["2"]), b"12345678"),
    "a truth for an extent": file_of(one("U8", shape=[True], offsets=[0, 1]), b"1"),
    "a fraction": file_of(one(offsets=[0, 8.0]), b"12345678"),
    "three offsets": file_of(one(offsets=[0, 4, 8]), b"12345678"),
    "an end before the start": file_of(one(offsets=[8, 0]), b"12345678"),
    "an end beyond the file": file_of(one(offsets=[0, 8]), b"1234"),
    "bytes that nobody tells of": file_of(one(), b"123456789"),
    "too few for the shape": file_of(one(shape=[3]), b"12345678"),
    "extents that overflow": file_of(one(shape=[2**40, 2**40], offsets=[0, 8]), b"12345678"),
    "extents beyond all floats": file_of(one(shape=[2**62] * 20, offsets=[0, 8]), b"12345678"),
    "nothing, of extents that overflow": file_of(one(shape=[0, 2**62, 2**62], offsets=[0, 0])),
    "more axes than an array has": file_of(one("U8", shape=[1] * 65, offsets=[0, 1]), b"1"),
    "axes without end": file_of(one("U8", shape=[2**62] * 300_000, offsets=[0, 1]), b"1"),
    "half a byte": file_of(one("F4", shape=[3], offsets=[0, 1]), b"1"),
    "an overlap": file_of({**one(), "y": one(offsets=[4, 12])["x"]}, b"x" * 12),
    "the same bytes twice": file_of({**one(), "y": one()["x"]}, b"x" * 8),
    "a hole": file_of({**one(), "y": one(offsets=[12, 20])["x"]}, b"x" * 20),
    "a hole at the start": file_of(one(offsets=[4, 12]), b"x" * 12),
    "metadata that are no texts": file_of({"__metadata__": {"a": 1}}),
    "a list of metadata": file_of({"__metadata__": []}),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_header_that_lies_is_refused_as_the_library_does(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(BAD[kind])
    with pytest.raises(CorruptError) as refused:
        hr.safetensors.load(path)
    assert str(path) in str(refused.value)
    assert refused.value.hint
    with pytest.raises(Exception):  # noqa: B017 - of several kinds
        safetensors.numpy.load(BAD[kind])


def test_a_name_that_comes_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    tensor = json.dumps(one()["x"])
    path.write_bytes(file_of(f'{{"x": {tensor}, "x": {tensor}}}'.encode(), b"x" * 8))
    with pytest.raises(CorruptError, match="twice"):
        hr.safetensors.load(path)


@settings(max_examples=100)
@given(st.data())
def test_any_bytes_are_read_as_the_library_reads_them_or_refused(data: st.DataObject) -> None:
    """A file that was whole, with a few bytes changed, cut off or added."""
    whole = bytearray(safetensors.numpy.save({"a": np.arange(6, dtype="f4"), "bc": np.ones((2, 3), "u1")}, {"m": "t"}))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.sampled_from(b'{}[]",:0123456789 \x00\xff') | st.integers(0, 255))
    cut = data.draw(st.integers(-3, 3))
    text = bytes(whole) + b"x" * cut if cut >= 0 else bytes(whole)[:cut]
    try:
        expected = safetensors.numpy.load(text)
    except Exception:
        expected = None
    try:
        length = header_length(text[:8], len(text), "x")
        header = parse(text[8 : 8 + length], len(text), "x")
    except CorruptError:
        assert expected is None or text.count(b'"a"') != 1 or text.count(b'"bc"') != 1
    else:
        assert expected is not None or any(t.dtype not in ("F32", "U8") for t in header.tensors.values())
        for name, array in (expected or {}).items():
            tensor = header.tensors[name]
            assert (tensor.shape, text[tensor.start : tensor.stop]) == (array.shape, array.tobytes())


def test_a_file_whose_data_is_not_aligned_is_read(tmp_path: Path) -> None:
    header = {
        "a": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
        "b": {"dtype": "F64", "shape": [2], "data_offsets": [3, 19]},
        "c": {"dtype": "BF16", "shape": [1], "data_offsets": [19, 21]},
    }
    values = np.array([1.5, -2.5])
    text = json.dumps(header).encode()
    text += b" " * ((1 - len(text)) % 8)
    path = tmp_path / "x.safetensors"
    path.write_bytes(file_of(text, b"\x01\x02\x03" + values.tobytes() + b"\x80\x3f"))
    for framework in ("torch", "numpy"):
        found = hr.safetensors.load(path, framework=framework)
        assert found["b"].tolist() == [1.5, -2.5]
        assert float(found["c"][0]) == 1.0
        found["b"] += 1
    assert np.array(hr.safetensors.load(path, framework="numpy")["b"]).flags.aligned


def test_pairs_of_four_bits_are_those_of_torch(tmp_path: Path) -> None:
    pairs = torch.arange(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(2, 3)
    hr.safetensors.save({"x": pairs}, tmp_path / "x.safetensors")
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert file.get_slice("x").get_shape() == [2, 6]
    found = hr.safetensors.load(tmp_path / "x.safetensors")["x"]
    assert found.shape == (2, 3)
    assert raw(found) == raw(pairs)
    with pytest.raises(UnsupportedError, match="F4"):
        hr.safetensors.load(tmp_path / "x.safetensors", framework="numpy")
    with pytest.raises(UnsupportedError, match="slices"):
        hr.safetensors.load(tmp_path / "x.safetensors", slices={"x": slice(1)})


@pytest.mark.parametrize("wrong", [torch.tensor(1j, dtype=torch.complex128), np.array("text"), np.array([object()])])
def test_what_safetensors_has_no_dtype_for_is_refused(wrong: Any, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError):
        hr.safetensors.save({"x": wrong}, tmp_path / "x.safetensors")
    assert not list(tmp_path.iterdir())


# slices


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    axes: list[Any] = []
    for extent in shape:
        bound = st.none() | st.integers(-extent - 1, extent + 1)
        choices: list[st.SearchStrategy[Any]] = [st.builds(slice, bound, bound)]
        if extent:
            choices.append(st.integers(-extent, extent - 1))
        axes.append(draw(st.one_of(choices)))
    count = draw(st.integers(0, len(axes)))
    if draw(st.booleans()):  # an ellipsis: what comes after it is of the last axes
        after = draw(st.integers(0, len(axes) - count))
        axes = [*axes[:count], ..., *axes[len(axes) - after :]]
    else:
        axes = axes[:count]
    return tuple(axes) if len(axes) != 1 or draw(st.booleans()) else axes[0]


@settings(max_examples=100)
@given(st.data())
def test_slices_are_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=4)))
    dtype = data.draw(st.sampled_from(["u1", "f4", "c8"]))
    array = np.arange(int(np.prod(shape, dtype=int))).astype(dtype).reshape(shape)
    index = data.draw(indices(shape))
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/x.safetensors"
        hr.safetensors.save({"before": np.ones(3, "u1"), "x": array}, path)
        expected = array[index]
        opened = hr.safetensors.open(path, framework="numpy").get_slice("x")
        for found in (opened[index], hr.safetensors.load(path, framework="numpy", slices={"x": index})["x"]):
            assert found.shape == expected.shape
            assert np.array_equal(found, expected)


def test_of_rows_that_are_far_apart_only_what_is_wanted_is_read() -> None:
    """A mebibyte a row, of which a few bytes are wanted; of short rows, all of them in one request."""
    head = encode([("x", "U8", (4, 1 << 20), 4 << 20), ("y", "U8", (1 << 20, 4), 4 << 20)], {})
    size = len(head) + (8 << 20)
    header = parse(head[8:], size, "x")
    wide = list(Wanted.of(header.tensors["x"], (slice(1, 3), slice(5, 9))).pieces())
    begin = header.begin
    assert [(one.start - begin, one.stop - begin, one.at) for one in wide] == [
        ((1 << 20) + 5, (1 << 20) + 9, 0),
        ((2 << 20) + 5, (2 << 20) + 9, 4),
    ]
    (narrow,) = Wanted.of(header.tensors["y"], (slice(None), slice(1, 2))).pieces()
    assert (narrow.start, narrow.stop) == (header.tensors["y"].start, header.tensors["y"].stop)


@pytest.mark.parametrize("index", [slice(0, 4, 2), slice(None, None, -1), 7, (0, 0, 0), (..., ...)])
def test_an_index_that_does_not_fit_is_refused(index: Any, tmp_path: Path) -> None:
    hr.safetensors.save({"x": np.ones((4, 3))}, tmp_path / "x.safetensors")
    with pytest.raises(InputError, match="x"):
        hr.safetensors.open(tmp_path / "x.safetensors").get_slice("x")[index]


def test_every_dtype_of_the_library_is_known() -> None:
    """So that a header of a later library is noticed here."""
    known = safetensors.torch._TYPES
    assert set(known) <= set(BITS), set(known) - set(BITS)
