"""Previews of gzip, Arrow and sounds: what they show, and that nothing that is packed takes more than it may."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import wave

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather

from headrace.base.units import format_bytes
from headrace.web.previews.source import Limits
from tests.unit.web.test_previews import Given

TABLE = pa.table({"number": np.arange(1000), "word": ["<b>bold</b>"] * 1000})


def told(given: Given) -> dict[str, str]:
    return {one.name: one.value for one in given.here().preview.facts}


def test_what_is_compressed_is_shown_as_what_it_is() -> None:
    rows = Given("rows.csv.gz", gzip.compress(b"x,y\n" + b"1,a\n" * 50)).here().preview
    assert (rows.kind, len(rows.rows)) == ("CSV, compressed by gzip", 20)
    assert [one.name for one in rows.columns] == ["x", "y"]
    lines = Given("log.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 3)).here().preview
    assert (lines.kind, lines.text, lines.notes) == ("text, compressed by gzip", '{"a": 1}\n{"a": 1}\n{"a": 1}', ())
    unnamed = Given("log", gzip.compress(b"one\n") + gzip.compress(b"two\n") + bytes(1000)).here().preview
    assert unnamed.text == "one\ntwo", "members one after the other, and padding"
    assert Given("empty.gz", gzip.compress(b"")).here().preview.notes == ("It is empty.",)
    numbers = Given("numbers.bin.gz", gzip.compress(bytes(range(256)))).here().preview
    assert numbers.kind == "bytes, compressed by gzip"
    twice = Given("twice.gz.gz", gzip.compress(gzip.compress(b"text"))).here().preview
    assert twice.kind == "bytes, compressed by gzip", "not unpacked again"


@pytest.mark.parametrize("name", ["shard.tar.gz", "shard.tgz", "shard"])
def test_files_of_a_compressed_tar(name: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 5
            archive.addfile(info, io.BytesIO(b"bytes"))
    shown = Given(name, out.getvalue()).here().preview
    assert (shown.kind, [row[0] for row in shown.rows]) == ("tar, compressed by gzip", ["0.txt", "1.txt", "2.txt"])


@pytest.mark.parametrize("name", ["bomb.csv.gz", "bomb.txt.gz", "bomb.tar.gz", "bomb"])
@pytest.mark.parametrize("line", [b"x,y\n", b"\0\0\0\0"], ids=["lines", "zeros"])
def test_a_bomb_is_unpacked_no_further_than_it_is_shown(name: str, line: bytes) -> None:
    """Four gigabytes in some megabytes."""
    given = Given(name, gzip.compress(line * (4 << 20), 9) * 256)
    assert len(given.data) < 8 << 20
    shown = given.apart().preview
    assert f"Unpacked are its first {format_bytes(1 << 20)}. There is more." in shown.notes
    assert len(shown.text) < 200_000
    assert given.read <= 128 << 10


def test_a_bomb_of_empty_members_ends() -> None:
    given = Given("members.gz", gzip.compress(b"") * 1_000_000)
    shown = given.apart(Limits(bytes=2 << 20, reads=20)).preview
    assert "more than 1,000 members" in shown.notes[0]
    assert given.read <= 128 << 10


@pytest.mark.parametrize("at", [5, 20, 200])
def test_what_is_damaged_or_cut_off_shows_what_came_before(at: int) -> None:
    packed = gzip.compress(np.random.default_rng(0).bytes(5000).hex().encode() + b"\n")
    cut = Given("cut.gz", packed[:at]).here().preview
    assert any("cut off" in one for one in cut.notes)
    broken = Given("broken.gz", packed[:at] + b"\xff" * 600).here().preview
    assert broken.notes


def arrow(kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "stream":
        with pa.ipc.new_stream(out, TABLE.schema) as writer:
            writer.write_table(TABLE, max_chunksize=300)
    else:
        feather.write_feather(TABLE, out, compression=kind, chunksize=300)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("rows.feather", "lz4"), ("rows.arrow", "uncompressed"), ("rows", "zstd"), ("rows.arrows", "stream"),
     ("rows.arrow", "stream")],
)  # fmt: skip
def test_rows_of_arrow(name: str, kind: str) -> None:
    given = Given(name, arrow(kind))
    shown = given.apart().preview
    assert (shown.kind, [(one.name, one.type) for one in shown.columns]) == (
        "Arrow", [("number", "int64"), ("word", "string")],
    )  # fmt: skip
    assert (len(shown.rows), shown.rows[19]) == (20, ("19", "<b>bold</b>"))
    assert shown.notes == ("The first 20 of 300 rows of the first batch.",)
    assert told(given).get("record batches") == (None if kind == "stream" else "4")


def test_arrow_that_is_none_or_that_nobody_reads() -> None:
    for data in (b"ARROW1\0\0" + bytes(100), b"FEA1" + bytes(100), arrow("lz4")[:-20], b""):
        shown = Given("odd.arrow", data).here().preview
        assert shown.kind in ("bytes", "text", "empty")
        assert shown.notes


def test_a_bomb_of_arrow_is_told(tmp_path: object) -> None:
    """A column that says it has a terabyte once it is unpacked."""
    data = arrow("zstd")
    size = (300 * 8).to_bytes(8, "little")
    assert size in data
    given = Given("bomb.feather", data.replace(size, (1 << 40).to_bytes(8, "little")))
    shown = given.apart().preview
    assert shown.rows == ()
    assert "cannot be shown" in shown.notes[0]
    assert [one.name for one in shown.columns] == ["number", "word"]


def test_a_large_batch_is_not_read() -> None:
    out = io.BytesIO()
    feather.write_feather(pa.table({"x": np.random.default_rng(0).random(1 << 19)}), out, compression="uncompressed",
                          chunksize=1 << 19)  # fmt: skip
    given = Given("large.feather", out.getvalue())
    shown = given.apart().preview
    assert given.read <= 2 << 20
    assert "a preview reads at most" in shown.notes[0]
    assert [one.name for one in shown.columns] == ["x"]


def page(body: bytes, place: int) -> bytes:
    return b"OggS\0\2" + struct.pack("<qIIIB", place, 1, 0, 0, 1) + bytes([len(body)]) + body


def sound(kind: str) -> bytes:
    if kind == "wav":
        out = io.BytesIO()
        with wave.open(out, "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(8000)
            file.writeframes(bytes(4 * 8000 * 3))
        return out.getvalue()
    if kind == "flac":
        packed = (44_100 << 44) | (1 << 41) | (15 << 36) | 44_100 * 90
        return b"fLaC\x80\0\0\x22" + bytes(10) + struct.pack(">Q", packed) + bytes(40)
    if kind == "opus":
        return page(b"OpusHead\1\2" + struct.pack("<HIhB", 312, 44_100, 0, 0), 0) + page(b"x", 48_000 * 5 + 312)
    if kind == "ogg":
        return page(b"\x01vorbis" + struct.pack("<IBI", 0, 1, 22_050) + bytes(20), 0) + page(b"x", 22_050 * 4)
    frame = b"\xff\xfb\x90\x00"
    if kind == "mp3":  # 128 kbit/s, 44.1 kHz, two channels: 16,000 bytes a second
        return b"ID3\4\0\0\0\0\1\0" + bytes(128) + frame + bytes(16_000 * 2 - 4)
    return frame + bytes(32) + b"Xing" + struct.pack(">II", 1, 1000) + bytes(400)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("wav", ("3 s", "8,000 Hz", "2")), ("flac", ("1 min 30 s", "44,100 Hz", "2")), ("opus", ("5 s", "48,000 Hz", "2")),
     ("ogg", ("4 s", "22,050 Hz", "1")), ("mp3", ("2 s", "44,100 Hz", "2")), ("xing", ("26.1 s", "44,100 Hz", "2"))],
)  # fmt: skip
def test_what_a_sound_is(kind: str, wanted: tuple[str, str, str]) -> None:
    given = Given(f"sound.{'mp3' if kind == 'xing' else kind}", sound(kind))
    made = given.apart()
    assert (made.preview.kind, made.preview.sound, made.preview.notes) == ("sound", True, ())
    facts = told(given)
    assert (facts["duration"], facts["rate"], facts["channels"]) == wanted


@pytest.mark.parametrize("kind", ["wav", "flac", "opus", "ogg", "mp3", "xing"])
def test_a_damaged_sound_never_breaks_the_page(kind: str) -> None:
    data = sound(kind)
    for at in range(4, 60, 3):
        for odd in (data[:at], data[:at] + b"\xff" * (len(data) - at), data[:at] + bytes(len(data) - at)):
            shown = Given(f"sound.{kind}", odd).here().preview
            assert shown.notes or shown.facts or shown.text


def test_what_is_no_sound_has_no_player() -> None:
    shown = Given("page.mp3", b"<script>alert(1)</script>").here().preview
    assert (shown.kind, shown.sound) == ("text", False)
    assert "does not begin as any that can be played" in shown.notes[0]
