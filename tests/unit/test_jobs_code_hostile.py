"""Archives of a run's code that are not what they should be: nothing is written outside, and nothing is left."""

from __future__ import annotations

import io
import os
import random
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from headrace.base.errors import CorruptError, HeadraceError, NoRoomError
from headrace.jobs.capture import capture
from headrace.jobs.code import Code
from headrace.jobs.restoring import restore
from tests.code_kit import tree

pa: Any = pyarrow
RECORD = Code("git", "0" * 64, files=10, bytes=1000)


def member(name: str, body: bytes = b"1", kind: bytes = tarfile.REGTYPE, target: str = "") -> tuple[Any, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    info.size = len(body) if kind == tarfile.REGTYPE else 0
    return info, body


def archived(folder: Path, *members: tuple[Any, bytes], tail: bytes = b"") -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, body in members:
            tar.addfile(info, io.BytesIO(body) if info.size else None)
    packed(folder, out.getvalue() + tail)


def packed(folder: Path, body: bytes) -> None:
    folder.mkdir(exist_ok=True)
    with pa.OSFile(str(folder / "tree.tar.zst"), "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as file:
        file.write(body)


LINK = tarfile.SYMTYPE


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([member("/absolute")], "leads elsewhere"),
        ([member("../outside")], "leads elsewhere"),
        ([member("a/../../outside")], "leads elsewhere"),
        ([member("a//b")], "leads elsewhere"),
        ([member("./a")], "leads elsewhere"),
        ([member("..")], "leads elsewhere"),
        ([member("a", kind=LINK, target="../outside")], "leads out of the tree"),
        ([member("a", kind=LINK, target="/etc/passwd")], "leads out of the tree"),
        ([member("a/b", kind=LINK, target="x/../../../outside")], "leads out of the tree"),
        ([member("a", kind=LINK, target="sub"), member("a/outside")], "below a file or a link"),
        ([member("d/x"), member("e", kind=LINK, target="d"), member("e/x")], "below a file or a link"),
        ([member("a"), member("a/b")], "below a file or a link"),
        ([member("a/b"), member("a0"), member("a0")], "twice, or not in order"),
        ([member("b"), member("a")], "twice, or not in order"),
        ([member("a", kind=tarfile.LNKTYPE, target="../outside")], "neither a file nor a link"),
        ([member("a", kind=tarfile.CHRTYPE)], "neither a file nor a link"),
        ([member("a", kind=tarfile.BLKTYPE)], "neither a file nor a link"),
        ([member("a", kind=tarfile.FIFOTYPE)], "neither a file nor a link"),
        ([member("a", kind=tarfile.DIRTYPE)], "neither a file nor a link"),
        ([member("a", kind=b"Z")], "neither a file nor a link"),
        ([member(f"{number:02}") for number in range(11)], "more than its record says"),
        ([member("a", bytes(600)), member("b", bytes(600))], "more than its record says"),
        ([member("a", bytes(50_000_000))], "more than its record says"),
        ([member("a")], "and the record says"),
        ([], "and the record says"),
    ],
)
def test_what_was_not_written_by_us_is_refused(tmp_path: Path, members: list[tuple[Any, bytes]], reason: str):
    archived(tmp_path / "into", *members)
    top = tmp_path / "top"
    top.mkdir()
    with pytest.raises(CorruptError, match=reason):
        restore(RECORD, str(tmp_path / "into"), str(top / "out"))
    assert os.listdir(top) == []
    top.joinpath("out").mkdir()
    with pytest.raises(CorruptError, match=reason):
        restore(RECORD, str(tmp_path / "into"), str(top / "out"))
    assert os.listdir(top / "out") == []
    assert sorted(os.listdir(tmp_path)) == ["into", "top"]


def test_few_bytes_that_unpack_to_many_are_refused_early(tmp_path: Path):
    archived(tmp_path / "into", member("a"))
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 300_000_000
    packed(tmp_path / "into", header.tobuf() + bytes(300_000_000))
    with pytest.raises(CorruptError, match="holds more than its record says"):
        restore(RECORD, str(tmp_path / "into"), str(tmp_path / "out"))


def test_links_that_lead_out_are_made_only_as_often_as_the_record_says(tmp_path: Path):
    plain = tmp_path / "plain"
    plain.mkdir()
    os.symlink("/nowhere", plain / "a")
    os.symlink("../b", plain / "b")
    code = capture(plain, str(tmp_path / "into"))
    restore(code, str(tmp_path / "into"), str(tmp_path / "out"))
    assert tree(tmp_path / "out") == tree(plain)
    with pytest.raises(CorruptError, match="'b', a link that leads out"):
        restore(replace(code, outside=1), str(tmp_path / "into"), str(tmp_path / "out2"))


def test_an_archive_that_is_cut_or_changed_anywhere_is_refused(tmp_path: Path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for number in range(5):
        plain.joinpath(f"file{number}").write_bytes(os.urandom(700 * number))
    code = capture(plain, str(tmp_path / "into"))
    path = tmp_path / "into/tree.tar.zst"
    whole = path.read_bytes()
    some = random.Random(7)
    wrong = [whole[: some.randrange(len(whole) - 1)] for _ in range(40)] + [b"", b"no zstd", whole[:-1]]
    for _ in range(150):
        at = some.randrange(len(whole))
        wrong.append(whole[:at] + bytes([whole[at] ^ (1 << some.randrange(8))]) + whole[at + 1 :])
    for body in wrong:
        path.write_bytes(body)
        try:
            restore(code, str(tmp_path / "into"), str(tmp_path / "out"))
        except CorruptError:
            assert not tmp_path.joinpath("out").exists()
        else:  # a bit that means nothing
            assert tree(tmp_path / "out") == tree(plain)
            subprocess.run(["rm", "-r", str(tmp_path / "out")], check=True)
    path.write_bytes(whole)
    plain.joinpath("file0").write_text("x")
    with pytest.raises(CorruptError):
        restore(capture(plain, str(tmp_path / "other")), str(tmp_path / "into"), str(tmp_path / "out"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "headrace-test", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def test_a_full_disk_leaves_nothing_half(tmp_path: Path, small_disk: Path):
    plain = tmp_path / "plain"
    plain.mkdir()
    plain.joinpath("a").write_text("1")
    plain.joinpath("b").write_bytes(os.urandom(5_000_000))
    with pytest.raises(NoRoomError):
        capture(plain, str(small_disk / "into"))
    assert os.listdir(small_disk / "into") == []
    code = capture(plain, str(tmp_path / "into"))
    with pytest.raises(NoRoomError):
        restore(code, str(tmp_path / "into"), str(small_disk / "out"))
    assert os.listdir(small_disk) == ["into"]
    with pytest.raises(HeadraceError, match="cannot be written"):
        capture(plain, "/proc/nowhere")
