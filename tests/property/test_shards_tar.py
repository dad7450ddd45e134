"""Scanning a tar equals Python's own tarfile; damage ends in CorruptError or in what tarfile sees, nothing else."""

from __future__ import annotations

import io
import tarfile
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import CorruptError
from headrace.dataset.shards.tar import Tar
from tests.tar_kit import MemoryBytes, Seen, as_tarfile_sees, scanned, seen, tar_of

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
