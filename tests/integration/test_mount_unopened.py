"""A read-only mount without OPEN: no message where all is warm, and what takes the place of what OPEN did."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import freeze, thaw
from tests.mount_rig import COMMAND, PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no store behind it")]

KIB = 1 << 10
MANY = 300
"""More files than are kept at hand."""


def _body(number: int) -> bytes:
    return random.Random(number).randbytes(64 * KIB)


def _fill(rig: Rig) -> None:
    store = rig.store()

    def put(number: int) -> None:
        store.put(f"many/{number:03d}", _body(number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(MANY)))


@pytest.fixture(scope="module")
def mount(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, options="ro,no_open", before=_fill, HEADRACE_CACHE_TTL="1h") as rig:
        yield rig


@contextmanager
def _stopped(rig: Rig) -> Iterator[None]:
    """The daemon answers nothing."""
    assert rig.process is not None
    freeze(rig.process.pid)
    try:
        yield
    finally:
        thaw(rig.process.pid)


def _within(seconds: float, call: Callable[[], object]) -> bool:
    """Whether `call` returned in time; run in a process of its own, which a mount that does not answer would hold."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        finally:
            os._exit(code)
    done: list[int] = []

    def ended() -> bool:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            done.append(status)
        return bool(done)

    if not wait_for(ended, seconds):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return False
    return done == [0]


def _read(path: str, expect: bytes) -> None:
    fd = os.open(path, os.O_RDONLY)
    assert os.read(fd, len(expect) + 1) == expect
    os.close(fd)


@pytest.fixture(scope="module")
def half_read(mount: Rig) -> Iterator[list[int]]:
    """Bytes in the middle of each of many files: none is read to its end, so each could be read on."""
    descriptors = [os.open(f"{mount.folder}/many/{number:03d}", os.O_RDONLY) for number in range(MANY)]
    try:
        for number, fd in enumerate(descriptors):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            assert os.pread(fd, 100, 8 * KIB) == _body(number)[8 * KIB :][:100]
        yield descriptors
    finally:
        for fd in descriptors:
            os.close(fd)


def test_few_files_are_kept(mount: Rig, half_read: list[int]) -> None:
    """What becomes of them is seen at the end of this file: it takes a while."""
    assert len(half_read) == MANY
    assert wait_for(lambda: mount.stats()["mount.open_files"] > 200, 5), "what is told is a second old at most"
    assert mount.stats()["mount.open_files"] <= 256
    assert mount.process is not None
    assert len(os.listdir(f"/proc/{mount.process.pid}/fd")) < 400


def test_what_is_warm_is_opened_read_and_closed_without_a_message(mount: Rig) -> None:
    """Not even a daemon that stands still is noticed; by a mount that is asked at every open it is."""
    path = f"{mount.folder}/many/001"
    for _ in range(2):
        _read(path, _body(1))
    with _stopped(mount):
        assert _within(20, lambda: [_read(path, _body(1)) for _ in range(100)])


def test_the_same_with_open_waits_for_the_daemon(seaweedfs: EmbeddedS3, mount: Rig) -> None:
    """So that the test above says something."""
    with rigged(seaweedfs, bucket=mount.bucket, options="ro", HEADRACE_CACHE_TTL="1h") as rig:
        path = f"{rig.folder}/many/001"
        _read(path, _body(1))
        with _stopped(rig):
            assert not _within(2, lambda: _read(path, _body(1)))


def test_a_changed_object_is_refused_once_and_then_read_anew(mount: Rig) -> None:
    """The listing is trusted for an hour; the first read finds out, and the next open sees what is there."""
    store = mount.store()
    path = mount.show("unseen", b"old" * 1000)
    store.put("unseen", b"new!" * 1000)
    with pytest.raises(OSError, match="Stale") as caught:
        path.read_bytes()
    assert caught.value.errno == errno.ESTALE
    assert wait_for(lambda: path.stat().st_size == 4000, 10), "the kernel was not told to look again"
    assert path.read_bytes() == b"new!" * 1000
    store.delete(["unseen"])


def test_a_deleted_object_is_refused_and_then_absent(mount: Rig) -> None:
    path = mount.show("goes", b"here" * 1000)
    mount.store().delete(["goes"])
    with pytest.raises(OSError, match="Stale"):
        path.read_bytes()
    assert wait_for(lambda: not path.exists(), 10)


def test_many_read_one_file_at_once(mount: Rig) -> None:
    """Each page is asked for alone, and all of them for one file that was not at hand."""
    body = random.Random(7).randbytes(3 << 20)
    path = mount.show("shared", body)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        places = random.Random(8).sample(range(0, len(body), 4 * KIB), 400)
        with ThreadPoolExecutor(16) as pool:
            parts = list(pool.map(lambda at: os.pread(fd, 4 * KIB, at), places))
        assert parts == [body[at : at + 4 * KIB] for at in places]
    finally:
        os.close(fd)


def test_statistics_are_whole_and_made_anew(mount: Rig) -> None:
    """Also for several readers at once, whenever they come."""
    path = Path(mount.folder, ".headrace", "stats.json")
    first = json.loads(path.read_bytes())
    assert first["mount.opens_told"] == 0
    assert path.stat().st_size > 100
    seen = {first["mount.uptime_seconds"]}
    deadline = time.monotonic() + 10
    with ThreadPoolExecutor(4) as pool:
        while max(seen) <= first["mount.uptime_seconds"] + 1 or len(seen) < 4:
            assert time.monotonic() < deadline, "what was shown once is shown for ever"
            told = pool.map(lambda _: path.read_bytes(), range(16))
            seen |= {json.loads(each)["mount.uptime_seconds"] for each in told}


def test_it_is_for_read_only_mounts(mount: Rig, tmp_path: Path) -> None:
    point = tmp_path / "headrace-test-point"
    point.mkdir()
    for options, says in (("no_open", "-o ro,no_open"), ("rw,no_open", "-o ro,no_open")):
        ended = subprocess.run(
            [*COMMAND, "mount", f"s3://{mount.bucket}/", str(point), "-o", options],
            env={**os.environ, **mount.environment}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (ended.returncode, says in ended.stderr) == (2, True), ended.stderr
        assert not os.path.ismount(point)


def test_none_is_kept_for_long_and_each_is_read_on(mount: Rig, half_read: list[int]) -> None:
    """Nothing of ours is open by then, though they are: also the cache may take what it holds of them."""
    assert wait_for(lambda: mount.stats()["mount.open_files"] == 0, 60), "nobody closes what nobody has opened"
    assert wait_for(lambda: not any(mount.under_way().values()), 20), mount.under_way()
    for number, fd in enumerate(half_read[: MANY // 2]):
        assert os.pread(fd, 100, 40 * KIB) == _body(number)[40 * KIB :][:100]
    mount.wipe()
    for number, fd in enumerate(half_read[MANY // 2 :], MANY // 2):
        assert os.pread(fd, 100, 40 * KIB) == _body(number)[40 * KIB :][:100], "evicted, and not fetched again"
