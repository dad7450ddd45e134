"""Scanning a tar equals Python's own tarfile; damage ends in CorruptError or in what tarfile sees, nothing else."""

from __future__ import annotations

import io
import tarfile
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.base.errors import CorruptError
from headrace.formats.shard_format import Alike, groups_of
from headrace.formats.tar.tar import Tar
from tests.tar_kit import MemoryBytes, Seen, as_tarfile_sees, indexed, scanned, seen, tar_of

many = settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.too_slow])
FORMS = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
LONG_FORMS = st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
PIECE = st.text(st.sampled_from("ab17_-é日 ."), min_size=1, max_size=9)
NAMES = st.lists(PIECE, min_size=1, max_size=4).map("/".join)
LONG = st.tuples(st.integers(1, 40), NAMES).map(lambda made: "folder-a/" * made[0] + made[1])
BODIES = st.integers(0, 3000).map(lambda size: bytes(range(256)) * (size // 256) + b"x" * (size % 256))
KINDS = st.sampled_from([b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"0"])


def is_relative(name: str) -> bool:
    return not name.startswith("/") and ".." not in name.split("/") and "//" not in name


GOOD = NAMES.filter(is_relative)
FILES = st.lists(st.tuples(GOOD, BODIES), max_size=8)


@many
@given(st.lists(st.tuples(st.one_of(GOOD, LONG.filter(is_relative)), BODIES), max_size=8), LONG_FORMS)
def test_every_regular_file_is_found_where_tarfile_finds_it(files: list[tuple[str, bytes]], form: int) -> None:
    data = tar_of(files, form)
    assert seen(data) == as_tarfile_sees(data)


@many
@given(FILES)
def test_ustar(files: list[tuple[str, bytes]]) -> None:
    data = tar_of(files, tarfile.USTAR_FORMAT)
    assert seen(data) == as_tarfile_sees(data)


@many
@given(st.lists(st.tuples(GOOD, KINDS), max_size=8), FORMS)
def test_links_folders_and_devices_are_no_parts(entries: list[tuple[str, bytes]], form: int) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, kind in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "a" * 90
            entry.size = 700 if kind in (b"0", b"7") else 0
            tar.addfile(entry, io.BytesIO(b"y" * entry.size))
    data = out.getvalue()
    assert seen(data) == as_tarfile_sees(data)


def damaged(data: bytes) -> Seen | None:
    """What the scan sees of it; None for CorruptError. Anything else is raised, and fails the test."""
    try:
        return seen(data)
    except CorruptError as error:
        failed = error
    assert failed.path == "memory://shards/s.tar"
    assert failed.reason.startswith("at byte ")
    return None


@many
@given(FILES, FORMS, st.data())
def test_a_truncated_tar_is_refused_or_whole(files: list[tuple[str, bytes]], form: int, data: Any) -> None:
    whole = tar_of(files, form)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    assert damaged(cut) in (None, seen(whole))


@many
@given(FILES, FORMS, st.data())
def test_flipped_bytes_are_refused_or_seen_as_tarfile_sees_them(
    files: list[tuple[str, bytes]], form: int, data: Any
) -> None:
    made = bytearray(tar_of(files, form))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(made) - 1, 12_000)))
        made[at] ^= data.draw(st.integers(1, 255))
    found = damaged(bytes(made))
    assert found is None or found == as_tarfile_sees(bytes(made))


@many
@given(st.binary(max_size=4000))
def test_noise_is_corrupt(noise: bytes) -> None:
    found = damaged(noise)
    assert found is None or not noise.strip(b"\0")
    assert isinstance(Tar().recognise(memoryview(noise)), bool)


@many
@given(FILES, FORMS)
def test_only_headers_are_read(files: list[tuple[str, bytes]], form: int) -> None:
    data = MemoryBytes(tar_of([(name, body * 50) for name, body in files], form))
    members = list(Tar().scan(data))
    assert [m.stop - m.start for m in members] == [m.stop - m.start for m in scanned(data.data)]
    extended = 4 * 512  # a long name or a PAX header has a block or two more
    assert data.bytes_read <= len(files) * (512 + extended) + 20 * 512


def outcome(data: bytes, window: int) -> Any:
    try:
        return scanned(data, window)
    except CorruptError as error:
        return error.reason, error.hint


MANY = st.lists(st.tuples(GOOD, BODIES), min_size=20, max_size=60)
ODD = st.lists(st.tuples(st.one_of(LONG, NAMES, st.just("../a.x"), st.just("/a.x")), BODIES), max_size=2)


@settings(many, max_examples=100)  # each is dozens of files
@given(MANY, ODD, MANY, FORMS, st.integers(0, 60_000), st.data())
def test_headers_read_together_are_as_one_by_one(
    first: list[tuple[str, bytes]], odd: list[tuple[str, bytes]], last: list[tuple[str, bytes]], form: int, window: int,
    data: Any,
) -> None:  # fmt: skip
    try:
        made = bytearray(tar_of([*first, *odd, *last], form))
    except ValueError:  # a name too long for ustar
        return
    for _ in range(data.draw(st.integers(0, 2))):
        made[data.draw(st.integers(0, len(made) - 1))] ^= data.draw(st.integers(1, 255))
    tar = bytes(made[: len(made) - data.draw(st.sampled_from([0, 0, 0, 700, 20_000]))])
    expected = outcome(tar, 0)
    assert outcome(tar, 1 << 30) == expected
    assert outcome(tar, window) == expected


KEYS = st.text(st.sampled_from("ab/1."), min_size=1, max_size=8).filter(is_relative)
SUFFIXES = st.lists(st.sampled_from(["x", "JPG", "seg.png", "cls", "", "__key__"]), min_size=1, max_size=3)


@many
@example([str(row) for row in range(99)], [""], [])
@example([f"{row:04d}" for row in range(99)], [""], [])
@example([f"{row:04d}" for row in range(99)], ["cls", "seg.png", "x"], [])
@example([str(row) for row in range(99)], ["cls", "seg.png", "x"], [])
@given(st.lists(KEYS, min_size=6, max_size=30), SUFFIXES, st.lists(st.tuples(GOOD, st.integers(0, 90)), max_size=2))
def test_samples_that_are_alike_are_indexed_as_one_by_one(
    keys: list[str], suffixes: list[str], odd: list[tuple[str, int]]
) -> None:
    names = [f"{key}.{suffix}" for key in keys for suffix in suffixes]
    for name, place in odd:
        names.insert(place, name)
    data = tar_of([(name, b"y" * (37 * row)) for row, name in enumerate(names)], tarfile.USTAR_FORMAT)
    assert outcome(data, 1 << 30) == outcome(data, 0)
    assert indexed(groups_of(Tar(), MemoryBytes(data))) == indexed(Tar().scan(MemoryBytes(data, 0)))


def test_samples_that_are_alike_come_together() -> None:
    files = [(f"folder/{row}.{name}", b"y") for row in range(500) for name in ("JPG", "seg.png")]
    found = list(groups_of(Tar(), MemoryBytes(tar_of(files, tarfile.GNU_FORMAT))))
    together = [one for one in found if isinstance(one, Alike)]
    assert [one.names for one in together] == [("jpg", "seg.png")]
    assert len(together[0].keys) == 498
    assert len(found) == 5


def test_an_archive_within_an_archive_is_a_body() -> None:
    inner = tar_of([(f"{row}.txt", b"x" * row) for row in range(40)], tarfile.GNU_FORMAT)
    files = [(f"{row:03d}.{name}", body) for row in range(30) for name, body in (("tar", inner), ("cls", b"1"))]
    tar = tar_of(files, tarfile.GNU_FORMAT)
    assert [name for _, name, _ in seen(tar)] == ["tar", "cls"] * 30
    assert scanned(tar) == scanned(tar, 0)


def test_plain_headers_are_read_together() -> None:
    data = MemoryBytes(tar_of([(f"{row:04d}.x", b"y" * row) for row in range(500)], tarfile.GNU_FORMAT))
    assert len(list(Tar().scan(data))) == 500
    assert data.bytes_read < 20 * 512 + 10_240, "one by one, there would be 500 headers"


@pytest.mark.parametrize("name", ["a.x", "../a.x", "b/../a.x", "/a.x", "./a.x", "a", ".a", "é.x", "b" * 120 + ".x"])
@pytest.mark.parametrize("before", [0, 40])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_is_odd_among_many_is_told_as_one_by_one(name: str, before: int, form: int) -> None:
    plain = [(f"{row:03d}.x", b"y" * 3000) for row in range(40)]
    whole = tar_of([*plain[:before], (name, b"1"), *plain], form)
    for cut in (0, *range(9_000, 25_000, 731)):
        tar = whole[: len(whole) - cut]
        assert outcome(tar, 1 << 30) == outcome(tar, 0)
