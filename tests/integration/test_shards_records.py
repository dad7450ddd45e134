"""Records of all formats through the loader: values, order, resume, damage."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.base.errors import BadSampleError, ChangedError, CorruptError
from headrace.base.settings import Settings
from headrace.catalog.snapshot import take_snapshot
from headrace.formats.checksums.crc32c import crc32c, masked

COMPAT = Path(__file__).parents[1] / "compat" / "shards"
SHARDS, EACH = 3, 21


def _record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    crcs = [struct.pack("<I", masked(crc32c(memoryview(one)))) for one in (length, data)]
    return length + crcs[0] + data + crcs[1]


def _tfrecord(path: Path, numbers: range) -> None:
    path.with_suffix(".tfrecord").write_bytes(b"".join(_record(b"%d" % number) for number in numbers))


def _jsonl(path: Path, numbers: range) -> None:
    path.with_suffix(".jsonl").write_text("".join(json.dumps({"x": n, "text": "é" * n}) + "\n" for n in numbers))


def _csv(path: Path, numbers: range) -> None:
    """Every second file has its columns the other way round: a header concerns its own file."""
    names = ["x", "text"] if path.name != "1" else ["text", "x"]
    with open(path.with_suffix(".csv"), "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows({"x": n, "text": f'"{n}", and\na line more'} for n in numbers)


def _npy(path: Path, numbers: range) -> None:
    np.save(path.with_suffix(".npy"), np.array([[n, n * n] for n in numbers], np.int64))


def _npz(path: Path, numbers: range) -> None:
    array = np.array([[n, n * n] for n in numbers], np.int64)
    np.savez(path.with_suffix(".npz"), x=array, half=np.array([n / 2 for n in numbers], np.float16))


def _at(items: Sequence[bytes], head: bytes = b"") -> bytes:
    """The table with which MDS shards and litdata chunks begin, `head`, the items."""
    at = np.cumsum([4 * (len(items) + 2) + len(head), *map(len, items)]).astype("<u4")
    return struct.pack("<I", len(items)) + at.tobytes() + head + b"".join(items)


def _mds(path: Path, numbers: range) -> None:
    """Every second file has a column more: a description concerns its own file."""
    more = path.name == "1"
    columns = {"column_names": ["text", "x"], "column_encodings": ["str", "int"], "column_sizes": [None, 8]}
    if more:
        columns = {"column_names": ["a", *columns["column_names"]], "column_encodings": ["uint8", "str", "int"]}
        columns["column_sizes"] = [1, None, 8]
    about = json.dumps(columns | {"format": "mds", "version": 2}).encode()
    items = [struct.pack("<I", n) + b"!" * more + b"x" * n + struct.pack("<q", n) for n in numbers]
    path.with_suffix(".mds").write_bytes(_at(items, about))


def _litdata(path: Path, numbers: range) -> None:
    """The index beside the chunks is written again with every one of them."""
    items = [struct.pack("<2I", 8, n) + struct.pack("<q", n) + b"x" * n for n in numbers]
    path.with_suffix(".bin").write_bytes(_at(items))
    leaf = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.dict", "context": '["x", "text"]', "children_spec": [leaf, leaf]}
    chunks = [{"filename": one.name, "chunk_bytes": one.stat().st_size} for one in path.parent.glob("*.bin")]
    config = {"data_format": ["int", "str"], "data_spec": json.dumps([1, tree])}
    (path.parent / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


FORMATS: dict[str, tuple[Callable[[Path, range], None], Callable[[dict[str, Any]], int]]] = {
    "tfrecord": (_tfrecord, lambda sample: int(bytes(sample["data"]))),
    "jsonl": (_jsonl, lambda sample: sample["x"]),
    "csv": (_csv, lambda sample: int(sample["x"])),
    "npy": (_npy, lambda sample: int(sample["data"][0])),
    "npz": (_npz, lambda sample: int(sample["x"][0])),
    "mds": (_mds, lambda sample: sample["x"]),
    "litdata": (_litdata, lambda sample: sample["x"]),
}


def _write(folder: Path, name: str) -> None:
    for shard in range(SHARDS):
        FORMATS[name][0](folder / str(shard), range(shard * EACH, (shard + 1) * EACH))


def _numbers(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    number = FORMATS[name][1]
    return lambda sample: {"n": number(sample)}


def _all(loader: Any) -> list[int]:
    return [int(n) for batch in loader for n in batch["n"]]


@pytest.mark.parametrize("name", FORMATS)
def test_every_record_comes_exactly_once_an_epoch_in_another_order_each(tmp_path: Path, name: str) -> None:
    _write(tmp_path, name)
    ds = hr.Dataset.open(tmp_path.as_uri(), format=name).shuffle(seed=3).map(_numbers(name)).batch(4)
    with contextlib.closing(ds.loader()) as loader:
        first, second = _all(loader), _all(loader)
    assert sorted(first) == sorted(second) == list(range(SHARDS * EACH))
    assert first != second


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 1)])
def test_a_resume_on_other_ranks_sees_exactly_what_is_left(tmp_path: Path, name: str, before: int, after: int) -> None:
    _write(tmp_path, name)
    ds = hr.Dataset.open(tmp_path.as_uri(), format=name).shuffle(seed=5).map(_numbers(name)).batch(3)
    seen: list[int] = []
    states: list[Any] = []
    for rank in range(before):
        with contextlib.closing(ds.shard(rank, before).loader()) as loader:
            batches = iter(loader)
            seen += [int(n) for _ in range(3) for n in next(batches)["n"]]
            states.append(loader.state_dict())
    for rank in range(after):
        with contextlib.closing(ds.shard(rank, after).loader()) as loader:
            loader.load_state_dict(states[0])
            seen += _all(loader)
    assert sorted(seen) == list(range(SHARDS * EACH))


def test_lines_become_their_columns_and_arrays_their_rows(tmp_path: Path) -> None:
    names = ("jsonl", "csv", "npy", "npz", "mds", "litdata")
    for name in names:
        (tmp_path / name).mkdir()
        _write(tmp_path / name, name)
    opened = {
        name: next(iter(hr.Dataset.open((tmp_path / name).as_uri(), format=name).batch(2).loader())) for name in names
    }
    assert opened["jsonl"]["x"].tolist() == [0, 1]
    assert opened["jsonl"]["text"] == ["", "é"]
    assert opened["csv"]["text"] == ['"0", and\na line more', '"1", and\na line more']
    assert opened["npy"]["data"].tolist() == [[0, 0], [1, 1]]
    assert opened["npy"]["__shard__"] == ["0.npy", "0.npy"]
    assert opened["npz"]["x"].tolist() == [[0, 0], [1, 1]]
    assert opened["npz"]["half"].dtype == np.float16
    assert opened["npz"]["half"].tolist() == [0, 0.5]
    for name in ("mds", "litdata"):
        assert opened[name]["x"].tolist() == [0, 1]
        assert opened[name]["text"] == ["", "x"]


@pytest.mark.parametrize("name", ["jsonl", "npz", "mds", "litdata"])
def test_windows_of_records(tmp_path: Path, name: str) -> None:
    _write(tmp_path, name)
    ds = hr.Dataset.open(tmp_path.as_uri(), format=name).windows(3)
    with contextlib.closing(ds.loader()) as loader:
        found = [[x if name != "npz" else int(x[0]) for x in sample["x"]] for sample in loader]
    assert len(found) == SHARDS * (EACH - 2), "none crosses a shard"
    assert all(window == list(range(window[0], window[0] + 3)) for window in found)


@pytest.mark.parametrize("name", ["csv", "npz", "mds", "litdata"])
def test_the_loader_in_a_process_of_its_own_decodes_too(tmp_path: Path, name: str) -> None:
    _write(tmp_path, name)
    ds = hr.Dataset.open(tmp_path.as_uri(), format=name).batch(7)
    with contextlib.closing(ds.loader(where="process")) as loader:
        found = [n[0] if name == "npz" else n for batch in loader for n in batch["x"]]
    assert sorted(map(int, found)) == list(range(SHARDS * EACH))


def test_a_snapshot_of_chunks_holds_their_index_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", (tmp_path / "home").as_uri())
    (tmp_path / "chunks").mkdir()
    _write(tmp_path / "chunks", "litdata")
    settings = Settings.load()
    take_snapshot((tmp_path / "chunks").as_uri(), "chunks", namespace=hr.Namespace.load(settings), settings=settings)
    found = [sample["x"] for sample in hr.Dataset.open("chunks@v1", format="litdata").loader()]
    assert found == list(range(SHARDS * EACH))


def test_tfrecords_of_tensorflow_are_found_by_their_suffix_and_parsed(tmp_path: Path) -> None:
    (tmp_path / "part-0.tfrecord").write_bytes((COMPAT / "examples.tfrecord").read_bytes())
    (tmp_path / "_SUCCESS").write_bytes(b"")
    with contextlib.closing(hr.Dataset.open(tmp_path.as_uri()).map(hr.decode.example()).loader()) as loader:
        samples = list(loader)
    labels = [sample["label"].tolist() for sample in samples[:2]]
    assert labels[0] == [7]
    assert labels[1][:3] == [-1, 0, 1]
    assert samples[0]["image"] == [bytes(range(256))]


def test_single_values_stand_for_themselves_where_asked(tmp_path: Path) -> None:
    (tmp_path / "0.tfrecord").write_bytes((COMPAT / "examples.tfrecord").read_bytes())
    first = hr.Dataset.open(tmp_path.as_uri()).take(1)
    sample = next(iter(first.map(hr.decode.example(single=["image", "label"])).loader()))
    assert (sample["image"], int(sample["label"])) == (bytes(range(256)), 7)
    both = hr.Dataset.open(tmp_path.as_uri()).take(2).map(hr.decode.example(single=["image"]))
    with pytest.raises(BadSampleError, match=r"feature 'image' holds 2 values"):
        list(both.loader())


def test_a_damaged_record_is_named_and_skipped_only_within_the_budget(tmp_path: Path) -> None:
    _write(tmp_path, "tfrecord")
    path = tmp_path / "1.tfrecord"
    data = bytearray(path.read_bytes())
    data[12] ^= 1  # the first byte of the first record
    path.write_bytes(data)
    ds = hr.Dataset.open(tmp_path.as_uri())
    with pytest.raises(BadSampleError, match=r"1\.tfrecord: record 00000000") as caught:
        list(ds.loader())
    assert "checksum" in str(caught.value)
    skipping = ds.map(_numbers("tfrecord"), on_error=hr.Skip(max_count=1)).batch(4)
    with contextlib.closing(skipping.loader()) as loader:
        assert sorted(_all(loader)) == [n for n in range(SHARDS * EACH) if n != EACH]
        assert len(loader.ledger) == 1


def test_a_damaged_length_is_named_when_the_shards_are_opened(tmp_path: Path) -> None:
    _write(tmp_path, "tfrecord")
    path = tmp_path / "1.tfrecord"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=r"1\.tfrecord.*byte 0"):
        hr.Dataset.open(tmp_path.as_uri())


@pytest.mark.parametrize("cold", [False, True], ids=["in memory", "on disk"])
def test_records_of_files_come_whether_or_not_the_page_cache_has_them(tmp_path: Path, cold: bool) -> None:
    for number in range(SHARDS):
        (tmp_path / f"{number}.tfrecord").write_bytes(
            b"".join(_record(b"%d-" % n + bytes(9000)) for n in range(number * 600, (number + 1) * 600))
        )
    ds = hr.Dataset.open(tmp_path.as_uri()).batch(50)
    for path in sorted(tmp_path.iterdir()) if cold else ():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with contextlib.closing(ds.loader(prefetch="20MB")) as loader:
        found = [int(bytes(one[:8]).split(b"-")[0]) for batch in loader for one in batch["data"]]
        stats = loader.stats()
    assert found == list(range(SHARDS * 600))
    assert stats.reads == stats.counters["fetch.requests"] > SHARDS
    assert stats.counters["fetch.bytes"] > SHARDS * 600 * 9000


def test_windows_of_raw_records_in_batches(tmp_path: Path) -> None:
    for number in range(SHARDS):
        _tfrecord(tmp_path / str(number), range(number * EACH, (number + 1) * EACH))
    with contextlib.closing(hr.Dataset.open(tmp_path.as_uri()).windows(3).batch(4).loader()) as loader:
        found = [[int(bytes(one)) for one in window] for batch in loader for window in batch["data"]]
    assert found == [[n, n + 1, n + 2] for n in range(SHARDS * EACH - 2) if n % EACH < EACH - 2]


def test_a_file_replaced_after_it_was_opened_is_named(tmp_path: Path) -> None:
    _tfrecord(tmp_path / "0", range(EACH))
    ds = hr.Dataset.open(tmp_path.as_uri()).batch(4)
    _tfrecord(tmp_path / "0", range(EACH + 1))
    with contextlib.closing(ds.loader()) as loader, pytest.raises(ChangedError, match=r"0\.tfrecord"):
        list(loader)
