"""Compressed shards: what comes out of the streams, what is refused, what is held in memory, the order by wholes."""

from __future__ import annotations

import gzip
import io
import subprocess
import threading
import time
import tracemalloc
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import CorruptError, TryAgainError, UnsupportedError
from headrace.formats.codecs.compression import codec_of
from headrace.formats.codecs.decompressed_stream import StreamBytes, seen_through
from headrace.formats.compressed.decompressed import Kept
from headrace.formats.shard_format import UNKNOWN, Format
from headrace.formats.tar.tar import Tar
from headrace.formats.text.csv_records import CSV
from headrace.formats.text.jsonl import JSONL, JsonLines
from headrace.formats.tfrecord.tfrecord import TFRECORD
from headrace.loader.order.order import Rows
from headrace.loader.order.shard_order import wholes
from tests.shard_formats_kit import Shard, record, values
from tests.tar_kit import tar_of

FIXTURES = Path(__file__).parents[1] / "compat/shards"
MB = 1 << 20


def command(*argv: str) -> Any:
    return lambda data: subprocess.run(argv, input=data, capture_output=True, check=True).stdout


def halves(pack: Any, between: bytes = b"", behind: bytes = b"") -> Any:
    return lambda data: pack(data[: len(data) // 2]) + between + pack(data[len(data) // 2 :]) + behind


ZSTD = command("zstd", "-q")
SKIPPED = b"\x53\x2a\x4d\x18\x05\0\0\0notes"
PACKERS = {
    "gzip": command("gzip", "-c"),
    "gzip, members": halves(command("gzip", "-c")),
    "gzip, padded": halves(gzip.compress, behind=bytes(700)),
    "zstd": ZSTD,
    "zstd, no size, no checksum": command("zstd", "-q", "--no-check", "-9"),
    "zstd, frames": halves(ZSTD, between=SKIPPED),
    "zlib": zlib.compress,
}


def codec(name: str) -> str:
    return name.partition(",")[0]


def text(size: int) -> bytes:
    """Of a kind that compresses, though not to nothing."""
    return np.random.default_rng(size).integers(32, 60, size, np.uint8).tobytes()


def drained(packed: bytes, kind: str, most: int = 1 << 30) -> bytes:
    stream = StreamBytes(Shard(packed), kind, most)
    found, at = io.BytesIO(), 0
    while len(piece := stream.read(at, at + 300_000)):
        at += found.write(piece)
    assert stream.finish() == stream.size == at
    return found.getvalue()


# The streams


@pytest.mark.parametrize("name", PACKERS)
@pytest.mark.parametrize("size", [1, 5 * MB + 3])
def test_what_comes_out_is_what_went_in(name: str, size: int) -> None:
    data = text(size)
    assert drained(PACKERS[name](data), codec(name)) == data


def test_nothing_compressed_is_nothing() -> None:
    for name in ("gzip", "zstd", "zlib"):
        assert drained(PACKERS[name](b""), name) == b""


PLACES = st.lists(st.tuples(st.integers(0, 3 * MB), st.integers(0, MB)), max_size=12)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
@given(places=PLACES)
@settings(max_examples=15, deadline=None)
def test_any_range_forwards_or_back(name: str, places: list[tuple[int, int]]) -> None:
    data = text(2 * MB)
    stream = StreamBytes(Shard(packed_once(name, 2 * MB)), name)
    for start, length in places:
        assert bytes(stream.read(start, start + length)) == data[start : start + length]
        assert stream.size in (UNKNOWN, len(data))
        if start + length >= len(data):
            assert stream.size == len(data), "known as soon as the last byte was read"


_PACKED: dict[tuple[str, int], bytes] = {}


def packed_once(name: str, size: int) -> bytes:
    if (name, size) not in _PACKED:
        _PACKED[name, size] = PACKERS[name](text(size))
    return _PACKED[name, size]


@pytest.mark.parametrize("name", ["gzip", "zstd", "zlib", "gzip, members"])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_stream_cut_short_is_named(name: str, data: st.DataObject) -> None:
    packed = packed_once(name, 60_000)
    keep = data.draw(st.integers(3, len(packed) - 1))
    if name == "gzip, members" and packed[:keep] == gzip_member(packed):
        return  # the first of two members, whole
    with pytest.raises(CorruptError, match=r"cut short|ends inside") as caught:
        drained(packed[:keep], codec(name))
    assert caught.value.path == Shard.path
    assert "compressed, about byte" in caught.value.reason


def gzip_member(packed: bytes) -> bytes:
    one = zlib.decompressobj(31)
    one.decompress(packed)
    return packed[: len(packed) - len(one.unused_data)]


@pytest.mark.parametrize("name", ["gzip", "zstd", "zlib"])
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_damage_is_noticed_or_harmless(name: str, data: st.DataObject) -> None:
    packed = bytearray(packed_once(name, 60_000))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(2, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = drained(bytes(packed), name)
    except (CorruptError, UnsupportedError):
        return
    assert found == text(60_000)  # a name or a time in a header


@given(junk=st.binary(max_size=300), head=st.sampled_from([b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x78\x9c", b""]))
@settings(max_examples=300, deadline=None)
def test_junk_is_refused_by_every_format(junk: bytes, head: bytes) -> None:
    for fmt in (Tar(), TFRECORD, JSONL, CSV):
        try:
            found = seen_through(fmt, Shard(head + junk))
        except CorruptError:
            pass
        else:
            assert not isinstance(found, StreamBytes)


@pytest.mark.parametrize("name", ["gzip", "zstd", "zlib"])
def test_what_lies_behind_the_stream_is_refused(name: str) -> None:
    with pytest.raises(CorruptError, match=r"damaged|goes on behind"):
        drained(PACKERS[name](b"data") + b"more", name)


@pytest.mark.parametrize("name", ["gzip", "zstd", "zlib"])
def test_a_bomb_is_refused_before_it_takes_memory(name: str) -> None:
    packed = PACKERS[name](bytes(120 * MB))
    assert len(packed) < MB
    tracemalloc.start()
    with pytest.raises(UnsupportedError, match="more than 104,857,600 bytes") as caught:
        StreamBytes(Shard(packed), name, 100 * MB).finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "decompress it" in str(caught.value.hint)
    assert peak < 12 * MB


def test_a_scan_holds_a_window() -> None:
    packed = gzip.compress(tar_of([(f"{n}.bin", bytes(40 * MB)) for n in range(3)]), 1)
    tracemalloc.start()
    stream = StreamBytes(Shard(packed), "gzip")
    found = list(Tar().scan(stream))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [one.stop - one.start for one in found] == [40 * MB] * 3
    assert peak < 12 * MB


def test_compression_is_told_by_content_where_the_format_has_it() -> None:
    heads = {name: memoryview(PACKERS[name](b"data" * 9)) for name in ("gzip", "zstd", "zlib")}
    assert {name: codec_of(TFRECORD, head) for name, head in heads.items()} == {name: name for name in heads}
    assert codec_of(Tar(), heads["zlib"]) is None
    assert codec_of(Tar(), memoryview(SKIPPED)) == "zstd"
    for other in (b"", b"\x1f", b"BZh9", b"\xfd7zXZ", b"x,y\n1,2\n", record(b"x")):
        assert codec_of(TFRECORD, memoryview(other)) is None


# Formats over them


def bare(fmt: Format, data: bytes) -> list[tuple[Any, ...]]:
    return [tuple(one) for one in fmt.scan(Shard(data))]


def through(fmt: Format, data: bytes, kind: str = "gzip") -> list[tuple[Any, ...]]:
    stream = seen_through(fmt, Shard(PACKERS[kind](data)))
    assert isinstance(stream, StreamBytes)
    if fmt is CSV:
        assert CSV.preamble(stream) == CSV.preamble(Shard(data))
    found = [tuple(one) for one in fmt.scan(stream)]
    assert stream.finish() == len(data)
    return found


LINE = b'{"a": "' + b"x" * 1014 + b'"}\n'
CONTENTS: dict[str, tuple[Format, bytes]] = {
    "tar": (Tar(), tar_of([(f"{n}.{part}", bytes([n]) * n * 999) for n in range(90) for part in ("x", "y")])),
    "small records": (TFRECORD, record(b"x" * 300) * 4000),
    "large records": (TFRECORD, (record(b"")[:0] + record(b"", claimed=3 * MB)[:12] + bytes(3 * MB + 4)) * 3),
    "lines": (JSONL, b"".join(b'{"n": %d}\n' % n for n in range(90_000))),
    "lines that fill pieces": (JSONL, LINE * 2048),
    "no last line end": (JSONL, (LINE * 2048)[:-1]),
    "csv": (CSV, b"a,b\r\n" + b'1,"two\nlines"\r\n' * 90_000),
    "csv, one line": (CSV, b"a,b\n1,2"),
}


@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_members_are_those_of_the_plain_shard(name: str, kind: str) -> None:
    fmt, data = CONTENTS[name]
    assert len(LINE) == 1024
    assert through(fmt, data, kind) == bare(fmt, data) != []


@pytest.mark.parametrize(("cut", "what"), [(5, "ends"), (MB, "inside record 2")])
def test_a_shard_cut_before_it_was_compressed(cut: int, what: str) -> None:
    with pytest.raises(CorruptError, match=what):
        through(TFRECORD, CONTENTS["large records"][1][:-cut])
    with pytest.raises(CorruptError, match="end mark"):
        through(Tar(), tar_of([("1.x", bytes(3 * MB))])[:MB])
    with pytest.raises(CorruptError, match="longer than 99 bytes"):
        list(JsonLines(longest=99).scan(StreamBytes(Shard(gzip.compress(LINE)), "gzip")))


@pytest.mark.parametrize("name", ["raw.tfrecord.gz", "raw.tfrecord.zlib"])
def test_what_tensorflow_compressed_is_read(name: str) -> None:
    stream = seen_through(TFRECORD, Shard((FIXTURES / name).read_bytes()))
    assert isinstance(stream, StreamBytes)
    data = bytes(stream.read(0, 1 << 20))
    assert data == (FIXTURES / "raw.tfrecord").read_bytes()
    assert len(values(TFRECORD, data)) == len(list(TFRECORD.scan(stream))) == 8


# What is kept


def test_shards_used_last_are_kept_and_no_more_than_fit() -> None:
    kept, made = Kept(100), Counter[str]()

    def get(key: str, size: int) -> None:
        def make() -> memoryview:
            made[key] += 1
            return memoryview(bytes(size))

        assert len(kept.get(key, size, make)) == size

    for key in "ababcab":  # c takes the place of a, and a that of b
        get(key, 40)
    assert made == {"a": 2, "b": 2, "c": 1}
    get("large", 1000)  # one always
    get("large", 1000)
    get("a", 40)
    assert (made["large"], made["a"]) == (1, 3)


def test_one_makes_it_while_others_wait_and_a_failure_is_no_end() -> None:
    """The first of twenty threads makes its shard once all others wait; two shards do not fit at once."""
    kept, made, got = Kept(100), Counter[str](), Counter[str]()
    lock, under_way, most = threading.Lock(), [0], [0]

    def make(key: str) -> memoryview:
        with lock:
            made[key] += 1
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            first = sum(made.values()) == 1
        while first and sum(kept._wanted.values()) < 19:
            time.sleep(0.001)
        with lock:
            under_way[0] -= 1
        if first:
            raise TryAgainError("no answer")
        return memoryview(key.encode() * 60)

    def ask(key: str) -> None:
        try:
            data = kept.get(key, 60, lambda: make(key))
        except TryAgainError:
            got["failed"] += 1
        else:
            assert bytes(data) == key.encode() * 60
            got[key] += 1

    threads = [threading.Thread(target=ask, args=("ab"[n % 2],)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(got.values()) == 20
    assert got["failed"] == 1
    assert sum(made.values()) == 3, "each once, in turns, and once more after the failure"
    assert most == [1]


# The order


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=30), together=st.integers(1, 8), seed=st.integers(0, 9))
@settings(max_examples=80, deadline=None)
def test_every_row_comes_once_and_shards_whole(sizes: list[int], together: int, seed: int) -> None:
    size = sum(sizes)
    shard_of = np.repeat(np.arange(len(sizes)), sizes)
    order = wholes(Rows(size, "x"), seed, np.cumsum([0, *sizes[:-1]]), together)
    _, rows = order.locate(0, np.arange(size))
    assert sorted(rows.tolist()) == list(range(size))
    shards = shard_of[rows]
    places = {shard: np.flatnonzero(shards == shard) for shard in range(len(sizes))}
    overlap = Counter(position for where in places.values() for position in range(int(where[0]), int(where[-1]) + 1))
    assert max(overlap.values()) <= together, "so many are under way at once"
    some = np.random.default_rng(seed).permutation(size)[:20]
    assert order.locate(0, some)[1].tolist() == rows[some].tolist()
    assert order.mixing.mixed_blocks == min(together, len(sizes))
    if len(sizes) > 4 and together == 1:
        assert order.locate(1, np.arange(size))[1].tolist() != rows.tolist()
