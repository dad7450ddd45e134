"""A record's own ``__key__`` is its sample's key, by one rule, in every format whose records have fields."""

from __future__ import annotations

import csv
import json
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example as always
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import BadSampleError
from headrace.catalog.record_keys import key_of
from headrace.pack import PackOptions, pack, unpack
from headrace.pack.examples import RecordWriter, example

Keys = Sequence[str | None]
"""Of the records of one shard; None: it has none."""


def parquet(path: Path, keys: Keys) -> None:
    pq.write_table(table(keys), path.with_suffix(".parquet"), row_group_size=2)


def arrow(path: Path, keys: Keys) -> None:
    with pa.OSFile(str(path.with_suffix(".arrow")), "wb") as file, pa.ipc.new_file(file, table([]).schema) as writer:
        writer.write_table(table(keys), max_chunksize=2)


def table(keys: Keys) -> pa.Table:
    return pa.table({"x": pa.array(range(len(keys)), pa.int64()), "__key__": pa.array(keys, pa.string())})


def lines(path: Path, keys: Keys) -> None:
    rows = [{"x": x} | ({} if key is None else {"__key__": key}) for x, key in enumerate(keys)]
    path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def cells(path: Path, keys: Keys) -> None:
    with path.with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerow(["x", "__key__"])
        writer.writerows([x, key or ""] for x, key in enumerate(keys))


def numbers(path: Path, keys: Keys) -> None:
    np.savez(path.with_suffix(".npz"), x=np.arange(len(keys)), __key__=np.array([key or "" for key in keys], "U20"))


def records(path: Path, keys: Keys) -> None:
    with path.with_suffix(".tfrecord").open("wb") as file:
        writer = RecordWriter(file)
        for x, key in enumerate(keys):
            writer.add(example({"x": x, "__key__": key}))


def offsets(head: bytes, items: list[bytes]) -> bytes:
    at = np.cumsum([4 * (len(items) + 2) + len(head), *map(len, items)]).astype("<u4")
    return len(items).to_bytes(4, "little") + at.tobytes() + head + b"".join(items)


def mds(path: Path, keys: Keys) -> None:
    about = {"column_names": ["__key__", "x"], "column_encodings": ["str", "int"], "column_sizes": [None, 8]}
    texts = [(key or "").encode() for key in keys]
    items = [len(one).to_bytes(4, "little") + one + x.to_bytes(8, "little") for x, one in enumerate(texts)]
    head = json.dumps(about | {"format": "mds", "version": 2}).encode()
    path.with_suffix(".mds").write_bytes(offsets(head, items))


def litdata(path: Path, keys: Keys) -> None:
    leaf: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
    tree = {"type": "builtins.dict", "context": json.dumps(["x", "__key__"]), "children_spec": [leaf, leaf]}
    texts = [(key or "").encode() for key in keys]
    sizes = [(8).to_bytes(4, "little") + len(one).to_bytes(4, "little") for one in texts]
    items = [size + x.to_bytes(8, "little") + one for x, (size, one) in enumerate(zip(sizes, texts, strict=True))]
    chunk = path.with_name(f"chunk-0-{path.name}.bin")
    chunk.write_bytes(offsets(b"", items))
    chunks = [{"filename": one.name, "chunk_bytes": one.stat().st_size} for one in sorted(path.parent.glob("*.bin"))]
    config = {"data_format": ["int", "str"], "data_spec": json.dumps([1, tree]), "compression": None}
    (path.parent / "index.json").write_text(json.dumps({"chunks": chunks, "config": config}))


WRITERS: dict[str, Callable[[Path, Keys], None]] = {
    "parquet": parquet,
    "arrow": arrow,
    "jsonl": lines,
    "csv": cells,
    "npz": numbers,
    "tfrecord": records,
    "mds": mds,
    "litdata": litdata,
}

read_example = hr.decode.example(single=["x"])
text = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n", exclude_categories=["Cs"]), max_size=6)
one_shard = st.lists(st.none() | text | st.sampled_from(["a", "b", "00000001"]), min_size=1, max_size=5)


def opened(kind: str, folder: Path) -> hr.Dataset:
    found = hr.Dataset.open(folder, format=kind)
    return found.map(hr.decode.example(single=["x"])) if kind == "tfrecord" else found


def written(kind: str, folder: Path, shards: Sequence[Keys]) -> None:
    folder.mkdir(parents=True)
    for number, keys in enumerate(shards):
        WRITERS[kind](folder / f"{number}", keys)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("a/b", "a/b"),
        ("ü", "ü"),
        (b"a", "a"),
        (memoryview("ü".encode()), "ü"),
        ([b"a"], "a"),
        (np.array("a"), "a"),
        (np.bytes_(b"a"), "a"),
        (None, "7"),
        ("", "7"),
        (b"", "7"),
        (5, "7"),
        (1.5, "7"),
        (True, "7"),
        ("\ud800", "7"),
        (b"\xff", "7"),
        ([], "7"),
        ([b"a", b"b"], "7"),
        ({"a": 1}, "7"),
        (np.array(["a"]), "7"),
        (np.int64(3), "7"),
    ],
)
def test_text_names_a_record_and_nothing_else_does(value: Any, key: str) -> None:
    assert key_of(value, "7") == key


@pytest.mark.parametrize("kind", WRITERS)
@always(shards=[["00000001", "00000001"]], seed=None)  # a number that is its row's own key, and another's before it
@settings(max_examples=10, deadline=None)
@given(shards=st.lists(one_shard, min_size=1, max_size=3), seed=st.none() | st.integers(0, 9))
def test_one_rule_for_all_formats(kind: str, shards: list[Keys], seed: int | None) -> None:
    wanted = [key or f"{row:08d}" for keys in shards for row, key in enumerate(keys)]
    own = [key or None for keys in shards for key in keys]
    values = [row for keys in shards for row in range(len(keys))]
    with tempfile.TemporaryDirectory() as scratch:
        written(kind, Path(scratch) / "set", shards)
        dataset = opened(kind, Path(scratch) / "set")
        found = list(dataset)
        assert [one["__key__"] for one in found] == wanted
        assert [int(one["x"]) for one in found] == values
        assert all(set(one) == {"__key__", "x", "__shard__"} for one in found)
        assert [key for batch in dataset.batch(2) for key in batch["__key__"]] == wanted
        assert [one["__key__"] for one in dataset.at(range(len(wanted)))] == wanted

        for key in wanted:
            rows = [row for row, one in enumerate(wanted) if one == key]
            only_own = all(own[row] for row in rows)  # of others, one whose number it is may come before
            found = dataset[key]
            assert key in dataset
            assert found["__key__"] == key
            assert int(found["x"]) in [values[row] for row in (rows[:1] if only_own else rows)]
        assert "no key at all" not in dataset

        ordered = dataset if seed is None else dataset.shuffle(seed)
        everything = [one["__key__"] for one in ordered]
        assert sorted(everything) == sorted(wanted)
        loader = ordered.loader()
        before = [one["__key__"] for _, one in zip(range(len(wanted) // 2), loader, strict=False)]
        again = opened(kind, Path(scratch) / "set")
        rest = (again if seed is None else again.shuffle(seed)).loader()
        rest.load_state_dict(loader.state_dict())
        assert before + [one["__key__"] for one in rest] == everything


@pytest.mark.parametrize("kind", WRITERS)
def test_a_child_process_windows_and_pickles_follow_it(tmp_path: Path, kind: str) -> None:
    written(kind, tmp_path / "set", [["a", None, "b"], ["c", "d"]])
    dataset = opened(kind, tmp_path / "set")
    batches = dataset.batch(2).loader(where="process")
    assert [key for batch in batches for key in batch["__key__"]] == ["a", "00000001", "b", "c", "d"]
    assert pickle.loads(pickle.dumps(dataset))["c"]["__key__"] == "c"
    if kind != "tfrecord":  # of a window, `hr.decode.example` would have to read several at once
        windows = hr.Dataset.open(tmp_path / "set", format=kind).windows(2)
        assert [one["__key__"] for one in windows] == ["a", "00000001", "c"]


@pytest.mark.parametrize("layout", ["webdataset", "tfrecord", "parquet"])
@pytest.mark.parametrize("kind", WRITERS)
def test_every_key_comes_back_from_a_packing(tmp_path: Path, kind: str, layout: str) -> None:
    written(kind, tmp_path / "set", [["a/17", None, "b"], ["c", "d/e/f", None]])
    function = f"{__name__}:read_example" if kind == "tfrecord" else None
    pack(tmp_path / "set", tmp_path / "packed", PackOptions(layout=layout, source_format=kind, function=function))
    unpack(tmp_path / "packed", tmp_path / "back")
    stem = "chunk-0-" if kind == "litdata" else ""
    keys = ["a/17", "b", "c", "d/e/f", f"{stem}0/00000001", f"{stem}1/00000002"]
    back = tmp_path / "back"
    found = [path.relative_to(back).as_posix() for path in back.rglob("*") if path.is_file()]
    part = "x.npy" if kind == "npz" and layout == "webdataset" else "x"
    assert sorted(found) == [f"{key}.{part}" for key in sorted(keys)]

    packed = hr.Dataset.open(tmp_path / "packed")
    packed = packed.map(hr.decode.example()) if layout == "tfrecord" else packed
    assert sorted(one["__key__"] for one in packed) == sorted(keys)
    assert packed["d/e/f"]["__key__"] == "d/e/f"


@pytest.mark.parametrize("layout", ["tfrecord", "parquet"])
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_lines_packed_as_columns_keep_their_keys(tmp_path: Path, kind: str, layout: str) -> None:
    written(kind, tmp_path / "set", [["a/17", None, "b"], ["c"]])
    pack(tmp_path / "set", tmp_path / "packed", PackOptions(layout=layout, source_format=kind, columns="x:i64"))
    packed = hr.Dataset.open(tmp_path / "packed")
    packed = packed.map(hr.decode.example(single=["x"])) if layout == "tfrecord" else packed
    assert {one["__key__"]: int(one["x"]) for one in packed} == {"a/17": 0, "0/00000001": 1, "b": 2, "c": 0}


@pytest.mark.parametrize("columns", [None, "x:i64"])
def test_two_of_one_key_are_not_packed_into_one_shard(tmp_path: Path, columns: str | None) -> None:
    written("jsonl", tmp_path / "set", [["a", "a"]])
    options = PackOptions(layout="tfrecord", source_format="jsonl", columns=columns)
    with pytest.raises(BadSampleError, match="this key already"):
        pack(tmp_path / "set", tmp_path / "packed", options)


@pytest.mark.parametrize("columns", [None, "x:i64"])
@pytest.mark.parametrize("kind", ["jsonl", "csv", "mds", "parquet"])
def test_an_expression_sees_keys_of_ones_own(tmp_path: Path, kind: str, columns: str | None) -> None:
    written(kind, tmp_path / "set", [["cats/1", None, "dogs/2"], ["cats/3"]])
    where = 'key.startswith("cats/") or key == "0/00000001"'
    options = PackOptions(layout="parquet", source_format=kind, where=where, columns=columns)
    pack(tmp_path / "set", tmp_path / "packed", options)
    assert [one["__key__"] for one in hr.Dataset.open(tmp_path / "packed")] == ["cats/1", "0/00000001", "cats/3"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_paths_may_name_its_samples(tmp_path: Path, suffix: str) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(name)
    rows = pa.table({"path": ["a.txt", "b.txt", "c.txt"], "__key__": ["007", "", "z"], "label": [1, 2, 3]})
    if suffix == "csv":
        pa.csv.write_csv(rows, tmp_path / "t.csv")
    else:
        pq.write_table(rows, tmp_path / "t.parquet")
    dataset = hr.Dataset.open(tmp_path / f"t.{suffix}")
    for _ in range(2):  # the second time whole objects come from the cache, where there is one
        assert [(one["__key__"], bytes(one["txt"]), one["label"]) for one in dataset] == [
            ("007", b"a", 1),
            ("b", b"b", 2),
            ("z", b"c", 3),
        ]
    assert bytes(dataset["z"]["txt"]) == b"c"


def test_of_tables_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    written("parquet", tmp_path / "set", [["a", "b"]])
    assert [one["__key__"] for one in hr.Dataset.open(tmp_path / "set", columns=["x"])] == ["00000000", "00000001"]
    assert [one["__key__"] for one in hr.Dataset.open(tmp_path / "set", columns=["x", "__key__"])] == ["a", "b"]
    table = next(iter(hr.Dataset.open(tmp_path / "set").batch(2).to_arrow().loader()))
    assert table.to_pydict() == {"x": [0, 1], "__key__": ["a", "b"]}


def test_text_that_is_no_unicode_in_a_table_ends_nothing(tmp_path: Path) -> None:
    data = pa.py_buffer(b"a\xffb")
    keys = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 2, 3], "<i4")), data])
    pq.write_table(pa.table({"x": [0, 1, 2], "__key__": keys.dictionary_encode()}), tmp_path / "t.parquet")
    dataset = hr.Dataset.open(tmp_path / "t.parquet")
    assert [one["__key__"] for one in dataset] == ["a", "00000001", "b"]
    assert next(iter(dataset.batch(3).loader()))["__key__"] == ["a", "00000001", "b"]
