"""Shards that are made anew as a whole before they are read: MDS's compressions, `.npz` compressed, Fortran order."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import headrace as hr
from headrace.base.errors import CorruptError, HeadraceError, UnsupportedError
from headrace.formats.codecs.compression import decompressed
from headrace.formats.numpy_files.c_order import npz_in_order

PACKED = Path(__file__).parents[1] / "compat" / "shards" / "mds-packed"
ENDINGS = ("zstd", "gz", "bz2", "br", "snappy")


def opened(folder: Path, form: str) -> list[dict[str, Any]]:
    dataset = hr.Dataset.open(folder, format=form)
    found = list(dataset)
    assert [one["__key__"] for one in found] == [one["__key__"] for one in dataset.at(range(len(dataset)))]
    return found


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_mosaicml_streaming_compressed(ending: str) -> None:
    found = list(hr.Dataset.open(PACKED / ending))  # by its index.json
    assert [(one["n"], one["text"]) for one in found] == [(n, "größe " * n) for n in range(9)]
    shuffled = hr.Dataset.open(PACKED / ending, format="mds").shuffle(7)
    assert sorted(one["n"] for one in shuffled.loader()) == list(range(9))


@pytest.mark.parametrize("ending", ENDINGS)
def test_damage_is_told(tmp_path: Path, ending: str) -> None:
    shutil.copytree(PACKED / ending, tmp_path / "set")
    shard = max((tmp_path / "set").glob("*.mds.*"), key=lambda path: path.stat().st_size)
    whole = shard.read_bytes()
    for data in (whole[:-8], whole[: len(whole) // 2], whole[:1], bytes(reversed(whole))):
        shard.write_bytes(data)
        with pytest.raises(CorruptError, match=shard.name):
            list(hr.Dataset.open(tmp_path / "set", format="mds", refresh=True))


def test_a_block_that_says_too_much_takes_no_memory() -> None:
    with pytest.raises(CorruptError, match="come out of"):
        next(decompressed("snappy", iter([memoryview(b"\xff\xff\xff\xff\x0fabc")]), "shard"))


arrays = nps.arrays(
    st.sampled_from(["u1", "<i4", ">f8", "U3", "?"]), nps.array_shapes(min_dims=1, max_dims=3, max_side=4), fill=None
)


@settings(max_examples=40, deadline=None)
@given(array=arrays, fortran=st.booleans())
def test_every_row_of_npy_in_any_order(tmp_path_factory: pytest.TempPathFactory, array: Any, fortran: bool) -> None:
    folder = tmp_path_factory.mktemp("npy")
    np.save(folder / "a.npy", np.asfortranarray(array) if fortran else array)
    rows = [one["data"] for one in opened(folder, "npy")]
    assert len(rows) == len(array)
    assert [(row.dtype, row.tobytes()) for row in rows] == [
        (array.dtype, array[row : row + 1].tobytes()) for row in range(len(array))
    ]


@settings(max_examples=40, deadline=None)
@given(first=arrays, orders=st.tuples(st.booleans(), st.booleans()), packed=st.booleans())
def test_every_row_of_npz_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, first: Any, orders: tuple[bool, bool], packed: bool
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    made = {"a": first, "b/c": np.arange(6 * len(first)).reshape(len(first), 2, 3)}
    ordered = dict(made)
    ordered.update({name: np.asfortranarray(made[name]) for name, order in zip(made, orders, strict=True) if order})
    (np.savez_compressed if packed else np.savez)(folder / "a.npz", **ordered)
    found = opened(folder, "npz")
    assert len(found) == len(first)
    for row, one in enumerate(found):
        for name, array in made.items():
            assert (one[name].dtype, one[name].tobytes()) == (array.dtype, array[row : row + 1].tobytes())


def test_large_arrays_come_piece_by_piece(tmp_path: Path) -> None:
    """Several pieces of a megabyte each, in both orders, and shuffled batches of them."""
    array = np.arange(3_000_000, dtype="<i4").reshape(1000, 3000)
    (tmp_path / "set").mkdir()
    np.savez_compressed(tmp_path / "set/0.npz", f=np.asfortranarray(array), c=array)
    np.savez(tmp_path / "set/1.npz", f=array, c=array)
    batches = list(hr.Dataset.open(tmp_path / "set", format="npz").shuffle(3).batch(100).loader())
    assert sum(len(batch["f"]) for batch in batches) == 2000
    assert all(np.array_equal(batch["f"], batch["c"]) for batch in batches)
    first = [value for batch in batches for value in batch["f"][:, 0].tolist()]
    assert sorted(first) == sorted([*range(0, 3_000_000, 3000)] * 2)


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in members.items():
            made.writestr(name, data)
    return file.getvalue()


def test_what_is_no_array_is_refused(tmp_path: Path) -> None:
    for number, (data, reason) in enumerate(
        [
            (archive(note=b"text"), "no array"),
            (archive(**{"a.npy": b"\x93NUMPY text"}), "npy"),
        ]
    ):
        path = tmp_path / f"{number}.npz"
        path.write_bytes(data)
        with pytest.raises(HeadraceError, match=reason):
            hr.Dataset.open(path, format="npz")


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255))
def test_damaged_archives_end_in_an_error_or_whole(place: int, value: int) -> None:
    file = io.BytesIO()
    np.savez_compressed(file, a=np.asfortranarray(np.arange(12).reshape(3, 4)), b=np.zeros(3))
    data = bytearray(file.getvalue())
    data[place % len(data)] = value
    with contextlib.suppress(CorruptError, UnsupportedError):
        assert b"".join(npz_in_order(memoryview(bytes(data)), "a.npz"))


@pytest.mark.parametrize("codec", ["bz2", "brotli", "zstd", "gzip"])
def test_what_is_cut_short_is_told(codec: str) -> None:
    data = bytes(range(256)) * 100
    packed = {"bz2": bz2.compress, "gzip": gzip.compress}.get(codec) or (
        lambda data: pa.Codec(codec).compress(data, asbytes=True)
    )
    whole = packed(data)
    assert b"".join(decompressed(codec, iter([memoryview(whole)]), "x")) == data
    for stop in (len(whole) - 1, len(whole) // 2):
        with pytest.raises(CorruptError):
            list(decompressed(codec, iter([memoryview(whole[:stop])]), "x"))
