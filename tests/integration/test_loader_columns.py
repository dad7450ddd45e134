"""Which functions are given columns, and what becomes of samples they cannot make."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.base.errors import BadSampleError
from headrace.pack.examples import RecordWriter, example


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twenty records; those of even number hold an Example with ``text``."""
    with (tmp_path / "a.tfrecord").open("wb") as file:
        writer = RecordWriter(file)
        for row in range(20):
            writer.add(example({"text": b"t%02d" % row}))
    return tmp_path


class Chosen:
    """A user's function, which happens to keep names in ``columns``."""

    def __init__(self) -> None:
        self.columns = ["data"]

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        return {name: len(sample[name]) for name in self.columns}


class Method(Chosen):
    def __init__(self) -> None:
        pass

    def columns(self, _: object) -> dict[str, Any]:  # type: ignore[override]
        return {"wrong": [0]}

    def __call__(self, sample: Mapping[str, Any]) -> dict[str, Any]:
        return {"data": len(sample["data"])}


@pytest.mark.parametrize("function", [Chosen(), Method()])
def test_attributes_of_users_functions_mean_nothing(folder: Path, function: Any) -> None:
    batches = list(hr.Dataset.open(folder.as_uri()).map(function).batch(20).loader())
    assert [sorted(one) for one in batches] == [["data"]]
    assert len(set(batches[0]["data"].tolist())) == 1


def test_a_name_that_is_not_there_is_a_bad_sample(folder: Path) -> None:
    dataset = hr.Dataset.open(folder.as_uri()).map(hr.decode.example("missing")).batch(4)
    with pytest.raises(BadSampleError, match="missing"):
        list(dataset.loader())


LEAF: dict[str, Any] = {"type": None, "context": None, "children_spec": []}
ITEMS, CHUNKS = 300, 3


def chunks(folder: Path) -> None:
    """litdata's chunks of two arrays an item; of the last chunk, some are longer than the others."""
    found = []
    for number in range(CHUNKS):
        items = []
        for at in range(ITEMS):
            many = 9 if number == CHUNKS - 1 and at % 100 == 50 else 7
            leaves = [np.full(many, at, "<i8").tobytes(), bytes([number, at % 256, 1])]
            items.append(np.array([len(leaf) for leaf in leaves], "<u4").tobytes() + b"".join(leaves))
        found.append(chunk(folder, number, items))
    index(folder, found)


def chunk(folder: Path, number: int, items: list[bytes]) -> dict[str, Any]:
    starts = np.cumsum([4 * (len(items) + 2), *map(len, items)]).astype("<u4")
    data = len(items).to_bytes(4, "little") + starts.tobytes() + b"".join(items)
    (folder / f"chunk-0-{number}.bin").write_bytes(data)
    return {"filename": f"chunk-0-{number}.bin", "chunk_bytes": len(data)}


def index(folder: Path, found: list[dict[str, Any]]) -> None:
    tree = {"type": "builtins.dict", "context": json.dumps(["wide", "odd"]), "children_spec": [LEAF, LEAF]}
    config = {"data_format": ["no_header_numpy:3", "no_header_numpy:4"], "data_spec": json.dumps([1, tree])}
    about = {"chunks": found, "config": {**config, "compression": None, "encryption": None}}
    (folder / "index.json").write_text(json.dumps(about))


def looked_at(sample: dict[str, Any]) -> dict[str, Any]:
    return sample


@pytest.mark.parametrize("order", ["storage", "blocked", "global"])
@pytest.mark.parametrize("batch", [1, 7, 64, 100, 700])
def test_batches_of_arrays_are_those_of_single_samples_and_nobody_elses(
    tmp_path: Path, batch: int, order: str
) -> None:
    chunks(tmp_path)
    dataset = hr.Dataset.open(tmp_path.as_uri(), format="litdata")
    if order != "storage":
        dataset = dataset.shuffle(3, block="4kB" if order == "blocked" else None)
    dataset = dataset.repeat(2)
    plain = list(dataset.batch(batch).loader())
    states = []
    for at, theirs in enumerate(loader := dataset.map(looked_at).batch(batch).loader()):
        mine = plain[at]
        states.append(loader.state_dict())
        assert list(mine) == list(theirs)
        for name, values in theirs.items():
            assert type(values) is type(mine[name])
            assert len(values) == len(mine[name])
            assert all(np.array_equal(a, b) for a, b in zip(mine[name], values, strict=True))
            if isinstance(values, np.ndarray):
                assert mine[name].dtype == values.dtype
                assert mine[name].flags.c_contiguous
                assert mine[name].flags.aligned
                mine[name][:] = 77  # of no consequence for the batches behind it
    assert sum(len(one["__key__"]) for one in plain) == 2 * ITEMS * CHUNKS
    again = dataset.batch(batch).loader()
    middle = len(states) // 2
    again.load_state_dict(states[middle])
    assert [one["__key__"] for one in again] == [one["__key__"] for one in plain[middle + 1 :]]


@pytest.mark.parametrize("odd", ["none", "longer", "bad"])
def test_batches_of_large_arrays_are_those_of_single_samples(tmp_path: Path, odd: str) -> None:
    """Which are put where their batch wants them before it is known that it is theirs."""
    items = []
    for at in range(14):
        longer, bad = odd == "longer" and at == 4, odd == "bad" and at == 4
        leaves = [np.full(300_000 + longer, at, "<i8").tobytes(), bytes(70_000) + bytes([at])]
        items.append(np.array([len(leaf) + bad for leaf in leaves], "<u4").tobytes() + b"".join(leaves))
    index(tmp_path, [chunk(tmp_path, 0, items)])
    dataset = hr.Dataset.open(tmp_path.as_uri(), format="litdata")
    skip = hr.Skip(max_count=1)
    plain = list(dataclasses.replace(dataset, skip=skip).batch(3).loader())
    looked = list(dataclasses.replace(dataset, skip=skip).map(looked_at).batch(3).loader())
    assert [one["__key__"] for one in plain] == [one["__key__"] for one in looked]
    assert sum(len(one["__key__"]) for one in plain) == 14 - (odd == "bad")
    for mine, theirs in zip(plain, looked, strict=True):
        for name in ("wide", "odd"):
            assert type(mine[name]) is type(theirs[name])
            assert all(np.array_equal(a, b) for a, b in zip(mine[name], theirs[name], strict=True))
            mine[name][0][:] = 77
