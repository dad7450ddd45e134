"""Columns: how they are written, how text becomes values, and how rows that are none are named."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.arrow import pa
from headrace.base.errors import BadSampleError, CorruptError, InputError
from headrace.pack.rows import CsvRows, JsonRows
from headrace.pack.schema import KINDS, Schema, read_schema
from headrace.pack.values import infer, row_of_cells, table_of


def test_columns_are_read_as_they_are_written(tmp_path: Any) -> None:
    schema = Schema.parse("label:i64, features : f32[39], note:str?, u8[ ]")
    assert [(one.name, one.kind, one.width, one.nullable) for one in schema.fields] == [
        ("label", "i64", None, False),
        ("features", "f32", 39, False),
        ("note", "str", None, True),
        ("c3", "u8", 0, False),
    ]
    assert str(schema) == "label:i64, features:f32[39], note:str?, u8[]"
    assert Schema.parse(str(schema)) == schema
    (tmp_path / "s.toml").write_text('[columns]\nlabel = "i64"\nfeatures = "f32[39]"\n')
    (tmp_path / "s.json").write_text('{"columns": {"label": "i64", "features": "f32[39]"}}')
    assert read_schema(str(tmp_path / "s.toml")) == read_schema(str(tmp_path / "s.json"))
    for kind in KINDS:
        assert Schema.parse(kind).fields[0].kind == kind


@pytest.mark.parametrize(
    "wrong",
    ["", "f33", "f32[", "f32[0]", "str[3]", "a:i64, a:f32", "i64,", "a b:i64", "__key__:str", "f32[99999999999]"],
)
def test_columns_that_make_no_sense_are_refused(wrong: str) -> None:
    with pytest.raises(InputError) as caught:
        Schema.parse(wrong)
    assert caught.value.hint


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=40), st.text("i64f32[],: 9?str", max_size=40)))
def test_any_text_is_columns_or_refused(text: str) -> None:
    try:
        schema = Schema.parse(text)
    except InputError:
        return
    assert Schema.parse(str(schema)) == schema


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80), st.sampled_from(["x.json", "x.toml"]))
def test_any_bytes_are_a_schema_or_refused(data: bytes, name: str) -> None:
    with contextlib.suppress(InputError):
        assert Schema.read(data, name).fields


NUMBERS = st.one_of(
    st.integers(-(1 << 65), 1 << 65).map(str),
    st.integers(-300, 300).map(str),
    st.floats(width=64).map(repr),
    st.sampled_from(
        ["", " 1", "1 ", "1_0", "0x1f", "0x", "+5", "-0", "00012", "nan", "NaN", "inf", "-inf", "Infinity", "1e39",
         "1e400", "-1e39", "65520", "1.", ".5", "1,5", "true", "False", "TRUE", "tRue", "0", "1e", "--1", "٣", "null",
         "None", "1.0"]
    ),
    st.text("0123456789+-.eExinfa _", max_size=8),
)  # fmt: skip
KIND = st.sampled_from([kind for kind in KINDS if kind not in ("str", "bytes")])


def _lines(rows: list[list[str]]) -> list[memoryview]:
    made = []
    for row in rows:
        file = io.StringIO()
        csv.writer(file, lineterminator="").writerow(row)
        made.append(memoryview(file.getvalue().encode()))
    return made


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


@settings(max_examples=400, deadline=None)
@given(KIND, st.booleans(), st.lists(NUMBERS, min_size=1, max_size=12))
def test_many_rows_at_once_are_what_each_row_is_by_itself(kind: str, null: bool, cells: list[str]) -> None:
    """The quick way for chunks, and the exact one for a row, take the same rows and give the same values."""
    schema = Schema.parse(f"a:{kind}{'?' if null else ''}, b:str")
    rows = CsvRows(schema, ["x", "y"], "p")
    lines = _lines([[cell, "t"] for cell in cells])
    table, bad = rows.parse(lines)
    wrong = {one.place for one in bad}
    values: list[Any] = []
    for place, cell in enumerate(cells):
        try:
            row = row_of_cells(schema, [cell, "t"])
        except BadSampleError:
            assert place in wrong, (cell, table)
        else:
            assert place not in wrong, (cell, bad)
            values.append(table_of(schema, [row]).column("a")[0].as_py())
    found = table.column("a").to_pylist()
    if kind in ("f16", "f32"):  # one rounding or two: the last bit may differ
        assert np.allclose(
            np.array(found, np.float64),
            np.array(values, np.float64),
            rtol=2e-3 if kind == "f16" else 2e-7,
            equal_nan=True,
        )
    else:
        assert _same(found, values)
    assert all(one.reason for one in bad)


JSON = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 65), 1 << 65), st.floats(), st.text(max_size=5),
    st.lists(st.one_of(st.floats(), st.integers(-9, 9), st.none()), max_size=3), st.just({"a": 1}),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(KIND, st.sampled_from(["", "[2]", "[]"]), st.booleans(), st.lists(JSON, min_size=1, max_size=8))
def test_json_lines_at_once_are_what_each_is_by_itself(kind: str, width: str, null: bool, values: list[Any]) -> None:
    schema = Schema.parse(f"a:{kind}{width}{'?' if null else ''}")
    rows = JsonRows(schema)
    lines = [memoryview(json.dumps({"a": value, "other": 1}).encode()) for value in values]
    together, bad = rows.parse(lines)
    alone = [rows.parse([line]) for line in lines]
    assert {one.place for one in bad} == {place for place, (_, wrong) in enumerate(alone) if wrong}
    each = pa.concat_tables([table for table, _ in alone]).to_pylist()
    assert _same([row["a"] for row in together.to_pylist()], [row["a"] for row in each])


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=20), min_size=1, max_size=6))
def test_any_bytes_are_rows_or_bad_rows(lines: list[bytes]) -> None:
    views = [memoryview(one) for one in lines]
    for rows in (CsvRows(Schema.parse("i64, str"), ["a", "b"], "p"), JsonRows(Schema.parse("a:f32[2]"))):
        table, bad = rows.parse(views)
        assert table.num_rows + len(bad) == len(lines)


def test_bad_rows_are_named_with_their_reasons() -> None:
    rows = CsvRows(Schema.parse("i8, f32[2], str"), ["a", "b", "c", "d"], "p")
    lines = [
        b"1,2,3,x",
        b"300,1,1,x",
        b"1,one,1,x",
        b"1,2,3",
        b"",
        b"1,1e39,1,x",
        b'2,-1,inf,"a ""b"", c"',
        b"1,1,1,\xff",
    ]
    table, bad = rows.parse([memoryview(line) for line in lines])
    assert table.to_pydict() == {"c0": [1, 2], "c1": [[2.0, 3.0], [-1.0, math.inf]], "c2": ["x", 'a "b", c']}
    assert [(one.place, one.reason) for one in bad] == [
        (1, "column 'c0': '300' is out of the range of i8"),
        (2, "column 'c1': 'one' is no f32"),
        (3, "3 values, not 4"),
        (4, "1 values, not 4"),
        (5, "column 'c1': '1e39' is out of the range of f32"),
        (7, bad[-1].reason),
    ]
    assert "not UTF-8" in bad[-1].reason


def test_headers_choose_columns_by_name_or_must_fit() -> None:
    lines = [memoryview(b"1,2,3")]
    by_name = CsvRows(Schema.parse("c:i64, a:f64"), ["a", "b", "c"], "p")
    assert by_name.parse(lines)[0].to_pylist() == [{"c": 3, "a": 1.0}]
    for columns, header in (("i64, i64", ["a", "b", "c"]), ("i64[]", ["a"]), ("i64, f32[2]", ["1", "2", "3"])):
        with pytest.raises(InputError):
            CsvRows(Schema.parse(columns), header, "p")
    assert CsvRows(Schema.parse("str, str"), ["1", "2"], "p").parse([memoryview(b"a,b")])[0].num_rows == 1


def test_json_arrays_are_cells() -> None:
    rows = JsonRows(Schema.parse("f32[2], i64"))
    table, bad = rows.parse([memoryview(b"[1, 2.5, 3]"), memoryview(b"[1, 2]"), memoryview(b"{}")])
    assert table.to_pylist() == [{"c0": [1.0, 2.5], "c1": 3}]
    assert [one.place for one in bad] == [1, 2]


def test_columns_of_samples_are_told_from_their_values() -> None:
    samples: list[dict[str, Any]] = [
        {"k": "a", "n": 1, "x": 0.5, "b": b"", "v": np.zeros(3, np.float32), "w": np.zeros(1, np.int8), "o": None},
        {"k": "b", "n": 2, "x": 1, "b": memoryview(b"x"), "v": np.zeros(3, np.float32), "w": np.zeros(2, np.int8),
         "late": True},
    ]  # fmt: skip
    fields = {field.name: field.type for field in infer(samples)}
    assert fields == {
        "k": "str", "n": "i64", "x": "f64", "b": "bytes", "v": "f32[3]", "w": "i8[]", "late": "bool?",
    }  # fmt: skip
    for wrong in ([{"a": 1}, {"a": "x"}], [{"a": object()}], [{"a": np.zeros((2, 2), complex)}]):
        with pytest.raises(BadSampleError):
            infer(wrong)


def test_lines_refused_by_the_reader_are_bad_rows_too() -> None:
    table, bad = JsonRows(Schema.parse("a:i64")).parse([memoryview(b"{"), memoryview(b'{"a": 1}')])
    assert (table.num_rows, len(bad)) == (1, 1)
    assert CorruptError.code == "corrupt"
    assert "JSON" in bad[0].reason
