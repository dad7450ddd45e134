"""Records of large arrays: the batches are those of records decoded one by one."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import BadSampleError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.store import open_store

LEAF = {"type": None, "context": None, "children_spec": []}
KINDS = {"image": "numpy", "number": "int", "mask": "numpy", "flat": "no_header_numpy:4"}
SIDES = (300, 301)
_stores = count()


class Item(NamedTuple):
    """One record: sides of two arrays, the second one small or large; what fills them."""

    side: int
    second: int
    fill: int
    signed: bool


ITEMS = st.builds(Item, st.sampled_from(SIDES), st.sampled_from((3, 280)), st.integers(0, 255), st.booleans())
RUNS = st.lists(st.tuples(ITEMS, st.integers(1, 7)), min_size=1, max_size=4)


def values_of(item: Item, number: int) -> dict[str, Any]:
    image = np.full((item.side, item.side), (item.fill + number) % 256, np.uint8)
    image[0, :2] = number % 256, number // 256
    return {
        "image": image.view(np.int8) if item.signed else image,
        "number": number * 3,
        "mask": np.full((item.second, item.second), number % 7, np.uint8),
        "flat": np.arange(number, number + 20_000, dtype=np.uint8),
    }


def packed(values: dict[str, Any]) -> bytes:
    def headed(array: Any) -> bytes:
        number = 0 if array.dtype == np.int8 else 4
        return struct.pack(f"<{2 + array.ndim}I", number, array.ndim, *array.shape) + array.tobytes()

    leaves = [headed(values["image"]), struct.pack("<q", values["number"]), headed(values["mask"])]
    leaves.append(values["flat"].tobytes())
    return struct.pack("<4I", *map(len, leaves)) + b"".join(leaves)


def write(folder: Path, chunks: Sequence[Sequence[bytes]]) -> None:
    listed: list[dict[str, Any]] = []
    for at, items in enumerate(chunks):
        ends = np.cumsum([4 * (len(items) + 2), *map(len, items)]).astype("<u4")
        data = len(items).to_bytes(4, "little") + ends.tobytes() + b"".join(items)
        (folder / f"chunk-0-{at}.bin").write_bytes(data)
        listed.append({"filename": f"chunk-0-{at}.bin", "chunk_bytes": len(data)})
    tree = {"type": "builtins.dict", "context": json.dumps(list(KINDS)), "children_spec": [LEAF] * len(KINDS)}
    config = {"data_format": list(KINDS.values()), "data_spec": json.dumps([1, tree]), "compression": None}
    (folder / "index.json").write_text(json.dumps({"chunks": listed, "config": {**config, "encryption": None}}))


@contextmanager
def stored(folder: Path, records: Sequence[bytes]) -> Iterator[Any]:
    """The records as two chunks in a store that the cache keeps."""
    folder.mkdir()
    half = len(records) // 2
    write(folder, [chunk for chunk in (records[:half], records[half:]) if chunk])
    with closing(open_store(f"memory://large-{next(_stores)}")) as store:
        for path in folder.iterdir():
            store.put(path.name, path.read_bytes())
        yield hr.Dataset.open(f"{store.url}/", format="litdata")


def opened(folder: Path) -> Any:
    return hr.Dataset.open(folder.as_uri(), format="litdata")


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == wanted.dtype and np.array_equal(found, wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


@settings(max_examples=15)
@given(RUNS, st.integers(1, 5), st.sampled_from((1, 3, 9)), st.integers(1, 3), st.booleans())
def test_batches_are_those_of_single_records(
    runs: list[tuple[Item, int]], batch: int, group: int, chunks: int, shuffled: bool
) -> None:
    items = [item for item, times in runs for _ in range(times)]
    records = [packed(values_of(item, number)) for number, item in enumerate(items)]
    prefetch = group * 8 * max(map(len, records))  # so that about `group` records are read at once
    with TemporaryDirectory() as name:
        cuts = np.array_split(np.arange(len(records)), chunks)
        write(Path(name), [[records[at] for at in cut] for cut in cuts if len(cut)])
        dataset = opened(Path(name)).shuffle(3, block="1MB") if shuffled else opened(Path(name))
        singly = dataset.map(lambda sample: sample).batch(batch).loader()
        found = list(dataset.batch(batch).loader(prefetch))
        for one, other in zip(found, singly, strict=True):
            assert list(one) == list(other)
            assert all(same(one[part], other[part]) for part in other)
        numbers = np.sort(np.concatenate([one["number"] for one in found]))
        assert numbers.tolist() == [3 * number for number in range(len(items))]


@settings(max_examples=15)
@given(RUNS, st.integers(1, 5), st.booleans(), st.sampled_from((16 << 10, 64 << 10, 1 << 20)))
def test_so_are_those_of_a_first_epoch_that_the_cache_keeps(
    runs: list[tuple[Item, int]], batch: int, shuffled: bool, block: int
) -> None:
    items = [item for item, times in runs for _ in range(times)]
    records = [packed(values_of(item, number)) for number, item in enumerate(items)]
    cache = CacheSettings(min_free=0, block=block, whole=block)
    with TemporaryDirectory() as name, stored(Path(name) / "written", records) as dataset:
        dataset = dataset.shuffle(3, block="1MB") if shuffled else dataset
        fetcher = Fetcher.open(Settings(cache=replace(cache, dir=f"{name}/cache")), None, Metrics())
        found = list(dataset.batch(batch).loader(fetcher=fetcher))
        fetcher.close()
        fetcher = Fetcher.open(Settings(cache=replace(cache, size=0)), None, Metrics())
        singly = dataset.map(lambda sample: sample).batch(batch).loader(fetcher=fetcher)
        for one, other in zip(found, singly, strict=True):
            assert list(one) == list(other)
            assert all(same(one[part], other[part]) for part in other)
        fetcher.close()


def test_batches_stay_as_they_are(tmp_path: Path) -> None:
    item = Item(1500, 280, 1, signed=False)
    write(tmp_path, [[packed(values_of(item, number)) for number in range(24)]])
    found = [one["image"] for one in opened(tmp_path).batch(5).loader()]
    assert np.array_equal(np.concatenate(found), [values_of(item, at)["image"] for at in range(24)])


def test_a_record_that_says_something_else_is_named(tmp_path: Path) -> None:
    item = Item(1500, 280, 1, signed=False)
    records = [packed(values_of(item, number)) for number in range(12)]
    records[7] = records[7][:16] + struct.pack("<I", 77) + records[7][20:]  # an array of no type
    write(tmp_path, [records])
    with pytest.raises(BadSampleError, match=r"record 0*7\b.*NumPy type 77"):
        list(opened(tmp_path).batch(3).loader())
    skipping = opened(tmp_path).filter(lambda _: True, on_error=hr.Skip(max_count=1)).batch(3)
    assert [number for one in skipping.loader() for number in one["number"]] == [3 * at for at in range(12) if at != 7]


@pytest.mark.parametrize("dtype", ["u1", ">f4", "S700000", "f8"])
def test_rows_of_arrays_too(tmp_path: Path, dtype: str) -> None:
    each = max(1, 720_000 // np.dtype(dtype).itemsize)
    wanted = np.arange(30 * each).astype(dtype).reshape((30, each) if each > 1 else 30)
    np.save(tmp_path / "rows.npy", wanted)
    found = [one["data"] for one in hr.Dataset.open(tmp_path.as_uri(), format="npy").batch(4).loader()]
    assert np.array_equal(np.concatenate(found), wanted)
    assert found[0].dtype == wanted.dtype


def test_mds_records_too(tmp_path: Path) -> None:
    rows = [np.full((1200, 600), number, np.uint8) for number in range(30)]
    head = bytes([8, 2 << 2 | 1]) + np.array(rows[0].shape, "<u2").tobytes()
    records = [
        struct.pack("<I", len(head) + row.nbytes) + head + row.tobytes() + struct.pack("<q", at)
        for at, row in enumerate(rows)
    ]
    about = json.dumps(
        {
            "version": 2, "format": "mds", "compression": None, "hashes": [], "size_limit": None,
            "column_names": ["pixels", "x"], "column_encodings": ["ndarray", "int"], "column_sizes": [None, 8],
        }
    ).encode()  # fmt: skip
    first = 4 * (len(records) + 2) + len(about)
    ends = np.cumsum([first, *map(len, records)]).astype("<u4").tobytes()
    (tmp_path / "shard.00000.mds").write_bytes(struct.pack("<I", len(records)) + ends + about + b"".join(records))
    found = list(hr.Dataset.open(tmp_path.as_uri(), format="mds").batch(4).loader())
    assert np.array_equal(np.concatenate([one["pixels"] for one in found]), rows)
    assert np.concatenate([one["x"] for one in found]).tolist() == list(range(30))
