"""A shard without records among others, in every format: what others hold comes, and nothing is refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headrace as hr
from headrace.base.errors import CorruptError, InputError
from tests.property.test_own_keys import WRITERS, Keys


def tar(path: Path, keys: Keys) -> None:
    with tarfile.open(path.with_suffix(".tar"), "w") as file:
        for key in keys:
            info = tarfile.TarInfo(f"{key}.x")
            info.size = 1
            file.addfile(info, io.BytesIO(b"1"))


def npy(path: Path, keys: Keys) -> None:
    np.save(path.with_suffix(".npy"), np.arange(2 * len(keys)).reshape(-1, 2))


def packed_npz(path: Path, keys: Keys) -> None:
    np.savez_compressed(path.with_suffix(".npz"), x=np.zeros((len(keys), 3)))


ALL: dict[str, tuple[str, Callable[[Path, Keys], None]]] = {
    **{name: (name, writer) for name, writer in WRITERS.items()},
    "tar": ("tar", tar),
    "npy": ("npy", npy),
    "compressed npz": ("npz", packed_npz),
}


@pytest.mark.parametrize("kind", ALL)
def test_a_shard_without_records_among_others(tmp_path: Path, kind: str) -> None:
    form, write = ALL[kind]
    (tmp_path / "set").mkdir()
    for number, keys in enumerate([[], ["a", "b"], [], ["c"], []]):
        write(tmp_path / f"set/{number}", keys)
    dataset = hr.Dataset.open(tmp_path / "set", format=form)
    assert len(dataset) == 3
    assert len(list(dataset)) == 3
    assert sum(len(batch["__key__"]) for batch in dataset.shuffle(1).batch(2)) == 3
    if form not in ("npy", "npz"):
        assert len(list(dataset.shuffle(1, block="1MB") if kind != "compressed npz" else dataset)) == 3


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tfrecord"])
def test_a_shard_without_a_byte_is_one_without_records(tmp_path: Path, kind: str) -> None:
    """As Beam and others leave behind, of formats that begin with their first record."""
    form, write = ALL[kind]
    (tmp_path / "set").mkdir()
    write(tmp_path / "set/1", ["a", "b"])
    (tmp_path / f"set/0.{kind}").touch()
    (tmp_path / f"set/2.{kind}.gz").write_bytes(gzip.compress(b""))
    dataset = hr.Dataset.open(tmp_path / "set", format=form)
    batch = next(iter(dataset.batch(2).loader()))
    assert len(batch["__key__"]) == len(dataset) == 2
    (tmp_path / f"set/3.{kind}.gz").touch()  # which no compressor writes
    with pytest.raises(CorruptError, match="empty"):
        hr.Dataset.open(tmp_path / "set", format=form, refresh=True)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "npz", "npy", "mds", "tar"])
def test_one_without_a_byte_is_damaged_where_a_shard_has_more_than_records(tmp_path: Path, kind: str) -> None:
    form, write = ALL[kind]
    (tmp_path / "set").mkdir()
    write(tmp_path / "set/1", ["a", "b"])
    next(iter((tmp_path / "set").iterdir())).with_stem("0").touch()
    with pytest.raises(CorruptError, match="empty"):
        hr.Dataset.open(tmp_path / "set", format=form)


@pytest.mark.parametrize("kind", ALL)
def test_nothing_but_empty_shards_is_told(tmp_path: Path, kind: str) -> None:
    form, write = ALL[kind]
    (tmp_path / "set").mkdir()
    write(tmp_path / "set/0", [])
    with pytest.raises(InputError, match="holds no samples"):
        hr.Dataset.open(tmp_path / "set", format=form)
