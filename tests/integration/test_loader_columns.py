"""Which functions are given columns, and what becomes of samples they cannot make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
