"""Many files read and written together: the same answers, however it is done."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from headrace.cache.batch_io import IO_URING, LEFT_OUT, MOST, BatchIO, NewFile, chosen
from headrace.cache.batch_io.io_uring import IoUring
from headrace.cache.batch_io.plain import PlainCalls
from headrace.cache.batch_io.ring import Ring

ATTRIBUTE = "user.test"
WAYS = [PlainCalls(), *([IoUring()] if IoUring.works() else [])]


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def io(request: pytest.FixtureRequest) -> BatchIO:
    return request.param


def paths_of(paths: Sequence[Path]) -> np.ndarray:
    texts = [os.fsencode(path) for path in paths]
    return np.array(texts, f"S{max(map(len, texts)) + 1}")


def body(number: int) -> bytes:
    return bytes([number]) * (number * 331 % 20_000)


def news(folder: Path, count: int) -> list[NewFile]:
    return [
        NewFile(f"{folder}/{number % 3}/{number}", memoryview(body(number)), f"of {number}".encode())
        for number in range(count)
    ]


def open_files() -> set[str]:
    """Descriptors of files: not those of rings, which live as long as their threads."""
    links = {f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")}
    return {link for link in links if os.path.exists(link) and "io_uring" not in os.readlink(link)}


@pytest.mark.parametrize("count", [1, 15, 16, MOST])
def test_what_is_written_is_read(io: BatchIO, tmp_path: Path, count: int) -> None:
    before, files = open_files(), news(tmp_path, count)
    assert io.write_many(files, ATTRIBUTE) == [0] * count
    assert [os.getxattr(one.path, ATTRIBUTE) for one in files] == [one.attribute for one in files]
    assert {os.stat(one.path).st_mode & 0o777 for one in files} == {0o600}
    paths, sizes = paths_of([Path(one.path) for one in files]), [len(one.data) for one in files]
    for check in (None, lambda _at, file: os.fstat(file).st_size >= 0):
        data, counts = io.read_many(paths, sizes, check)
        assert counts == sizes
        assert data == [one.data for one in files]
    assert open_files() == before


def test_each_that_fails_says_why_and_spoils_no_other(io: BatchIO, tmp_path: Path) -> None:
    before, files = open_files(), news(tmp_path, 20)
    io.write_many(files, ATTRIBUTE)
    paths = [Path(one.path) for one in files]
    paths[1], paths[2] = tmp_path / "absent", tmp_path
    os.truncate(paths[3], 10)
    sizes = [len(one.data) for one in files]
    for check in (None, lambda _at, _file: True):
        data, counts = io.read_many(paths_of(paths), sizes, check)
        assert counts[1:4] == [-errno.ENOENT, -errno.EISDIR, 10]
        assert counts[4:] == sizes[4:]
        assert data[4:] == [one.data for one in files[4:]]
    assert open_files() == before


def test_what_the_check_refuses_is_left_out(io: BatchIO, tmp_path: Path) -> None:
    files = news(tmp_path, 20)
    io.write_many(files, ATTRIBUTE)
    sizes = [len(one.data) for one in files]
    paths = paths_of([Path(one.path) for one in files])
    data, counts = io.read_many(paths, sizes, lambda at, file: at != 7 and os.fstat(file).st_size == sizes[at])
    assert counts == [LEFT_OUT if at == 7 else size for at, size in enumerate(sizes)]
    assert [one for at, one in enumerate(data) if at != 7] == [one.data for one in files if one is not files[7]]


@pytest.mark.parametrize("count", [3, 20])
def test_a_name_that_is_taken_stays_and_nothing_else_is_left(io: BatchIO, tmp_path: Path, count: int) -> None:
    before, files = open_files(), news(tmp_path, count)
    Path(files[1].path).parent.mkdir()
    Path(files[1].path).write_bytes(b"it stays")
    assert io.write_many(files, ATTRIBUTE) == [-errno.EEXIST if at == 1 else 0 for at in range(count)]
    assert Path(files[1].path).read_bytes() == b"it stays"
    files = news(tmp_path / "more", count)
    assert io.write_many(files, "nonsense") == [-errno.EOPNOTSUPP] * count
    assert not [path for path in (tmp_path / "more").rglob("*") if path.is_file()]
    assert open_files() == before


def test_a_kernel_whose_rings_set_no_attributes_gets_them_by_plain_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Ring, "attribute", lambda _ring, files, _name, _values: [-errno.EINVAL] * len(files))
    for way in WAYS:
        files = news(tmp_path / way.name, 20)
        assert way.write_many(files, ATTRIBUTE) == [0] * 20
        assert [os.getxattr(one.path, ATTRIBUTE) for one in files] == [one.attribute for one in files]


def test_one_way_a_process() -> None:
    assert chosen() is chosen()
    assert (chosen().name == IO_URING) == IoUring.works()
