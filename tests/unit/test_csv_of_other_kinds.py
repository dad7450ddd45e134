"""CSV that is not as RFC 4180 and UTF-8 have it: read by an argument, which an error names where a file looks so."""

from __future__ import annotations

import csv
import gzip
import io
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.base.errors import (
    BadSampleError,
    CorruptError,
    HeadraceError,
    InputError,
    NotFoundError,
    UnsupportedError,
)

ROWS = [["größe", "été"], ["a;b\tc,d", "x"], ['"', "lines\nof text"], ["", "€" * 3]]


def text(rows: list[list[str]], delimiter: str, header: tuple[str, ...] = ("näme", "b")) -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows([list(header), *rows])
    return out.getvalue()


def records(dataset: hr.Dataset) -> list[list[Any]]:
    return [[value for name, value in one.items() if name[:2] != "__"] for one in dataset]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "iso8859-15", "utf-16", "utf-16-le", "utf-32"])
@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_every_delimiter_in_every_encoding(tmp_path: Path, encoding: str, delimiter: str) -> None:
    suffix = "tsv" if delimiter == "\t" else "csv"
    for number in range(2):
        (tmp_path / f"{number}.{suffix}").write_bytes(text(ROWS, delimiter).encode(encoding))
    dataset = hr.Dataset.open(tmp_path, format="csv", delimiter=delimiter, encoding=encoding)
    assert records(dataset) == ROWS * 2
    assert next(iter(dataset)).keys() == {"__key__", "näme", "b", "__shard__"}
    assert dataset[5]["b"] == "x"
    shuffled = pickle.loads(pickle.dumps(dataset)).shuffle(3)
    assert sorted(records(shuffled)) == sorted(ROWS * 2)


characters = st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\r\0")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.lists(st.text(characters, max_size=4), min_size=2, max_size=2), min_size=1, max_size=20),
    encoding=st.sampled_from(["utf-16", "utf-16-be", "utf-32", "gb18030", "utf-8"]),
    delimiter=st.sampled_from("\t;|,"),
)
def test_every_record_comes_out(rows: list[list[str]], encoding: str, delimiter: str) -> None:
    """Characters whose bytes look like quotes, line ends and delimiters among them."""
    with tempfile.TemporaryDirectory() as scratch:
        out = io.StringIO()
        csv.writer(out, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows([["a", "b"], *rows])
        (Path(scratch) / "x.csv").write_bytes(out.getvalue().encode(encoding))
        dataset = hr.Dataset.open(scratch, format="csv", delimiter=delimiter, encoding=encoding)
        assert records(dataset) == rows


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"a\tb\n1\t2\n", ["tabs", "delimiter='\\t'"]),
        (b"a;b;c\n1,5;2;3\n", ["semicolons", "delimiter=';'"]),
        (b"a|b\n1|2\n", ["bars", "delimiter='|'"]),
        ("a,b\n1,ü\n".encode("utf-16"), ['encoding="utf-16"']),
        ("a,b\n1,2\n".encode("utf-16-le"), ['encoding="utf-16"']),
        ("a,b\n1,ü\n".encode("latin-1"), ['encoding="latin-1"']),
    ],
)
def test_the_error_names_what_it_looks_like(tmp_path: Path, data: bytes, hint: list[str]) -> None:
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(CorruptError, match=r"x\.csv") as caught:
        hr.Dataset.open(tmp_path, format="csv")
    assert all(word in str(caught.value.hint) for word in hint)


def test_text_that_is_no_utf_8_further_on_says_so_too(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes(b"a,b\n" + b"1,2\n" * 2000 + "3,ü\n".encode("latin-1"))
    with pytest.raises(BadSampleError, match=r"record 00002000.*not UTF-8.*latin-1"):
        list(hr.Dataset.open(tmp_path, format="csv"))
    assert records(hr.Dataset.open(tmp_path, format="csv", encoding="latin-1"))[-1] == ["3", "ü"]


def test_tsv_alone_says_how(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set/x.tsv").write_text("a\tb\n1\t2\n")
    (tmp_path / "set/y.tsv").write_text("a\tb\n1\t2\n")
    with pytest.raises(NotFoundError) as caught:
        hr.Dataset.open(tmp_path / "set", format="csv")
    assert 'delimiter="\\t"' in str(caught.value.hint)
    with pytest.raises(InputError) as told:
        hr.Dataset.open(tmp_path / "set/x.tsv")
    assert 'delimiter="\\t"' in str(told.value.hint)
    assert records(hr.Dataset.open(tmp_path / "set/x.tsv", format="csv", delimiter="\t")) == [["1", "2"]]


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    for how, reason in (
        ({"format": "csv", "delimiter": "::"}, "delimiter"),
        ({"format": "csv", "delimiter": '"'}, "delimiter"),
        ({"format": "csv", "encoding": "klingon"}, "not known"),
        ({"format": "jsonl", "delimiter": ";"}, "of CSV"),
        ({"delimiter": ";"}, "of CSV"),
    ):
        with pytest.raises(InputError, match=reason):
            hr.Dataset.open(tmp_path / "x.csv", **how)  # type: ignore[arg-type]


def test_damage_and_what_is_not_made_anew_twice(tmp_path: Path) -> None:
    data = text(ROWS, ",").encode("utf-16")
    (tmp_path / "x.csv").write_bytes(data + b"\0")
    with pytest.raises(CorruptError, match=r"x\.csv.*UTF-16"):
        hr.Dataset.open(tmp_path / "x.csv", format="csv", encoding="utf-16")
    (tmp_path / "y.csv.gz").write_bytes(gzip.compress(data))
    with pytest.raises(UnsupportedError, match="compressed"):
        hr.Dataset.open(tmp_path / "y.csv.gz", format="csv", encoding="utf-16")
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress(text(ROWS[:2], ";").encode("latin-1")))
    packed = hr.Dataset.open(tmp_path / "z.csv.gz", format="csv", encoding="latin-1", delimiter=";")
    assert records(packed) == ROWS[:2]
    with pytest.raises(HeadraceError):
        hr.Dataset.open(tmp_path / "x.csv", format="csv", encoding="utf-32")


def test_a_header_longer_than_what_is_looked_at(tmp_path: Path) -> None:
    names = [f"column-{number}" for number in range(2000)]
    (tmp_path / "x.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    assert len(records(hr.Dataset.open(tmp_path, format="csv"))[0]) == 2000
