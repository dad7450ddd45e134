"""Files of tables: what others write is read, what is damaged is named, what is asked for is pruned."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import (
    ChangedError,
    CorruptError,
    HeadraceError,
    InputError,
    NotFoundError,
    UnsupportedError,
)
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.formats.tables.arrow_file import Ipc
from headrace.formats.tables.parquet import Parquet
from headrace.formats.tables.table_samples import as_table
from headrace.store.backends.local import LocalStore
from tests.shard_formats_kit import Shard


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_CACHE_TTL", "0s")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "clicks"
    folder.mkdir()
    return folder


def numbers(first: int, count: int) -> pa.Table:
    texts = pa.array([f"t{i}" for i in range(first, first + count)], pa.string())
    return pa.table({"n": np.arange(first, first + count), "text": texts})


WRITERS: dict[str, tuple[Callable[..., Any], dict[str, int]]] = {
    "parquet": (pq.write_table, {"row_group_size": 100}),
    "arrow": (lambda table, path, **options: pa.feather.write_feather(table, str(path), **options), {"chunksize": 100}),
}


def open_below(folder: Path) -> int:
    """Descriptors of this process for files in a folder."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found += os.readlink(f"/proc/self/fd/{name}").startswith(f"{folder}/")
    return found


def table_of(ds: hr.Dataset, batch: int = 1000) -> pa.Table:
    with contextlib.closing(ds.batch(batch).to_arrow().loader()) as loader:
        return pa.concat_tables(loader)


# What others write


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
def test_pyarrow_s_files_are_read_as_pyarrow_reads_them(folder: Path, compression: str, pages: str) -> None:
    rng = random.Random(1)
    table = pa.table(
        {
            "n": pa.array([rng.choice([None, rng.randrange(1 << 40)]) for _ in range(500)]),
            "text": [rng.choice([None, "", "é" * rng.randrange(50)]) for _ in range(500)],
            "list": [rng.choice([None, [], [1, None, 3]]) for _ in range(500)],
            "deep": [{"a": [{"b": i}], "c": None if i % 2 else "x"} for i in range(500)],
            "decimal": pa.array(list(range(500)), pa.decimal128(10, 2)),
            "when": pa.array([datetime.timedelta(hours=i) for i in range(500)]),
            "dotted.name": list(range(500)),
            "map": pa.array([[("k", i)] for i in range(500)], pa.map_(pa.string(), pa.int64())),
        }
    )
    pq.write_table(
        table, folder / "a.parquet", row_group_size=150, compression=compression, data_page_version=pages,
        data_page_size=512, write_page_checksum=True, use_dictionary=["text"],
    )  # fmt: skip
    found = hr.Dataset.open(folder.as_uri())
    assert table_of(found).equals(pq.read_table(folder / "a.parquet").cast(table.schema))
    assert table_of(hr.Dataset.open(folder.as_uri(), columns=["deep", "dotted.name"])).equals(
        table.select(["deep", "dotted.name"])
    )
    assert [row["deep"] for row in found.take(3).loader()] == table["deep"][:3].to_pylist()


def test_duckdb_s_partitions(folder: Path) -> None:
    duckdb.sql(
        "select range as n, range % 3 as day, 's' || range % 7 as site, range * 0.5 as x from range(4000)"
    ).to_parquet(str(folder), partition_by=["day"], overwrite=True)
    ds = hr.Dataset.open(folder.as_uri())
    batch = next(iter(ds.batch(4000).loader()))
    assert sorted(batch) == ["__key__", "__shard__", "day", "n", "site", "x"]
    assert (np.asarray(batch["n"]) % 3 == batch["day"]).all()
    assert all(f"day={day}/" in shard for day, shard in zip(batch["day"], batch["__shard__"], strict=True))
    some = hr.Dataset.open(folder.as_uri(), columns=["site"], where=[("day", "=", 2), ("n", "<", 600)])
    assert table_of(some)["site"].to_pylist() == [f"s{n % 7}" for n in range(2, 600, 3)]


def test_a_folder_as_spark_leaves_it(folder: Path) -> None:
    """By pandas; the names and the files beside are Spark's."""
    frame = pd.DataFrame({"year": [2023, 2024] * 6, "month": [1, 2, 3] * 4, "label": range(12)})
    frame.to_parquet(folder, partition_cols=["year", "month"])
    for number, path in enumerate(sorted(folder.rglob("*.parquet"))):
        name = path.parent / f"part-{number:05d}-6f1c.c000.snappy.parquet"
        path.rename(name)
        (path.parent / f".{name.name}.crc").write_bytes(b"crc\0")
    (folder / "year=2024" / "month=__HIVE_DEFAULT_PARTITION__").mkdir()
    pq.write_table(pa.table({"label": [99]}), folder / "year=2024/month=__HIVE_DEFAULT_PARTITION__/part-9.parquet")
    for name in ("_SUCCESS", "._SUCCESS.crc", "_metadata", "_common_metadata"):
        (folder / name).write_bytes(b"not a table")
    (folder / "_temporary/0").mkdir(parents=True)
    (folder / "_temporary/0/part-0.parquet").write_bytes(b"unfinished")
    found = table_of(hr.Dataset.open(folder.as_uri())).to_pylist()
    wanted = [*frame.to_dict("records"), {"year": 2024, "month": None, "label": 99}]
    assert sorted(found, key=str) == sorted(
        ({n: row[n] for n in ("label", "year", "month")} for row in wanted), key=str
    )
    old = hr.Dataset.open(
        folder.as_uri(), columns=["label", "month"], where=[("year", "<", 2024), ("month", "in", {1, 3})]
    )
    assert len(old) == len(table_of(old)) == 4
    with pytest.raises(InputError, match="holds no samples"):
        hr.Dataset.open(folder.as_uri(), where=[("year", ">", 2024)])


def test_folders_of_names_stay_names(folder: Path) -> None:
    for name in ("a%20b", "7"):
        (folder / f"site={name}").mkdir()
        pq.write_table(numbers(0, 2), folder / f"site={name}" / "0.parquet")
    batch = next(iter(hr.Dataset.open(folder.as_uri()).batch(4).loader()))
    assert batch["site"] == ["7", "7", "a b", "a b"]


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_and_arrow_files(folder: Path, compression: str) -> None:
    table = numbers(0, 300).append_column("kind", pa.array([f"k{i % 3}" for i in range(300)]).dictionary_encode())
    pyarrow.feather.write_feather(table, str(folder / "a.feather"), chunksize=70, compression=compression)
    with pa.OSFile(str(folder / "b.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_batch(table.to_batches()[0].slice(0, 0))
        writer.write_table(table)
    ds = hr.Dataset.open(folder.as_uri(), format="arrow")
    assert len(ds) == 600
    assert table_of(ds).cast(table.schema).equals(pa.concat_tables([table, table]))
    assert next(iter(ds.batch(3).loader()))["kind"] == ["k0", "k1", "k2"]
    assert (
        table_of(hr.Dataset.open(folder.as_uri(), format="arrow", columns=["kind", "n"]))["n"].to_pylist()
        == [*range(300)] * 2
    )


def test_one_file_named_by_itself(folder: Path) -> None:
    pq.write_table(numbers(0, 9), folder / "x.parquet")
    pq.write_table(pa.table({"path": ["a.png"], "n": [1]}), folder / "paths.parquet")
    pyarrow.feather.write_feather(numbers(0, 9), str(folder / "x.feather"))
    spark = folder / "dir.parquet"
    spark.mkdir()
    pq.write_table(numbers(0, 5), spark / "part-0.parquet")
    assert len(hr.Dataset.open((folder / "x.parquet").as_uri())) == 9
    assert len(hr.Dataset.open((folder / "x.feather").as_uri(), format="arrow")) == 9
    assert len(hr.Dataset.open(spark.as_uri())) == 5
    paths = (folder / "paths.parquet").as_uri()
    assert hr.Dataset.open(paths).leaves[0].index.specs(np.array([0]))[0][0] == "a"
    assert next(iter(hr.Dataset.open(paths, format="parquet").loader()))["path"] == "a.png"


# Which are tables


def test_what_is_found_without_being_told(folder: Path) -> None:
    pq.write_table(numbers(0, 9), folder / "x.parquet")
    assert len(hr.Dataset.open(folder.as_uri())) == 9
    assert len(hr.Dataset.open(folder.as_uri(), format="objects")) == 1
    assert len(hr.Dataset.open(folder.as_uri(), by="object")) == 1
    (folder / "x.png").write_bytes(b"png")
    assert len(hr.Dataset.open(folder.as_uri())) == 1, "one sample of two objects, as ever"
    assert len(hr.Dataset.open(folder.as_uri(), format="parquet")) == 9
    for wrong in (
        lambda: hr.Dataset.open(folder.as_uri(), columns=["n"]),
        lambda: hr.Dataset.open(folder.as_uri(), format="objects", where=[("n", "=", 1)]),
        lambda: hr.Dataset.open(folder.as_uri(), by="class", format="parquet"),
        lambda: hr.Dataset.open(folder.as_uri(), format="parkett"),
    ):
        with pytest.raises(InputError):
            wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        {"columns": ["nope"]}, {"columns": "n"}, {"columns": []}, {"where": [("nope", "=", 1)]}, {"where": "n > 3"},
        {"where": [("n", "~", 1)]}, {"where": [("n", "in", "abc")]}, {"where": [("n", "=")]}, {"where": []},
        {"where": [("text", ">", 3)]},
    ],
)  # fmt: skip
def test_wrong_wishes_are_named(folder: Path, wrong: dict[str, Any]) -> None:
    pq.write_table(numbers(0, 9), folder / "x.parquet")
    with pytest.raises(InputError):
        hr.Dataset.open(folder.as_uri(), **wrong)


# Which bytes are read


def test_only_columns_and_row_groups_that_are_wanted_are_read(folder: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(4)]
    table = pa.table({"n": np.arange(40_000), **{name: rng.random(40_000) for name in names}})
    pq.write_table(table, folder / "x.parquet", row_group_size=20_000, compression="none", use_dictionary=False)
    fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=str(folder / "none"), size=0)), None, Metrics())
    with contextlib.closing(fetcher):
        ds = hr.Dataset.open(folder.as_uri(), columns=["c3"], where=[("n", "<", 10)])
        assert len(ds) == 20_000, "rows of the row groups that may match"
        with contextlib.closing(ds.batch(64).loader(fetcher=fetcher)) as loader:
            assert sum(len(batch["c3"]) for batch in loader) == 10
            assert loader.stats().filtered == 20_000 - 10
        assert fetcher.stats().counters["fetch.bytes"] < 2.2 * 20_000 * 8


@given(data=st.data())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_where_leaves_what_pyarrow_leaves(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("where")
    values = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 9)), min_size=1, max_size=40))
    texts = data.draw(st.lists(st.sampled_from(["a", "b", "", None]), min_size=len(values), max_size=len(values)))
    for day in (1, 2):
        (folder / f"day={day}").mkdir()
        table = pa.table({"n": pa.array(values, pa.int64()), "t": pa.array(texts, pa.string())})
        pq.write_table(table, folder / f"day={day}" / "0.parquet", row_group_size=data.draw(st.integers(1, 9)))
    term = st.one_of(
        st.tuples(st.sampled_from(["n", "day"]), st.sampled_from(["=", "!=", "<", ">=", ">"]), st.integers(0, 9)),
        st.tuples(st.just("t"), st.sampled_from(["==", "!=", "<="]), st.sampled_from(["a", "b", ""])),
        st.tuples(st.just("n"), st.sampled_from(["in", "not in"]), st.lists(st.integers(0, 9), min_size=1, max_size=3)),
    )
    where = data.draw(st.lists(st.lists(term, min_size=1, max_size=3), min_size=1, max_size=2))
    expected = pa.dataset.dataset(folder, partitioning="hive").to_table(filter=pq.filters_to_expression(where))
    found = []
    with contextlib.suppress(InputError):  # all row groups are ruled out
        loader = hr.Dataset.open(folder.as_uri(), where=where).batch(7).to_arrow().loader()
        found = [row for table in loader for row in table.to_pylist()]
    assert found == expected.select(["n", "t", "day"]).to_pylist()


def test_rows_share_their_parts_and_blocks_begin_with_row_groups(folder: Path) -> None:
    for name in "ab":
        pq.write_table(numbers(0, 95), folder / f"{name}.parquet", row_group_size=10)
    index = as_table(hr.Dataset.open(folder.as_uri()).leaves[0].index)
    specs = index.specs(np.array([0, 9, 10, 95]))
    assert specs[0][1] is specs[1][1]
    assert specs[0][1] != specs[2][1]
    assert [key for key, _, _ in specs] == ["00000000", "00000009", "00000010", "00000000"]
    assert {spec[2]["__shard__"] for spec in specs} == {"a.parquet", "b.parquet"}
    starts = set(index.first.tolist())
    for size in (1, 300, 1000, 1 << 30):
        blocks = index.blocks(size).tolist()
        assert blocks[0] == 0
        assert blocks == sorted(set(blocks))
        assert {0, 95} <= set(blocks) <= starts
    assert len(index.blocks(1)) == 20
    assert len(index.blocks(1 << 30)) == 2
    assert index.folders().tolist() == [0, 95]
    with pytest.raises(IndexError):
        index.specs(np.array([190]))


def test_two_views_of_the_same_files_have_other_fingerprints(folder: Path) -> None:
    pq.write_table(numbers(0, 9), folder / "x.parquet")
    opened = [
        hr.Dataset.open(folder.as_uri(), **wish).fingerprint
        for wish in ({}, {"columns": ["n"]}, {"where": [("n", ">", 1)]}, {"where": [("n", ">", 2)]}, {})
    ]
    assert opened[0] == opened[4]
    assert len(set(opened)) == 4


# What is damaged


def _cut(data: bytes) -> bytes:
    return data[:-20]


def _no_magic(data: bytes) -> bytes:
    return data[:-4] + b"NOPE"


def _long_footer(data: bytes) -> bytes:
    return data[:-8] + b"\xff\xff\xff\x7f" + data[-4:]


def _nothing(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [_cut, _no_magic, _long_footer, _nothing])
@pytest.mark.parametrize("columnar", [True, False])
def test_a_damaged_footer_is_named_when_it_is_opened(
    folder: Path, damage: Callable[[bytes], bytes], columnar: bool
) -> None:
    for name in "ab":
        pq.write_table(numbers(0, 50), folder / f"{name}.parquet")
    (folder / "b.parquet").write_bytes(damage((folder / "b.parquet").read_bytes()))
    with pytest.raises(CorruptError, match=r"b\.parquet"):
        hr.Dataset.open(folder.as_uri())


@pytest.mark.parametrize("columnar", [True, False])
def test_a_damaged_row_group_is_named_and_what_comes_before_is_delivered(folder: Path, columnar: bool) -> None:
    pq.write_table(
        numbers(0, 300), folder / "x.parquet", row_group_size=100, write_page_checksum=True, compression="none"
    )
    chunk = pq.read_metadata(folder / "x.parquet").row_group(1).column(0)
    with open(folder / "x.parquet", "r+b") as file:
        file.seek(chunk.data_page_offset + chunk.total_compressed_size - 200)
        file.write(b"\xff" * 60)
    ds = hr.Dataset.open(folder.as_uri())
    ds = ds if columnar else ds.map(_as_it_is)
    seen: list[int] = []
    loader = ds.batch(50).loader()
    with pytest.raises(InputError, match=r"x\.parquet.*row group 1"):
        seen.extend(n for batch in loader for n in batch["n"].tolist())
    assert seen == list(range(100))
    budget = ds.map(_as_it_is, on_error=hr.Skip(max_count=100)).batch(50).loader()
    with contextlib.closing(budget):
        assert [n for batch in budget for n in batch["n"].tolist()] == [*range(100), *range(200, 300)]
        assert len(budget.ledger) == 100


def _as_it_is(sample: Any) -> Any:
    return sample


@pytest.mark.parametrize("columnar", [True, False])
def test_a_file_replaced_since_it_was_indexed_is_refused(folder: Path, columnar: bool) -> None:
    pq.write_table(numbers(0, 300), folder / "x.parquet")
    ds = hr.Dataset.open(folder.as_uri())
    pq.write_table(numbers(7, 900), folder / "x.parquet")
    os.utime(folder / "x.parquet", (1, 1))
    ds = ds if columnar else ds.map(_as_it_is)
    with contextlib.closing(ds.batch(50).loader()) as loader, pytest.raises(ChangedError, match=r"x\.parquet"):
        list(loader)


@pytest.mark.parametrize("replace", ["in place", "by another file"])
@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_replaced_while_it_is_read_is_refused(folder: Path, kind: str, replace: str) -> None:
    write, options = WRITERS[kind]
    write(numbers(0, 20_000), folder / f"x.{kind}", **options)
    ds = hr.Dataset.open(folder.as_uri(), format=kind)
    seen: list[int] = []

    def read(loader: hr.Loader) -> None:
        for batch in loader:
            seen.extend(batch["n"].tolist())
            if len(seen) == 500:
                where = folder / (f"x.{kind}" if replace == "in place" else "other")
                write(numbers(7, 20_000), where, **options)
                os.utime(where, (1, 1))
                os.replace(where, folder / f"x.{kind}")

    with (
        contextlib.closing(ds.batch(50).loader(prefetch="1KB")) as loader,
        pytest.raises(ChangedError, match=rf"x\.{kind}"),
    ):
        read(loader)
    assert seen == list(range(len(seen)))
    assert 500 <= len(seen) < 20_000


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_a_file_written_as_soon_as_it_is_open_is_not_called_damaged(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, options = WRITERS[kind]
    write(numbers(0, 2000), folder / f"x.{kind}", **options)
    ds = hr.Dataset.open(folder.as_uri(), format=kind)
    open_file = LocalStore.open_file

    def and_write(store: LocalStore, key: str, version: str | None) -> int:
        descriptor = open_file(store, key, version)
        file = folder / f"x.{kind}"
        file.write_bytes(b"x" * (file.stat().st_size // 2))
        return descriptor

    monkeypatch.setattr(LocalStore, "open_file", and_write)
    with contextlib.closing(ds.batch(50).loader()) as loader, pytest.raises(ChangedError, match=rf"x\.{kind}"):
        list(loader)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_files_open_between_their_row_groups_are_few_and_given_back(folder: Path, kind: str) -> None:
    write, options = WRITERS[kind]
    for number in range(60):
        write(numbers(1000 * number, 1000), folder / f"{number:02d}.{kind}", **options)
    ds = hr.Dataset.open(folder.as_uri(), format=kind).shuffle(1).batch(50)
    most, seen = 0, 0
    with contextlib.closing(ds.loader(prefetch="4MB")) as loader:
        for batch in loader:
            seen += len(batch["n"])
            most = max(most, open_below(folder))
        assert seen == 60_000
        assert 2 <= most <= 40
        assert open_below(folder) == 0
        next(iter(loader))
    assert open_below(folder) == 0  # one that was not read to its end


def test_a_changed_schema_is_named_with_file_and_column_unless_the_columns_are_the_same(folder: Path) -> None:
    pq.write_table(numbers(0, 5), folder / "a.parquet")
    pq.write_table(pa.table({"n": [1.5], "text": ["x"], "new": [1]}), folder / "b.parquet")
    with pytest.raises(CorruptError, match=r"b\.parquet.*'n' is double.*a\.parquet has int64"):
        hr.Dataset.open(folder.as_uri())
    with pytest.raises(CorruptError, match=r"b\.parquet.*'n'"):
        hr.Dataset.open(folder.as_uri(), columns=["n", "text"])
    assert len(hr.Dataset.open(folder.as_uri(), columns=["text"])) == 6
    pq.write_table(pa.table({"n": [1], "text": ["x"], "new": [1]}), folder / "b.parquet")
    with pytest.raises(CorruptError, match=r"b\.parquet.*'new'.*missing"):
        hr.Dataset.open(folder.as_uri())


def test_files_and_row_groups_without_rows(folder: Path) -> None:
    pq.write_table(numbers(0, 0), folder / "a.parquet")
    with pq.ParquetWriter(folder / "b.parquet", numbers(0, 1).schema) as writer:
        for count in (0, 3, 0, 2):
            writer.write_table(numbers(0, count), row_group_size=10)
    assert table_of(hr.Dataset.open(folder.as_uri()))["n"].to_pylist() == [0, 1, 2, 0, 1]
    (folder / "b.parquet").unlink()
    with pytest.raises(InputError, match="holds no samples"):
        hr.Dataset.open(folder.as_uri())


def test_what_is_no_such_file_says_what_to_do(folder: Path) -> None:
    (folder / "x.arrow").write_bytes(b"FEA1" + b"\0" * 60 + b"FEA1")
    with pytest.raises(UnsupportedError, match="version 1"):
        hr.Dataset.open(folder.as_uri(), format="arrow")
    with pytest.raises(CorruptError, match=r"x\.arrow"):
        hr.Dataset.open(folder.as_uri(), format="parquet")
    shutil.rmtree(folder)
    with pytest.raises(NotFoundError):
        hr.Dataset.open(folder.as_uri(), format="parquet")


def test_text_that_is_no_utf_8_is_a_named_fault(folder: Path) -> None:
    wrong = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(np.array([0, 2], "<i4")), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"text": wrong}), folder / "x.parquet")
    with pytest.raises(CorruptError, match=r"x\.parquet.*UTF-8"):
        list(hr.Dataset.open(folder.as_uri()).batch(2).loader())


# Fuzz


def _written(kind: str) -> bytes:
    table = pa.table(
        {
            "n": pa.array([1, None, 3] * 20), "t": ["a", None, "ccc"] * 20, "l": [[1], None, [2, 3]] * 20,
            "d": pa.array(["x", "y", "x"] * 20).dictionary_encode(),
        }
    )  # fmt: skip
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink, row_group_size=25, compression="none")
    else:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=25)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("kind", [Parquet(), Ipc()], ids=["parquet", "arrow"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_bytes_are_no_crash_and_no_surprise(kind: Any, data: st.DataObject) -> None:
    whole = bytearray(_written(kind.name))
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    stop = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    mended = bytes(whole[:stop]) + data.draw(st.sampled_from([b"", bytes(whole[-8:]), bytes(whole[-200:])]))
    try:
        footer = kind.parse(kind.footer(Shard(mended)), len(mended))
        for group in range(min(len(footer.rows), 4)):
            ranges = footer.ranges(group, footer.schema.names)
            assert all(0 <= start < stop <= len(mended) for start, stop in ranges)
            footer.read(group, footer.schema.names, [(start, mended[start:stop]) for start, stop in ranges]).to_pylist()
    except (HeadraceError, pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError):
        pass


@given(
    data=st.binary(max_size=300), end=st.sampled_from([b"", b"PAR1", b"ARROW1", b"\x10\0\0\0PAR1", b"\x10\0\0\0ARROW1"])
)
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_named_as_what_they_are_not(data: bytes, end: bytes) -> None:
    for kind in (Parquet(), Ipc()):
        with pytest.raises(InputError):
            kind.footer(Shard(data + end))


def test_too_many_open_files_are_no_damage(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(100))}), tmp_path / "a.parquet")
    script = """
import os, resource, sys
import headrace as hr
from headrace.base.errors import NoRoomError

loader = hr.Dataset.open(sys.argv[1], format="parquet").batch(50).to_arrow().loader()
assert sum(table.num_rows for table in loader) == 100
free = os.dup(0)
os.close(free)
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:  # the file itself can be opened, but not a second time, by pyarrow
    list(loader)
except NoRoomError as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script, f"file://{tmp_path}"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "a.parquet: too many open files" in ran.stdout


def test_rows_of_a_large_row_group_share_its_read(folder: Path) -> None:
    """Larger than what neighbours are joined to, and read row by row."""
    values = np.random.default_rng(1).integers(0, 1 << 62, (1500, 400))
    table = pa.table({"tokens": list(values), "x": range(len(values))})
    pq.write_table(table, folder / "a.parquet", compression=None, use_dictionary=False)
    for dataset in (hr.Dataset.open(folder).map(dict), hr.Dataset.open(folder).blocks(401, column="tokens")):
        loader = dataset.batch(64).loader(prefetch="8MB")
        assert sum(len(batch["tokens"]) for batch in loader) in (1500, 1499)
        assert loader.stats().reads <= 3
