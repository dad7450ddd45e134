"""JSON Lines and CSV as shards: the lines that json and csv see, as byte ranges."""

import csv
import io
import json
import pickle

import pytest

from headrace.base.errors import CorruptError, InputError
from headrace.formats.text.csv_records import CSV, Csv
from headrace.formats.text.jsonl import JSONL, JsonLines
from tests.shard_formats_kit import Shard, ranges, values


def test_json_lines() -> None:
    rows = [{"text": "größe\n ✓", "n": 1}, [1, 2.5, None], "plain", 7, {}]
    assert values(JSONL, "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()) == rows


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_marks_and_empty_lines(end: bytes, last: bool, mark: bytes) -> None:
    lines = [b'{"a": 1}', b"", b'{"a": 2}', b"", b"", b'{"a": 3}']
    data = mark + end.join(lines) + (end if last else b"")
    assert [bytes(one) for one in ranges(JSONL, data)] == [b'{"a": 1}', b'{"a": 2}', b'{"a": 3}']
    data = mark + end.join([b"a,b", b"", b"1,2", b"", b'3,"4\r\n\n"']) + (end if last else b"")
    assert values(CSV, data) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4\r\n\n"}]


def test_blank_lines_are_nothing_in_json_and_values_in_csv() -> None:
    assert values(JSONL, b"1\n \t\r\n2\n  ") == [1, 2]
    assert values(CSV, b"a\n1\n \n2\n") == [{"a": "1"}, {"a": " "}, {"a": "2"}]
    assert values(Csv(delimiter="\t"), b"a\tb\n\t\n") == [{"a": "", "b": ""}]


@pytest.mark.parametrize("data", [b"", b"\n\n\r\n", b"\xef\xbb\xbf"])
def test_shards_without_lines(data: bytes) -> None:
    assert ranges(JSONL, data) == ranges(CSV, data) == []
    assert CSV.preamble(Shard(data)) == b""


def test_a_header_alone_is_no_record() -> None:
    assert ranges(CSV, b"a,b\n") == ranges(CSV, b"a,b") == []


def test_csv_without_header() -> None:
    assert values(Csv(columns=("x", "y")), b"1,2\n3,4") == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]


def test_what_the_csv_module_wrote_over_many_pieces() -> None:
    rows = [[str(n), 'a "quoted" one,\r\n' * (n % 40), "é" * (n % 7), ""] for n in range(8000)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([["n", "te xt", "é", 'odd"name'], *rows])
    data = text.getvalue().encode()
    assert len(data) > 2 << 20
    assert [list(row.values()) for row in values(CSV, data)] == rows
    assert list(values(CSV, data)[0]) == ["n", "te xt", "é", 'odd"name']


def test_lines_longer_than_a_piece() -> None:
    rows = [{"a": "x" * n} for n in (3 << 20, 5, 1 << 20, (1 << 20) - 10, 9 << 20)]
    assert values(JSONL, b"\n".join(json.dumps(row).encode() for row in rows)) == rows
    big = "y,\n" * (1 << 20)
    assert values(CSV, f'a,b\n"{big}",1\n2,3\n'.encode()) == [{"a": big, "b": "1"}, {"a": "2", "b": "3"}]


def test_a_long_line_takes_few_reads() -> None:
    shard = Shard(b"x" * (40 << 20) + b"\n1\n")
    assert sum(1 for _ in JSONL.scan(shard)) == 2
    assert shard.reads < 12
    assert shard.bytes_read < shard.size + 100


def test_a_line_without_end_is_refused_before_it_fills_memory() -> None:
    for data in (b"\n" + b"x" * (40 << 20), b"\n" + b"x" * (8 << 20) + b"\n"):
        shard = Shard(data)
        with pytest.raises(CorruptError, match="at byte 1 is longer than 4194304 bytes") as caught:
            list(JsonLines(longest=4 << 20).scan(shard))
        assert caught.value.path == Shard.path
        assert shard.bytes_read < 17 << 20
    with pytest.raises(CorruptError, match="at byte 3 is longer than 100 bytes"):
        list(JsonLines(longest=100).scan(Shard(b"1\n\n" + b"x" * 101 + b"\n2\n")))
    with pytest.raises(CorruptError, match="at byte 2 is longer"):
        list(Csv(longest=4 << 20).scan(Shard(b'a\n"' + b"x\n" * (5 << 20))))


def test_a_quote_that_is_never_closed_is_no_silent_gap() -> None:
    for data in (b'a,b\n1,2\n"3,4\n5,6\n', b'a,b\n1,2\n"3,4\n5,6', b'a,b\n1,2\n"'):
        with pytest.raises(CorruptError, match="never closed in the record that starts at byte 8"):
            list(CSV.scan(Shard(data)))


@pytest.mark.parametrize(
    ("data", "at"), [(b'a,b\n5",2\n', 5), (b'a,b\n"5"x",2\n', 8), (b'a,b\n1,x"y"\n', 7), (b'a,b\n1, "y"\n', 7)]
)
def test_a_quote_inside_a_plain_field_is_refused(data: bytes, at: int) -> None:
    with pytest.raises(CorruptError, match=f"inside a field without quotes, at byte {at}") as caught:
        list(CSV.scan(Shard(data)))
    assert caught.value.path == Shard.path


@pytest.mark.parametrize("line", [b'"a"x,1', b"1", b"1,2,3", b"\xff,1", b"1\r2,3"])
def test_records_that_are_no_records(line: bytes) -> None:
    decode = CSV.decoder(b"a,b")
    with pytest.raises(CorruptError):
        decode(memoryview(line))


@pytest.mark.parametrize("delimiter", ["", "::", "é", '"', "\n"])
def test_what_cannot_separate_fields(delimiter: str) -> None:
    with pytest.raises(InputError, match="delimiter"):
        Csv(delimiter=delimiter)


def test_a_column_named_twice_is_refused() -> None:
    with pytest.raises(CorruptError, match="'a' twice"):
        CSV.decoder(b"a,b,a")


@pytest.mark.parametrize("line", [b"{", b"\xff", b"[" * 100_000, b"1" * 5000, b"{} {}", b"", b"\0"])
def test_lines_that_are_no_json(line: bytes) -> None:
    with pytest.raises(CorruptError):
        JSONL.decode(memoryview(line))


def test_decoders_travel_between_processes() -> None:
    decode = pickle.loads(pickle.dumps(CSV.decoder(b"a,b")))
    assert decode(memoryview(b"1,2")) == {"a": "1", "b": "2"}


def test_recognised_by_their_first_lines() -> None:
    assert JSONL.recognise(memoryview(b'\xef\xbb\xbf{"a": 1}\r\n{"a'))
    assert CSV.recognise(memoryview(b'a,b\n1,"x\ny"\n3'))
    for head in (b"", b'{\n "a": 1}', b"plain\ntext\n", b"\x93NUMPY,\n,\n", b"a,b\n1\n", b'a,b"\n', bytes(512)):
        assert not JSONL.recognise(memoryview(head))
        assert not CSV.recognise(memoryview(head))
