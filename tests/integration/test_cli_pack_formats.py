"""pack to TFRecord and Parquet, text to columns, --where, and the index written with the shards."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from headrace import Dataset
from headrace.base.errors import CorruptError
from headrace.base.settings import CacheSettings, Settings
from headrace.formats.opening_targets import open_source
from headrace.formats.tfrecord.example import example
from headrace.namespace import Namespace
from headrace.pack import PackOptions, pack, unpack
from tests.integration.cli_kit import Shell, shell  # noqa: F401

COUNT, WIDTH = 400, 5
FORMATS = ("webdataset", "tfrecord", "parquet")
SUFFIX = {"webdataset": ".tar", "tfrecord": ".tfrecord", "parquet": ".parquet"}
COLUMNS = f"label:i64, x:f32[{WIDTH}]"


def make_tree(folder: Path) -> dict[str, bytes]:
    made = {}
    for number in range(COUNT // 4):
        made[f"{number % 3}/{number:03d}.jpg"] = os.urandom(number * 13)
        made[f"{number % 3}/{number:03d}.cls"] = b"%d" % number
    for name, data in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return made


def make_text(folder: Path, form: str, *, bad: bool = False) -> list[dict[str, Any]]:
    """Two files of rows; with `bad`, rows 7 of the first and 3 and 4 of the second are none."""
    folder.mkdir()
    numbers = random.Random(3)
    rows: list[dict[str, Any]] = []
    for file in range(2):
        lines: list[Any] = []
        for place in range(COUNT // 2):
            row = {"label": numbers.randrange(-5, 10), "x": [np.float32(numbers.random()) for _ in range(WIDTH)]}
            cells: list[Any] = [row["label"], *map(repr, map(float, row["x"]))]
            if bad and (file, place) == (0, 7):
                cells[2] = "none"
            elif bad and (file, place) == (1, 3):
                cells.append("1")
            elif bad and (file, place) == (1, 4):
                cells[0] = 1 << 70
            else:
                rows.append(row)
            lines.append(cells)
        if form == "csv":
            with (folder / f"{file}.csv").open("w", newline="") as out:
                csv.writer(out).writerows([["label", *(f"x{i}" for i in range(WIDTH))], *lines])
        else:
            values = [{"label": one[0], "x": [float(v) if v != "none" else v for v in one[1:]]} for one in lines]
            (folder / f"{file}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in values))
    return rows


def digests(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir() if p.is_file()}


def rows_of(folder: Path, form: str) -> list[dict[str, Any]]:
    """What pyarrow, or our reader of TFRecord, finds in the shards."""
    if form == "parquet":
        tables = [pq.ParquetFile(path).read() for path in sorted(folder.glob("*.parquet"))]
        return [row for table in tables for row in table.to_pylist()]
    with Dataset.open(folder.as_uri()).loader() as loader:
        found = [example(sample["data"]) for sample in loader]
    return [{name: v[0] if isinstance(v, list) else v.tolist() for name, v in row.items()} for row in found]


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_bytes_with_any_number_of_workers_and_again_from_the_notes(tmp_path: Path, form: str) -> None:
    make_tree(tmp_path / "tree")
    made = []
    for workers in (1, 5):
        options = PackOptions(shard_size=12_000, seed=4, layout=form, workers=workers, verify="full")
        out = tmp_path / str(workers)
        packed = pack((tmp_path / "tree").as_uri(), out.as_uri(), options)
        assert (packed.samples, packed.skipped) == (COUNT // 4, 0)
        assert packed.made == packed.shards > 5
        made.append(digests(out))
    assert made[0] == made[1]
    assert {Path(name).suffix for name in made[0]} == {SUFFIX[form]}
    lost = sorted((tmp_path / "1").glob(f"*{SUFFIX[form]}"))[2]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "1").rglob("*") if path.is_file() and path != lost}
    lost.unlink()
    options = PackOptions(shard_size=12_000, seed=4, layout=form)
    assert pack((tmp_path / "tree").as_uri(), (tmp_path / "1").as_uri(), options).made == 1
    assert digests(tmp_path / "1") == made[0]
    again = {path: path.stat().st_mtime_ns for path in (tmp_path / "1").rglob("*") if path.is_file() and path != lost}
    changed = {path.name for path in before if again[path] != before[path]}
    assert changed <= {"000002.json", "index.json", "meta.json", "rows", "at", "first"}


@pytest.mark.parametrize("form", ["tfrecord", "parquet"])
def test_objects_come_back_exactly_from_records(tmp_path: Path, form: str) -> None:
    tree = make_tree(tmp_path / "tree")
    options = PackOptions(shard_size=20_000, seed=1, layout=form)
    pack((tmp_path / "tree").as_uri(), (tmp_path / "out").as_uri(), options)
    rows = rows_of(tmp_path / "out", form)
    packed = {}
    for row in rows:
        key = row["__key__"] if form == "parquet" else row["__key__"].decode()
        packed |= {f"{key}.jpg": row["jpg"], f"{key}.cls": row["cls"]}
    assert packed == tree
    assert unpack((tmp_path / "out").as_uri(), (tmp_path / "back").as_uri()).objects == len(tree)
    back = tmp_path / "back"
    assert {p.relative_to(back).as_posix(): p.read_bytes() for p in back.rglob("*") if p.is_file()} == tree
    order = [sample["__key__"] for sample in Dataset.open((tmp_path / "tree").as_uri()).shuffle(1).loader()]
    assert [row["__key__"] if form == "parquet" else row["__key__"].decode() for row in rows] == order


@pytest.mark.parametrize("source", ["csv", "jsonl"])
@pytest.mark.parametrize("form", ["tfrecord", "parquet"])
def test_text_becomes_typed_columns(shell: Shell, source: str, form: str) -> None:  # noqa: F811
    rows = make_text(shell.folder / "text", source)
    shell.file("s.toml", f'[columns]\nlabel = "i64"\nx = "f32[{WIDTH}]"\n')
    arguments = ("pack", "text", "--format", form, "--shard-size", "5kB")
    packed = shell.json(*arguments[:2], "out", *arguments[2:], "--columns", COLUMNS)
    assert (packed["samples"], packed["skipped"]) == (COUNT, 0)
    assert packed["shards"] > 2
    found = rows_of(shell.folder / "out", form)
    label = [row["label"] if form == "parquet" else row["label"][0] for row in found]
    assert label == [row["label"] for row in rows]
    assert np.array_equal(
        np.array([row["x"] for row in found], np.float32), np.array([row["x"] for row in rows], np.float32)
    )
    shell.run(*arguments[:2], "again", *arguments[2:], "--schema", "s.toml", "-j", "4")
    assert digests(shell.folder / "out") == digests(shell.folder / "again")
    if form == "parquet":
        schema = pq.ParquetFile(shell.folder / "out/000000.parquet").schema_arrow
        assert [str(field.type) for field in schema] == ["int64", f"fixed_size_list<element: float not null>[{WIDTH}]"]
        assert not any(field.nullable for field in schema)


@pytest.mark.parametrize("source", ["csv", "jsonl"])
def test_bad_rows_are_named_with_shard_and_record_up_to_the_budget(shell: Shell, source: str) -> None:  # noqa: F811
    rows = make_text(shell.folder / "text", source, bad=True)
    arguments = ("pack", "text", "out", "--format", "parquet", "--columns", COLUMNS)
    shell.fails(*arguments, "-j", "1", code=2, says=f"0.{source}: record 7", hint="--max-errors")
    shell.fails(*arguments, "--max-errors", "2", code=2, says="3 bad samples, 2 allowed")
    packed = shell.json(*arguments, "--max-errors", "1%")
    assert (packed["samples"], packed["skipped"]) == (COUNT - 3, 3)
    named = json.loads((shell.folder / "out/_pack/skipped.json").read_text())
    assert [(one["shard"], one["record"]) for one in named] == [
        (f"0.{source}", 7),
        (f"1.{source}", 3),
        (f"1.{source}", 4),
    ]
    assert "'none'" in named[0]["reason"]
    assert f"not {WIDTH}" in named[1]["reason"] or "7 values, not 6" in named[1]["reason"]
    assert "out of the range of i64" in named[2]["reason"]
    assert [row["label"] for row in rows_of(shell.folder / "out", "parquet")] == [row["label"] for row in rows]
    assert shell.json(*arguments, "--max-errors", "1%")["made"] == 0


def test_where_keeps_by_name_and_size_before_and_by_content_while_packing(shell: Shell) -> None:  # noqa: F811
    tree = make_tree(shell.folder / "tree")
    packed = shell.json("pack", "tree", "small", "--where", 'size < 500 and key.startswith("1/")')
    wanted = {n for n in range(COUNT // 4) if n * 13 + len(str(n)) < 500 and n % 3 == 1}
    assert (packed["samples"], packed["dropped"]) == (len(wanted), 0)
    odd = ("pack", "tree", "odd", "--shard-size", "20kB", "--where", "int(cls) in (3, 5) and 'jpg' in parts")
    packed = shell.json(*odd)
    assert (packed["samples"], packed["dropped"]) == (2, COUNT // 4 - 2)
    shell.run("unpack", "odd", "back")
    names = {p.relative_to(shell.folder / "back").as_posix() for p in (shell.folder / "back").rglob("*") if p.is_file()}
    assert names == {"0/003.jpg", "0/003.cls", "2/005.jpg", "2/005.cls"}
    assert shell.json(*odd)["made"] == 0
    shell.fails("pack", "tree", "odd", "--shard-size", "20kB", code=5, says="--where differ")
    shell.fails("pack", "tree", "no", "--where", "size < 0", code=2, says="none of 100 samples is kept")
    shell.fails("pack", "tree", "no", "--where", "key.upper() == 1", code=2, says="at position 1: 'key.upper()'")
    shell.fails("pack", "tree", "no", "--where", "label == 1", code=2, says="the sample has no 'label'")
    assert len(tree) == COUNT // 2


def test_where_asks_columns_of_text(shell: Shell) -> None:  # noqa: F811
    rows = make_text(shell.folder / "text", "csv")
    packed = shell.json(
        "pack", "text", "out", "--format", "parquet", "--columns", COLUMNS, "--where", "label > 3 and x[0] < 0.5"
    )
    wanted = [row["label"] for row in rows if row["label"] > 3 and row["x"][0] < 0.5]
    assert (packed["samples"], packed["dropped"]) == (len(wanted), COUNT - len(wanted))
    assert [row["label"] for row in rows_of(shell.folder / "out", "parquet")] == wanted
    packed = shell.json(
        "pack", "text", "one", "--format", "tfrecord", "--columns", COLUMNS, "--where", 'shard == "1.csv" and size > 1'
    )
    assert packed["samples"] == COUNT // 2


MAP = """
import numpy as np
def typed(sample):
    n = int(bytes(sample["cls"]))
    return {"__key__": sample["__key__"], "n": n, "half": n / 2, "v": np.arange(3, dtype=np.int16) * n,
            "m": np.full((2, 2), n, np.uint8), "name": "é" * (n % 3)}
"""


def test_a_function_gives_typed_columns_and_records(shell: Shell) -> None:  # noqa: F811
    make_tree(shell.folder / "tree")
    shell.file("prepare.py", MAP)
    for form in ("parquet", "tfrecord"):
        shell.run("pack", "tree", form, "--format", form, "--map", "prepare:typed")
    table = pq.ParquetFile(shell.folder / "parquet/000000.parquet").read()
    assert {field.name: str(field.type) for field in table.schema} == {
        "__key__": "large_string", "n": "int64", "half": "double", "v": "fixed_size_list<element: int16 not null>[3]",
        "m.npy": "large_binary", "name": "large_string",
    }  # fmt: skip
    rows = {row["n"]: row for row in table.to_pylist()}
    assert (rows[7]["half"], rows[7]["v"], rows[7]["name"]) == (3.5, [0, 7, 14], "é")
    found = {row["n"][0]: row for row in rows_of(shell.folder / "tfrecord", "tfrecord")}
    assert (found[7]["half"], found[7]["v"], found[7]["name"]) == ([3.5], [0, 7, 14], "é".encode())
    assert found[7]["m.npy"] == rows[7]["m.npy"]
    shell.run(
        "pack",
        "tree",
        "said",
        "--format",
        "parquet",
        "--map",
        "prepare:typed",
        "--columns",
        "n:u8, v:f64[3], name:str?",
    )
    said = {row["n"]: row for row in pq.ParquetFile(shell.folder / "said/000000.parquet").read().to_pylist()}
    assert said[7] == {"__key__": "1/007", "n": 7, "v": [0.0, 7.0, 14.0], "name": "é"}


def test_wrong_columns_and_formats_get_one_message(shell: Shell) -> None:  # noqa: F811
    make_text(shell.folder / "text", "csv")
    pack_text = ("pack", "text", "out", "--format", "parquet")
    shell.fails(*pack_text, "--columns", "f99", code=2, says="column 1, 'f99'", hint="types: f16")
    shell.fails(*pack_text, "--columns", "f32[3]", code=2, says="the header names 6 columns", hint="f32[39]")
    shell.fails(*pack_text, "--columns", "f32", "--schema", "x", code=2, says="say the same")
    shell.fails(*pack_text, "--schema", "nowhere.toml", code=3, says="nowhere.toml")
    shell.fails("pack", "text", "out", "--columns", COLUMNS, code=2, says="a tar has no columns", hint="parquet")
    shell.fails(*pack_text, "--name", "x-%d.tar", code=2, says="names no shards", hint=".parquet at the end")
    (shell.folder / "text/2.jsonl").write_text("{}\n")
    shell.fails(*pack_text, "--columns", COLUMNS, code=2, says="holds CSV and JSON lines", hint="--from")
    assert shell.json(*pack_text, "--columns", COLUMNS, "--from", "csv")["samples"] == COUNT
    assert not (shell.folder / "out/_pack/index").exists()  # Parquet's own footers are the index


def open_anew(out: Path, cache: Path) -> Any:
    """As a node that has never seen it."""
    settings = Settings(cache=CacheSettings(dir=str(cache)))
    return open_source(out.as_uri(), namespace=Namespace.load(settings), settings=settings)


def ruin(path: Path) -> None:
    """Other bytes in an object that its store takes for the same."""
    status = path.stat()
    path.write_bytes(bytes([255]) * status.st_size)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("form", ["webdataset", "tfrecord"])
def test_a_node_that_opens_the_shards_reads_none_of_them(tmp_path: Path, form: str) -> None:
    make_tree(tmp_path / "tree")
    out = tmp_path / "out"
    pack((tmp_path / "tree").as_uri(), out.as_uri(), PackOptions(shard_size=12_000, layout=form))
    scanned = tmp_path / "copy"
    scanned.mkdir()
    for path in out.glob("0*"):
        (scanned / path.name).write_bytes(path.read_bytes())
    expected = open_anew(scanned, tmp_path / "c0")
    for path in out.glob("0*"):
        ruin(path)  # whoever read them now would say so
    index = open_anew(out, tmp_path / "c1")
    rows = np.arange(len(index))
    assert len(index) == COUNT // 4

    def places(found: Any) -> list[Any]:
        return [
            (key, [(part.name, part.key.rpartition("/")[2], part.start, part.stop) for part in parts])
            for key, parts, _ in found.specs(rows)
        ]

    assert places(index) == places(expected)

    (out / "_pack/index/meta.json").unlink()
    with pytest.raises(CorruptError):
        open_anew(out, tmp_path / "c2")


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _other(path: Path) -> None:
    path.write_text("[]")


@pytest.mark.parametrize(
    ("name", "damage"),
    [("rows", _cut), ("rows", _flip), ("at", _flip), ("first", _flip), ("first", Path.unlink), ("meta.json", _cut),
     ("meta.json", _other)],
)  # fmt: skip
def test_a_damaged_index_is_as_good_as_none(tmp_path: Path, name: str, damage: Any) -> None:
    tree = make_tree(tmp_path / "tree")
    out = tmp_path / "out"
    pack((tmp_path / "tree").as_uri(), out.as_uri(), PackOptions(shard_size=12_000))
    damage(out / "_pack/index" / name)
    index = open_anew(out, tmp_path / "cache")
    found = {f"{key}.{part.name}" for key, parts, _ in index.specs(np.arange(len(index))) for part in parts}
    assert found == set(tree)


def test_an_index_of_other_shards_is_not_believed(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = tmp_path / f"tree{seed}"
        folder.mkdir()
        for number in range(30):
            (folder / f"{seed}-{number}.bin").write_bytes(os.urandom(500))
        pack(folder.as_uri(), (tmp_path / f"out{seed}").as_uri(), PackOptions(shard_size=8_000))
    replaced = tmp_path / "out1/000001.tar"
    replaced.write_bytes((tmp_path / "out2/000001.tar").read_bytes())
    index = open_anew(tmp_path / "out1", tmp_path / "cache")
    keys = {key[0] for key, _, _ in index.specs(np.arange(len(index)))}
    assert keys == {"1", "2"}
