"""What a folder holds, by the names that people give shards, and by the first bytes where names tell nothing."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.base.errors import InputError
from headrace.pack import PackOptions, pack
from tests.shard_formats_kit import record
from tests.tar_kit import tar_of

COMPAT = Path(__file__).parents[1] / "compat" / "shards"
RECORDS = b"".join(record(bytes([number]) * 10) for number in range(3))
TAR = tar_of([(f"{number}.txt", b"x") for number in range(3)])


def parquet() -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": [1, 2, 3]}), out)
    return out.getvalue().to_pybytes()


def arrow() -> bytes:
    out = pa.BufferOutputStream()
    table = pa.table({"n": [1, 2, 3]})
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue().to_pybytes()


NAMED: dict[str, tuple[Callable[[], bytes], list[str]]] = {
    "as TFDS writes them": (lambda: RECORDS, ["mnist.tfrecord-00000-of-00002", "mnist.tfrecord-00001-of-00002"]),
    "as Beam does": (lambda: RECORDS, ["train-00000-of-00002", "train-00001-of-00002"]),
    "with more digits": (lambda: RECORDS, ["deep/er/a-000000-of-000012.TFRecord", "b.tfrecords-000001-of-000012"]),
    "compressed": (lambda: gzip.compress(RECORDS), ["a.tfrecord-00000-of-00002.gz", "a.tfrecord-00001-of-00002.gz"]),
    "tars": (lambda: TAR, ["train.tar-00000-of-00002", "train.tar-00001-of-00002"]),
    "tars without a suffix": (lambda: TAR, ["train-00000-of-00002", "train-00001-of-00002"]),
    "tables": (parquet, ["train.parquet-00000-of-00002", "train.parquet-00001-of-00002"]),
    "tables without a suffix": (parquet, ["train-00000-of-00002", "train-00001-of-00002"]),
    "Arrow's files without a suffix": (arrow, ["train-00000-of-00002", "train-00001-of-00002"]),
}
BESIDE = ("README.md", "_SUCCESS", "_pack/plan.json", "_delta_log/00000.json", ".cache/notes", "stats.json")


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside what people keep there"])
@pytest.mark.parametrize("how", NAMED)
def test_shards_under_their_usual_names(tmp_path: Path, how: str, beside: bool) -> None:
    content, names = NAMED[how]
    for name in (*names, *(BESIDE if beside else ())):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content() if name in names else b"{}")
    assert len(hr.Dataset.open(tmp_path)) == 6
    assert len(list(hr.Dataset.open(tmp_path))) == 6


@pytest.mark.parametrize("name", ["train-00000-of-00002", "shard.records", "a.tfrecord-00000-of-00001"])
def test_what_is_asked_for_is_found_under_any_such_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(RECORDS)
    assert len(hr.Dataset.open(tmp_path, format="tfrecord")) == 3


def test_one_file_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord-00000-of-00001").write_bytes(RECORDS)
    assert len(hr.Dataset.open(tmp_path / "a.tfrecord-00000-of-00001")) == 3


def test_numbers_alone_make_no_shards(tmp_path: Path) -> None:
    """What the first bytes do not know stays what it was: single objects."""
    for number in range(3):
        (tmp_path / f"scan-{number:05d}-of-00003").write_bytes(b"raw")
    assert len(hr.Dataset.open(tmp_path, by="object")) == 3
    assert {name for sample in hr.Dataset.open(tmp_path) for name in sample} == {"__key__", "data"}


def test_numbered_shards_beside_other_data_are_ambiguous(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord-00000-of-00001").write_bytes(RECORDS)
    (tmp_path / "cat.jpg").write_bytes(b"jpg")
    with pytest.raises(InputError, match=r"1 tfrecord shards beside 1 other objects such as cat\.jpg"):
        hr.Dataset.open(tmp_path)


@pytest.mark.parametrize("form", ["parquet", "webdataset", "tfrecord"])
def test_what_pack_has_written_opens_as_it_is(tmp_path: Path, form: str) -> None:
    for number in range(5):
        path = tmp_path / "in" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    pack(tmp_path / "in", tmp_path / "out", PackOptions(layout=form))
    (tmp_path / "out/README.md").write_text("about")
    assert list((tmp_path / "out").rglob("_pack/*")), "this shows nothing"
    assert len(hr.Dataset.open(tmp_path / "out")) == 5


@pytest.mark.parametrize("form", ["mds", "litdata"])
def test_formats_that_an_index_describes_are_known_by_it(tmp_path: Path, form: str) -> None:
    source = next(path for path in sorted(COMPAT.glob(f"{form}*")) if (path / "index.json").exists())
    shutil.copytree(source, tmp_path / "set")
    wanted = len(hr.Dataset.open(tmp_path / "set", format=form))
    assert len(hr.Dataset.open(tmp_path / "set")) == wanted > 0
    shutil.copytree(source, tmp_path / "bare", ignore=shutil.ignore_patterns("index.json"))
    opened, objects = (hr.Dataset.open(tmp_path / "bare", format=how) for how in (None, "objects"))
    assert opened.fingerprint == objects.fingerprint


def test_binary_files_are_no_chunks_without_an_index(tmp_path: Path) -> None:
    for name in ("chunk-0-0.bin", "chunk-0-1.bin"):
        (tmp_path / name).write_bytes(b"mine")
    assert len(hr.Dataset.open(tmp_path)) == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.json").write_text("{}")
    (tmp_path / "other/weights.bin").write_bytes(b"mine")
    assert len(hr.Dataset.open(tmp_path / "other")) == 2
