"""Previews: of whatever bytes, under whatever name, something is shown, within bounds; of sound files what they are."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headrace.base.errors import ChangedError, CorruptError, NoRoomError
from headrace.web.previews.apart import made_apart
from headrace.web.previews.kinds import kinds, made
from headrace.web.previews.preview import Made
from headrace.web.previews.source import Budget, Limits, Source

SMALL = Limits(bytes=2 << 20, reads=100)
HIDDEN = object()


class Given:
    """Bytes of a file as a page has them; counts what was asked for."""

    def __init__(self, name: str, data: bytes, limits: Limits = SMALL) -> None:
        self.name, self.data = name, data
        self.read = self.reads = 0
        self._budget = Budget(limits)

    def ask(self, start: int, stop: int) -> bytes:
        self.read += stop - start
        self.reads += 1
        return self.data[start:stop]

    def within(self, start: int, stop: int) -> bytes:
        self._budget.take(start, stop)
        return self.ask(start, stop)

    def here(self) -> Made:
        return made(Source(f"/data/{self.name}", len(self.data), self.within))

    def apart(self, limits: Limits = SMALL) -> Made:
        return made_apart(f"/data/{self.name}", len(self.data), self.ask, limits)


def parquet(columns: int = 3, rows: int = 1000) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({f"c{number}": np.arange(rows) for number in range(columns)}), out)
    return out.getvalue()


def tar(count: int, size: int) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(count):
            info = tarfile.TarInfo(f"folder/{number:04} with a name that goes on for {'long' * 20}.bin")
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return out.getvalue()


def npy(array: object) -> bytes:
    out = io.BytesIO()
    np.save(out, np.asarray(array), allow_pickle=True)
    return out.getvalue()


def npz(**arrays: object) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **{name: np.asarray(one) for name, one in arrays.items()})
    return out.getvalue()


def safetensors(header: object, data: int = 24) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(data)


def picture(width: int = 1000, height: int = 500) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 10, 10)).save(out, "PNG")
    return out.getvalue()


SOUND: dict[str, Callable[[], bytes]] = {
    "a.parquet": parquet, "a.csv": lambda: b"x,y\n1,a\n2,b\n", "a.tar": lambda: tar(3, 10),
    "a.npy": lambda: npy([[1.5]]), "a.npz": lambda: npz(a=[1], b=np.float32(2)), "a.png": picture,
    "a.txt": lambda: "héllo\n".encode() * 3,
    "a.safetensors": lambda: safetensors({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}),
}  # fmt: skip
SUFFIXES = sorted({suffix for kind in kinds() for suffix in kind.suffixes} | {".txt", "", ".unknown"})
MAGIC = sorted({at * b"\0" + text for kind in kinds() for at, text in kind.magic})


@given(st.sampled_from(SUFFIXES), st.one_of(st.just(b""), st.sampled_from(MAGIC)), st.binary(max_size=3000))
@settings(max_examples=300)
def test_anything_is_shown_within_bounds(suffix: str, head: bytes, rest: bytes) -> None:
    given_ = Given(f"any{suffix}", head + rest)
    found = given_.here()
    assert bounded(found)
    assert given_.read <= SMALL.bytes


@given(st.sampled_from(sorted(SOUND)), st.data())
@settings(max_examples=150)
def test_damage_is_shown_within_bounds(name: str, data: st.DataObject) -> None:
    sound = bytearray(SOUND[name]())
    for _ in range(data.draw(st.integers(1, 4))):
        sound[data.draw(st.integers(0, len(sound) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(sound)))
    if name == "a.parquet":  # what Arrow does with that, it does in a process of its own
        return
    assert bounded(Given(name, bytes(sound[:cut] if cut % 2 else sound)).here())


def bounded(found: Made) -> bool:
    assert len(found.picture) < 1 << 20
    assert len(found.preview.rows) <= 200
    return len(msgspec.json.encode(found.preview)) < 1 << 20


@given(st.data())
@settings(max_examples=12)
def test_a_damaged_parquet_ends_nothing_but_its_own_process(data: st.DataObject) -> None:
    sound = bytearray(parquet())
    for _ in range(data.draw(st.integers(1, 6))):
        sound[data.draw(st.integers(0, len(sound) - 9))] = data.draw(st.integers(0, 255))
    with suppress(CorruptError):
        assert bounded(Given("a.parquet", bytes(sound)).apart())


def test_what_sound_files_are() -> None:
    told = {name: Given(name, make()).here().preview for name, make in SOUND.items()}
    assert {name: one.kind for name, one in told.items()} == {
        "a.parquet": "Parquet", "a.csv": "CSV", "a.tar": "tar", "a.npy": "array", "a.npz": "zip", "a.png": "picture",
        "a.txt": "text", "a.safetensors": "safetensors",
    }  # fmt: skip
    parquet_, csv, numpy, zipped = told["a.parquet"], told["a.csv"], told["a.npy"], told["a.npz"]
    assert [(one.name, one.type) for one in parquet_.columns] == [("c0", "int64"), ("c1", "int64"), ("c2", "int64")]
    assert (len(parquet_.rows), parquet_.rows[19]) == (20, ("19",) * 3)
    assert parquet_.notes == ("The first 20 of 1,000 rows.",)
    assert ([one.type for one in csv.columns], csv.rows) == (["int64", "string"], (("1", "a"), ("2", "b")))
    assert {(one.name, one.value) for one in numpy.facts} >= {("type", "float64"), ("shape", "1 × 1"), ("bytes", "8 B")}
    assert [row[2:] for row in zipped.rows] == [("int64", "1"), ("float32", "one value")]
    assert told["a.tar"].notes == ("All 3 files.",)
    assert told["a.txt"].text == "héllo\nhéllo\nhéllo"
    assert told["a.safetensors"].rows == (("w", "F32", "2 × 3", "24 B"),)


def test_a_picture_is_made_anew_and_smaller() -> None:
    found = Given("a.png", picture()).apart()
    with Image.open(io.BytesIO(found.picture)) as shown:
        assert (shown.format, shown.size) == ("JPEG", (720, 360))


@pytest.mark.parametrize("name", ["noname", "a.dat"])
def test_without_a_suffix_it_is_known_by_how_it_begins(name: str) -> None:
    assert Given(name, parquet()).here().preview.kind == "Parquet"
    assert Given(name, tar(1, 1)).here().preview.kind == "tar"
    assert Given(name, picture()).here().preview.kind == "picture"
    assert Given(name, bytes(1000)).here().preview.kind == "bytes"


def test_a_file_that_is_not_what_its_name_says_is_shown_as_what_it_is() -> None:
    found = Given("a.parquet", b"just text\n").here().preview
    assert (found.kind, found.text) == ("text", "just text")
    assert "as Parquet it cannot be" in found.notes[0]


def test_text_of_any_encoding() -> None:
    def text(data: bytes) -> str:
        return Given("a.txt", data).here().preview.text

    assert text("größe\n".encode("utf-16")) == "größe"
    assert text(b"\xef\xbb\xbfx") == "x"
    assert text(b"gr\xf6\xdfe und vieles mehr, das man liest") == "gr\ufffd\ufffde und vieles mehr, das man liest"
    long = Given("a.txt", "é".encode() * 100_000).here().preview
    assert (len(long.text), long.text[-1]) == (501, "…")
    assert long.notes == ("The first line of 200 kB.", "Lines of more than 500 characters are cut: they end with …")


def test_a_csv_of_any_encoding_and_with_rows_that_do_not_fit() -> None:
    found = Given("a.csv", "number;word\n1;größe\n2\n3;zebra crossing\n".encode("latin-1")).here().preview
    assert found.rows == (("1", "gr\ufffd\ufffde"), ("3", "zebra crossing"))
    assert found.notes == ("1 rows that do not have 2 fields are left out.",)


def test_of_much_little_is_read() -> None:
    def read(name: str, data: bytes) -> int:
        given_ = Given(name, data)
        given_.here()
        return given_.read

    assert read("a.txt", b"x\n" * (4 << 20)) <= 80 << 10
    assert read("a.csv", b"x,y\n" * (1 << 20)) <= 1 << 18
    assert read("a.tar", tar(50, 500_000)) <= 50 * (20 << 10)
    assert read("a.npy", npy(np.zeros(1_000_000))) <= 16 << 10
    assert read("a.parquet", parquet(rows=1_000_000, columns=4)) <= 2 << 20


def test_many_names_are_not_all_told() -> None:
    wide = Given("a.parquet", parquet(columns=2000, rows=10), Limits()).here().preview
    assert (len(wide.columns), len(wide.rows), len(wide.text.splitlines())) == (30, 10, 500)
    assert "The first 30 of 2,000 columns; below them the names of 500 more." in wide.notes
    many = Given("a.tar", tar(300, 1)).here().preview
    assert (len(many.rows), many.notes) == (200, ("The first 200 files; others follow.",))
    tensors = {f"t{number}": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]} for number in range(300)}
    model = Given("a.safetensors", safetensors(tensors, 1)).here().preview
    assert (len(model.rows), model.notes) == (200, ("The first 200 of 300 tensors.",))


def test_a_tar_of_large_members_ends_where_enough_was_read() -> None:
    found = Given("a.tar", tar(150, 20_000), Limits(reads=40)).here().preview
    assert 10 < len(found.rows) < 60
    assert "no more can be told: a preview reads at most" in found.notes[0]


def test_a_header_that_is_too_large_is_refused() -> None:
    liar = (90 << 20).to_bytes(8, "little") + bytes(1000)
    assert "too short" in Given("a.safetensors", liar).here().preview.notes[0]
    source = Source("/a.safetensors", 1 << 40, lambda start, stop: (liar + bytes(stop))[start:stop])
    assert "its header alone has 94.4 MB" in made(source).preview.notes[0]


def test_pickled_objects_are_named_and_left_alone() -> None:
    found = Given("a.npy", npy(np.array([HIDDEN.__class__], dtype=object))).here().preview
    assert "could run any code" in found.notes[0]


def test_a_zip_bomb_is_listed() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(100 << 20))
    found = Given("a.npz", out.getvalue()).apart().preview
    assert found.rows == (("a.npy", "105 MB", "no array", ""),)


def test_a_bomb_takes_neither_memory_nor_time_of_the_page() -> None:
    out = io.BytesIO()
    values = pa.array([bytes(150 << 20)], pa.binary())
    pq.write_table(pa.table({"x": values}), out, compression="zstd", use_dictionary=False, write_statistics=False)
    assert out.tell() < 1 << 20
    given_ = Given("a.parquet", out.getvalue())
    found = given_.apart(Limits(memory=380 << 20)).preview
    assert (found.kind, found.rows) == ("Parquet", ())
    assert "Its rows cannot be shown" in found.notes[0]


def test_what_the_store_says_is_told() -> None:
    def ask(start: int, stop: int) -> bytes:
        raise ChangedError("the object has changed")

    with pytest.raises(ChangedError):
        made_apart("/data/a.txt", 100, ask, SMALL)


def test_a_preview_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    import time

    def ask(start: int, stop: int) -> bytes:
        time.sleep(1.5)
        return bytes(stop - start)

    with pytest.raises(CorruptError, match="took more than"):
        made_apart("/data/a.tar", 1 << 30, ask, Limits(seconds=1.0))


def test_a_budget_is_spent_once() -> None:
    budget = Budget(Limits(bytes=100, reads=5))
    budget.take(0, 60)
    with pytest.raises(NoRoomError):
        budget.take(60, 120)
    with pytest.raises(NoRoomError):
        budget.take(60, 61)
