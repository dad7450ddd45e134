"""One thread's ring: many files in one call to the kernel, where it has io_uring."""

from __future__ import annotations

import errno
import gc
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.base.memory import rooms
from headrace.cache.batch_io import MOST
from headrace.cache.batch_io.io_uring import IoUring
from headrace.cache.batch_io.ring import Ring

mine = IoUring()._ring
"""The calling thread's."""


@pytest.fixture
def ring() -> Ring:
    found = mine()
    assert found is not None
    return found


def where_allowed(test: Callable[..., None]) -> Callable[..., None]:
    """Only collected where the kernel has io_uring and allows it; elsewhere there is nothing of it to test."""
    test.__test__ = IoUring.works()  # type: ignore[attr-defined]
    return test


def made(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"{number:04d}-{'x' * (number % 50)}" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(body(number))
    return paths


def body(number: int) -> bytes:
    return bytes([number % 251]) * (number * 331 % 20_000)


def raw(paths: list[Path]) -> list[bytes]:
    return [f"{path}\0".encode() for path in paths]


def read(ring: Ring, paths: list[Path], sizes: list[int]) -> tuple[list[bytes], list[int]]:
    files = ring.open(raw(paths))
    views, addresses = rooms(sizes)
    counts = ring.read(files, addresses, sizes)
    ring.close(files)
    return [bytes(view[: max(count, 0)]) for view, count in zip(views, counts, strict=True)], counts


def open_files() -> int:
    gc.collect()  # what others left open and nobody holds
    return len(os.listdir("/proc/self/fd"))


@where_allowed
def test_each_gets_its_own_bytes_time_and_again(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, MOST)
    before = open_files()
    for count in (1, 2, 63, 64, *range(1, 64, 7)) * 5:  # so that the queues wrap around in every way
        expected = [body(number) for number in range(count)]
        data, counts = read(ring, paths[:count], list(map(len, expected)))
        assert data == expected
        assert counts == list(map(len, expected))
    assert open_files() == before


@where_allowed
def test_what_cannot_be_opened_or_read_says_why_and_spoils_no_other(ring: Ring, tmp_path: Path) -> None:
    first, *_ = paths = made(tmp_path, 4)
    paths[1] = tmp_path / "absent"
    paths[2] = tmp_path
    files = ring.open(raw(paths))
    assert files[1] == -errno.ENOENT
    there = [files[0], files[2], files[3]]
    views, addresses = rooms([10, 10, 993])
    assert ring.read(there, addresses, [10, 10, 993]) == [len(first.read_bytes()), -errno.EISDIR, 993]
    assert views[2] == body(3)
    ring.close(there)


@where_allowed
def test_a_short_file_gives_what_it_has(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, 3)
    data, counts = read(ring, paths, [5000, 5000, 5000])
    assert counts == [0, 331, 662]
    assert data == [body(0), body(1), body(2)]


def fetch(ring: Ring, paths: list[Path], sizes: list[int]) -> tuple[list[bytes], list[int]]:
    views, addresses = rooms(sizes)
    counts = ring.fetch(raw(paths), addresses, sizes)
    if counts is None:  # before Linux 5.15
        return read(ring, paths, sizes)
    return [bytes(view[: max(count, 0)]) for view, count in zip(views, counts, strict=True)], counts


@where_allowed
def test_one_call_opens_reads_and_closes(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, MOST)
    before = open_files()
    for count in (1, 2, 63, 64, *range(1, 64, 7)) * 5:
        expected = [body(number) for number in range(MOST - count, MOST)]
        data, counts = fetch(ring, paths[-count:], list(map(len, expected)))
        assert data == expected
        assert counts == list(map(len, expected))
        files = ring.open(raw(paths[:3]))  # the other operations go on as before
        assert [os.fstat(file).st_size for file in files] == [0, 331, 662]
        ring.close(files)
    assert open_files() == before


@where_allowed
def test_one_call_says_what_failed_and_the_next_never_sees_what_is_left_of_it(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, 6)
    odd = [tmp_path / "absent", tmp_path, paths[3], paths[4], paths[5], tmp_path / "absent"]
    for _ in range(3):
        data, counts = fetch(ring, odd, [10, 10, 993, 9999, 1655, 10])
        assert counts == [-errno.ENOENT, -errno.EISDIR, 993, 1324, 1655, -errno.ENOENT]
        assert data[2:5] == [body(3), body(4), body(5)]
        absent = [tmp_path / "gone"] * 6  # where the one that fell short was open
        assert fetch(ring, absent, [1324] * 6)[1] == [-errno.ENOENT] * 6
        whole = [body(number) for number in range(6)]
        assert fetch(ring, paths, list(map(len, whole)))[0] == whole


@where_allowed
def test_files_are_made_written_and_named(ring: Ring, tmp_path: Path) -> None:
    before = open_files()
    for turn, count in enumerate((1, 2, 63, 64, 7)):
        data = [memoryview(body(number)) for number in range(count)]
        values = [b"\0" + bytes([number]) * (number + 1) for number in range(count)]
        paths = [tmp_path / f"{turn}-{number}-{'y' * number}" for number in range(count)]
        files = ring.make(raw([tmp_path] * count))
        assert ring.write(files, data) == list(map(len, data))
        assert ring.attribute(files, b"user.test\0", values) == [0] * count
        assert not any(path.exists() for path in paths)
        assert ring.link(files, raw(paths)) == [0] * count
        ring.close(files)
        assert [path.read_bytes() for path in paths] == data
        assert [os.getxattr(path, "user.test") for path in paths] == values
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert open_files() == before


@where_allowed
def test_what_cannot_be_made_or_named_says_why_and_leaves_nothing(ring: Ring, tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"it stays")
    files = ring.make(raw([tmp_path, tmp_path / "absent", tmp_path / "there", tmp_path]))
    assert files[1:3] == [-errno.ENOENT, -errno.ENOTDIR]
    made = [files[0], files[3]]
    assert ring.attribute(made, b"nonsense\0", [b"x", b"y"]) == [-errno.EOPNOTSUPP] * 2
    assert ring.write([made[0], ring.open(raw([tmp_path / "there"]))[0]], [memoryview(b"abc")] * 2)[1] == -errno.EBADF
    names = raw([tmp_path / "there", tmp_path / "absent" / "name"])
    assert ring.link(made, names) == [-errno.EEXIST, -errno.ENOENT]
    ring.close(made)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert (tmp_path / "there").read_bytes() == b"it stays"


@where_allowed
def test_every_thread_has_its_own_and_leaves_nothing(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, 40)
    expected = [body(number) for number in range(40)]
    before, wrong, rings = open_files(), list[object](), set[int]()

    def work() -> None:
        own = mine()
        assert own is not None
        rings.add(id(own))
        for _ in range(50):
            if read(own, paths, list(map(len, expected)))[0] != expected:
                wrong.append(own)

    together = [threading.Thread(target=work) for _ in range(4)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert not wrong
    assert id(ring) not in rings
    assert open_files() <= before


@where_allowed
def test_signals_interrupt_nothing(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, MOST)
    expected = [body(number) for number in range(MOST)]
    heard: list[int] = []
    old = signal.signal(signal.SIGALRM, lambda *_: heard.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(heard) < 100:
            assert read(ring, paths, list(map(len, expected)))[0] == expected
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@where_allowed
def test_a_forked_child_uses_its_own(ring: Ring, tmp_path: Path) -> None:
    paths = made(tmp_path, 30)
    expected = [body(number) for number in range(30)]
    child = os.fork()
    if child == 0:
        own = mine()
        good = own is not None and own is not ring and read(own, paths, list(map(len, expected)))[0] == expected
        os._exit(0 if good else 1)
    assert read(ring, paths, list(map(len, expected)))[0] == expected
    assert os.waitpid(child, 0)[1] == 0
