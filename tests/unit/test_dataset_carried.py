"""Stretches of an epoch that travel by value: read elsewhere, they are what the loader gives."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.loader.epoch_part import Source, Stretch, sizes_at
from tests.tar_kit import tar_of

COUNT = 60


def objects(folder: Path) -> hr.Dataset:
    for row in range(COUNT):
        (folder / f"c{row % 3}").mkdir(exist_ok=True)
        (folder / f"c{row % 3}/{row:02}.image").write_bytes(b"x" * row)
        (folder / f"c{row % 3}/{row:02}.label").write_text(str(row))
    return hr.Dataset.open(str(folder))


def classes(folder: Path) -> hr.Dataset:
    objects(folder)
    return hr.Dataset.open(str(folder), by="class")


def rows_of_table(folder: Path) -> hr.Dataset:
    columns = {"x": np.arange(COUNT), "s": [None if row % 7 == 0 else str(row) for row in range(COUNT)]}
    for half in range(2):
        part = pa.table(columns).slice(half * COUNT // 2, COUNT // 2)
        (folder / f"half={half}").mkdir()
        pq.write_table(part, folder / f"half={half}/t.parquet", row_group_size=8)
    return hr.Dataset.open(str(folder))


def lines(folder: Path) -> hr.Dataset:
    for shard in range(3):
        text = "".join(json.dumps({"n": row, "v": [row, 0.5]}) + "\n" for row in range(shard * 20, shard * 20 + 20))
        (folder / f"{shard}.jsonl").write_text(text)
    return hr.Dataset.open(str(folder), format="jsonl")


def shards(folder: Path, compress: Callable[[bytes], bytes] | None = None) -> hr.Dataset:
    for shard in range(4):
        rows = range(shard * COUNT // 4, (shard + 1) * COUNT // 4)
        data = tar_of([(f"{row:02}.txt", str(row).encode()) for row in rows])
        name = folder / f"{shard}.tar{'.gz' if compress else ''}"
        name.write_bytes(compress(data) if compress else data)
    return hr.Dataset.open(str(folder))


def flat_tokens(folder: Path) -> hr.Dataset:
    for file in range(3):
        np.arange(file * 100, file * 100 + 100, dtype=np.uint16).tofile(folder / f"{file}.bin")
    return hr.Dataset.open(str(folder), format="tokens", dtype="uint16").blocks(12)


def table_of_tokens(folder: Path) -> hr.Dataset:
    tokens = pa.table({"tokens": [list(range(row, row + row % 9)) for row in range(COUNT)]})
    pq.write_table(tokens, folder / "t.parquet", row_group_size=8)
    return hr.Dataset.open(str(folder)).blocks(12)


def mixed(folder: Path) -> hr.Dataset:
    for name in ("a", "b"):
        (folder / name).mkdir()
    small = objects(folder / "a").take(9)
    return hr.Dataset.mix([small, rows_of_table(folder / "b").map(lambda_free)], seed=1)


def lambda_free(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "twice": sample["x"] * 2}


def odd(sample: dict[str, Any]) -> bool:
    return bool(sample["x"] % 2)


KINDS: dict[str, Callable[[Path], hr.Dataset]] = {
    "objects": lambda folder: objects(folder).shuffle(seed=5),
    "classes": lambda folder: classes(folder).shuffle(seed=5),
    "windows": lambda folder: objects(folder).windows(4, 3).shuffle(seed=2),
    "shards": lambda folder: shards(folder).shuffle(seed=5),
    "blocks": lambda folder: shards(folder).shuffle(seed=5, block=64),
    "compressed": lambda folder: shards(folder, gzip.compress).shuffle(seed=5),
    "lines": lambda folder: lines(folder).shuffle(seed=5),
    "table": rows_of_table,
    "table, shuffled": lambda folder: rows_of_table(folder).shuffle(seed=5).repeat(2),
    "table, windows": lambda folder: rows_of_table(folder).windows(3),
    "where": lambda folder: _where(folder).shuffle(seed=4),
    "mapped": lambda folder: rows_of_table(folder).map(lambda_free).filter(odd),
    "mix": mixed,
    "token blocks": lambda folder: flat_tokens(folder).shuffle(seed=5),
    "token blocks of a table": lambda folder: table_of_tokens(folder).shuffle(seed=5, block=64),
}


def _where(folder: Path) -> hr.Dataset:
    rows_of_table(folder)
    return hr.Dataset.open(str(folder), where=[("x", ">=", 21)], columns=["s"])


@pytest.mark.parametrize("kind", KINDS)
def test_stretches_are_what_the_loader_gives(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    ds = KINDS[kind](folder)
    loader = ds.loader()
    loader.set_epoch(3)
    wanted = [_plain(sample) for sample in loader]
    edges = [0, 1, len(ds) // 3, len(ds) - 2, len(ds)]
    sent = pickle.dumps((Source.of(ds), [Stretch.of(ds, 3, *both) for both in pairwise(edges)]))
    shutil.rmtree(tmp_path / "cache")  # another machine: it knows no listing, no index, no footer
    (folder / "another.x").write_bytes(b"listed now, it would be there")
    source, stretches = pickle.loads(sent)
    assert [_plain(sample) for one in stretches for sample in source.open(one).loader()] == wanted
    batches = [batch for one in stretches for batch in source.open(one).batch(7).loader()]
    assert [key for batch in batches for key in batch["__key__"]] == [one["__key__"] for one in wanted]


def test_what_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    ds = shards(tmp_path / "data")
    source, stretch = pickle.loads(pickle.dumps((Source.of(ds), Stretch.of(ds, 0, 20, 40))))
    (tmp_path / "data/1.tar").write_bytes(tar_of([("15.txt", b"other")]))
    with pytest.raises(hr.errors.ChangedError, match=r"1\.tar"):
        list(source.open(stretch).loader())


def test_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    ds = objects(tmp_path / "data").shuffle(seed=1)
    found = [len(sample["image"]) + len(sample["label"]) for sample in ds.loader()]
    assert sizes_at(ds, 0, 0, COUNT).tolist() == found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value
