"""JSON lines: a column has one type in all batches, whatever rows happen to make one."""

from __future__ import annotations

import json
import math
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import BadSampleError, InputError

scalars = {
    "whole": st.integers(-(2**63), 2**63 - 1),
    "large": st.integers(2**63, 2**70),
    "real": st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "text": st.text(max_size=3),
    "none": st.none(),
}
values: st.SearchStrategy[Any] = st.one_of(
    *scalars.values(),
    st.lists(st.integers(0, 9) | st.floats(0, 1), max_size=3),
    st.fixed_dictionaries({"a": scalars["whole"] | scalars["real"], "b": scalars["flag"] | scalars["none"]}),
)
column = st.lists(st.sampled_from([*scalars.values(), values]), min_size=1, max_size=2).map(st.one_of)
MISSING = object()


@st.composite
def sets(draw: st.DrawFn) -> list[list[dict[str, Any]]]:
    """Files of rows: each column of few types, some values of it missing."""
    columns = draw(st.dictionaries(st.sampled_from("xyz"), column, min_size=1))
    gaps = draw(st.sets(st.sampled_from("xyz")))
    cell = {name: one | st.just(MISSING) if name in gaps else one for name, one in columns.items()}
    row = st.fixed_dictionaries(cell).map(lambda row: {name: one for name, one in row.items() if one is not MISSING})
    return draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=3).filter(lambda files: any(files)))


def written(folder: Path, files: list[list[Any]]) -> Path:
    folder.mkdir(parents=True)
    for number, rows in enumerate(files):
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def form(value: Any) -> Any:
    """What a column is in a batch, without its values."""
    if isinstance(value, dict):
        return {name: form(one) for name, one in value.items()}
    return value.dtype.name if isinstance(value, np.ndarray) else "list"


def forms(dataset: hr.Dataset) -> list[Any]:
    return [form(batch) for batch in dataset.loader()]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return other is None
    return one == other


@settings(max_examples=80, deadline=None)
@given(files=sets(), size=st.integers(1, 5), seed=st.integers(0, 9), ranks=st.integers(1, 3))
def test_no_batch_decides_over_types(files: list[list[dict[str, Any]]], size: int, seed: int, ranks: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        dataset = hr.Dataset.open(written(Path(scratch) / "set", files), format="jsonl")
        (wanted,) = forms(dataset.batch(1000))
        assert all(one == wanted for one in forms(dataset.batch(size)))
        assert all(one == wanted for one in forms(dataset.shuffle(seed).batch(size)))
        assert all(one == wanted for one in forms(dataset.filter(lambda _: True).batch(size)))
        for rank in range(ranks):
            assert all(one == wanted for one in forms(dataset.shuffle(seed).shard(rank, ranks).batch(size)))
        again = pickle.loads(pickle.dumps(dataset))
        assert all(one == wanted for one in forms(again.batch(size)))

        rows = [row for rows in files for row in rows]
        for got, row in zip(dataset, rows, strict=True):  # and no value is another
            assert {name: one for name, one in got.items() if name[:2] != "__"}.keys() == row.keys()
            assert all(same(got[name], one) or type(one) in (int, dict) for name, one in row.items())
        (batch,) = dataset.batch(1000).loader()
        for name in wanted.keys() - {"__key__", "__shard__"}:
            if wanted[name] == "list":
                assert batch[name] == [row.get(name) for row in rows]
            elif wanted[name] == "float64":
                assert [*map(same, batch[name].tolist(), [row.get(name) for row in rows])] == [True] * len(rows)


def one_file(folder: Path, rows: list[Any]) -> Path:
    return written(folder / "set", [rows])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float64"),
        ([1.5, None], "float64"),
        ([True, False], "bool"),
        ([1, None], "list"),
        ([True, None], "list"),
        ([True, 1], "list"),
        ([1, "a"], "list"),
        ([1, 2**63], "list"),
        ([[1], [2.5]], "list"),
        ([{"a": 1}, {"a": 2.5}], {"a": "float64"}),
        ([{"a": {"b": 1}}, {"a": {"b": None}}], {"a": {"b": "list"}}),
        ([{"a": 1}, {"b": 2}], "list"),
        ([{"a": 1}, None], "list"),
        ([None, None], "list"),
    ],
)
def test_what_columns_become(tmp_path: Path, column: list[Any], expected: Any) -> None:
    dataset = hr.Dataset.open(one_file(tmp_path, [{"x": value} for value in column]), format="jsonl")
    assert [one["x"] for one in forms(dataset.batch(1))] == [expected, expected]


def long_file(folder: Path, last: Any) -> Path:
    """A column of whole numbers for longer than types are looked for; then another value."""
    rows = [{"x": number, "pad": "." * 200} for number in range(2000)]
    return one_file(folder, [*rows, {"x": last} if last is not MISSING else {}])


@pytest.mark.parametrize(
    ("last", "told", "fits"),
    [
        (1.5, "1.5", "float64"),
        ("a", "'a'", "object"),
        (None, "null", "object"),
        (MISSING, "missing", "object"),
        (2**63, "9223372036854775808", "object"),
        (True, "True", "object"),
    ],
)
def test_a_later_row_that_does_not_fit_says_what_to_give(tmp_path: Path, last: Any, told: str, fits: str) -> None:
    folder = long_file(tmp_path, last)
    with pytest.raises(BadSampleError) as caught:
        list(hr.Dataset.open(folder, format="jsonl").batch(64).loader())
    message = str(caught.value)
    assert f"column 'x' is int64, and {told} here" in message
    assert "0.jsonl: record 00002000" in message
    assert f'columns={{"x": "{fits}"}}' in message
    dataset = hr.Dataset.open(folder, format="jsonl", columns={"x": fits})
    assert {one["x"] for one in forms(dataset.batch(64))} == {fits if fits != "object" else "list"}


def test_a_later_float_that_is_whole_fits(tmp_path: Path) -> None:
    assert list(hr.Dataset.open(long_file(tmp_path, 5.0), format="jsonl"))[-1]["x"] == 5


def test_types_that_are_given(tmp_path: Path) -> None:
    rows = [{"a": 1, "b": 2, "c": None, "d": True}, {"a": 3, "b": 4, "d": False}]
    given_types = {"a": "float32", "b": "uint8", "c": "float64", "d": "object"}
    dataset = hr.Dataset.open(one_file(tmp_path, rows), format="jsonl", columns=given_types)
    (batch,) = dataset.batch(2).loader()
    assert {name: form(batch[name]) for name in "abcd"} == {"a": "float32", "b": "uint8", "c": "float64", "d": "list"}
    assert np.isnan(batch["c"]).all()
    assert next(iter(dataset))["a"].dtype == np.float32
    with pytest.raises(BadSampleError, match="uint8"):
        list(hr.Dataset.open(tmp_path / "set", format="jsonl", columns={"a": "uint8", "c": "uint8"}))
    with pytest.raises(InputError, match="cannot be"):
        hr.Dataset.open(tmp_path / "set", format="jsonl", columns={"a": "datetime64"})
    with pytest.raises(InputError, match="types"):
        hr.Dataset.open(tmp_path / "set", columns={"a": "int64"})
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="types already"):
        hr.Dataset.open(tmp_path / "t.csv", format="csv", columns={"a": "int64"})


def test_lines_that_are_no_objects(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", [[[1, 2], [3]], [[4.5]]])
    assert {one["data"] for one in forms(hr.Dataset.open(folder, format="jsonl").batch(1))} == {"list"}


def test_a_child_process_keeps_to_it(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", [[{"x": 1}, {"x": None}], [{"x": 2}]])
    batches = hr.Dataset.open(folder, format="jsonl").batch(1).loader(where="process")
    assert [form(batch["x"]) for batch in batches] == ["list"] * 3


def test_behind_a_map_numbers_are_of_one_type(tmp_path: Path) -> None:
    folder = written(tmp_path / "set", [[{"x": 1}], [{"x": 2.5}, {"x": None}]])
    dataset = hr.Dataset.open(folder, format="jsonl").map(lambda sample: {"x": sample["x"]})
    assert [form(batch["x"]) for batch in dataset.batch(1).loader()] == ["float64"] * 3


LONG = json.dumps({"x": 1, "t": "." * 9000})


@pytest.mark.parametrize("text", ['{"x": 1}', '\n\n{"x": 1}\n', '\ufeff{"x": 1}\r\n', LONG])
def test_first_lines_of_all_kinds(tmp_path: Path, text: str) -> None:
    """Without an end, behind empty ones, longer than what is looked at to know the format."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(text.encode())
    assert [one["x"] for one in hr.Dataset.open(path, format="jsonl")] == [1]
