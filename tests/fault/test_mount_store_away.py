"""The store is away: reads wait up to their deadline, then fail with EIO; nothing hangs, and the mount lives on."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, only_a_mount, own_server, rigged, silent, wait_for

pytestmark = pytest.mark.server

DEADLINE_S = 3.0
SLACK_S = 12.0
"""Beside the deadline: a second operation of the same call, a slow machine."""
BIG, AT = 10_240_000, 9_000_000
WRITTEN = bytes(range(255)) * 1200
Timed: TypeAlias = tuple[Any, float]


@contextmanager
def _gone(server: EmbeddedS3) -> Iterator[None]:
    """Nothing listens any more; afterwards the same server with the same data is back at the same address."""
    assert server.pid is not None
    server._kill()
    try:
        yield
    finally:
        server._port = int(server.endpoint.rsplit(":", 1)[1])
        server.start()


def _timed(call: Callable[[], Any]) -> Timed:
    """What a call returned, or its errno as a negative number, and how long it took."""
    began = time.monotonic()
    try:
        result = call()
    except OSError as error:
        result = -(error.errno or 1)
    return result, time.monotonic() - began


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedS3]:
    only_a_mount()
    with own_server() as server:
        yield server


def _fill(rig: Rig) -> None:
    """Objects, and a short deadline for requests that are no reads."""
    (rig.scratch / "headrace.toml").write_text(f'[stores."s3://{rig.bucket}"]\ntimeout_s = "{DEADLINE_S:g}s"\n')
    store = rig.store()
    for name in ("warm", "cold", "later"):
        store.put(name, name.encode() * 1000)
    store.put("big", bytes(range(256)) * (BIG // 256))


@contextmanager
def _mounted(server: EmbeddedS3, options: str = "", deadline_s: float = DEADLINE_S) -> Iterator[Rig]:
    """A mount with a warm file, cold ones and a short deadline."""
    variables = {"HEADRACE_FETCH_DEADLINE": f"{deadline_s:g}s", "HEADRACE_CACHE_WHOLE": "1MB"}
    # without fetching ahead: what has not been read is cold
    with rigged(server, before=_fill, options=options, HEADRACE_MOUNT_PREFETCH="false", **variables) as rig:
        assert Path(rig.folder, "warm").read_bytes() == b"warm" * 1000
        assert {entry.name for entry in os.scandir(rig.folder)} >= {"warm", "cold", "later", "big"}
        yield rig


class _Reader:
    """One mount, a small cold file there and a big one that is open."""

    def __init__(self, mount: Rig) -> None:
        self.mount = mount
        self.cold = Path(mount.folder, "cold")
        self._big = open(Path(mount.folder, "big"), "rb", buffering=0)  # noqa: SIM115 - `close`

    def close(self) -> None:
        self._big.close()

    def part(self, offset: int, size: int) -> bytes:
        return os.pread(self._big.fileno(), size, offset)

    def calls(self) -> list[Callable[[], Any]]:
        """What needs the store."""
        return [self.cold.read_bytes, lambda: self.part(AT, 4096)]

    def check_what_is_here(self) -> None:
        """What is here needs no store."""
        warm = Path(self.mount.folder, "warm")
        assert warm.read_bytes() == b"warm" * 1000
        assert warm.stat().st_size == 4000
        assert "cold" in self.mount.log(), "the path of the failed read is not in the log"

    def check_afterwards(self) -> None:
        assert self.part(AT, 4) == bytes((AT + n) % 256 for n in range(4))
        assert wait_for(lambda: _timed(self.cold.read_bytes)[0] == b"cold" * 1000, 20)
        assert Path(self.mount.folder, "later").read_bytes() == b"later" * 1000


@contextmanager
def _readers(mounts: Sequence[Rig]) -> Iterator[list[_Reader]]:
    with ExitStack() as stack:
        readers = [_Reader(mount) for mount in mounts]
        for reader in readers:
            stack.callback(reader.close)
            assert reader.part(0, 4) == bytes(range(4))
        yield readers


def _check_failed(reads: Sequence[Timed]) -> None:
    assert [result for result, _ in reads] == [-errno.EIO] * len(reads)
    assert all(seconds < DEADLINE_S + SLACK_S for _, seconds in reads)


class _Writer:
    """A file that is written while the store is away."""

    def __init__(self, mount: Rig) -> None:
        self.mount = mount
        self.path = Path(mount.folder, "written")
        self.synced: Timed = (None, 0.0)
        self.closed: Timed = (None, 0.0)

    def write(self) -> None:
        file = open(self.path, "wb", buffering=0)  # noqa: SIM115 - its close is looked at
        file.write(WRITTEN)
        self.synced = _timed(lambda: os.fsync(file.fileno()))
        self.closed = _timed(file.close)

    def check(self) -> None:
        for result, seconds in (self.synced, self.closed):
            assert result in (-errno.EIO, -errno.ETIMEDOUT, -errno.EAGAIN), "nobody was told that it failed"
            assert seconds < DEADLINE_S + SLACK_S

    def sent(self) -> bool:
        try:
            return bytes(self.mount.store().get("written").data) == WRITTEN
        except Exception:
            return False


@dataclass
class _Silence:
    """What came of reads and writes on several mounts, all at once, while the server was stopped."""

    readers: list[_Reader]
    reads: list[Timed]
    patient: Timed
    lives: _Writer
    dies: _Writer


@pytest.fixture(scope="module")
def silence(server: EmbeddedS3) -> Iterator[_Silence]:
    """One outage for all that is tried in it: each call waits for its deadline, and nothing else."""
    with ExitStack() as stack:
        lives, dies, unopened = (stack.enter_context(_mounted(server, options)) for options in ("", "", "ro,no_open"))
        patient = stack.enter_context(_mounted(server, deadline_s=30))
        readers = stack.enter_context(_readers([lives, unopened]))
        writers = [_Writer(mount) for mount in (lives, dies)]
        pool = stack.enter_context(ThreadPoolExecutor(8))
        with silent(server):
            waits = pool.submit(_timed, Path(patient.folder, "cold").read_bytes)
            writes = [pool.submit(writer.write) for writer in writers]
            reads = list(pool.map(_timed, [call for reader in readers for call in reader.calls()]))
            for write in writes:
                write.result()
            for reader in readers:
                reader.check_what_is_here()
            assert Path(lives.folder, "written").read_bytes() == WRITTEN, "what waits to be sent is not readable"
            assert any(lives.staged().values()), (writers[0].synced, writers[0].closed, lives.log())
            dies.kill()
            assert any(dies.staged().values()), "nothing was staged: this proves nothing"
            assert not waits.done(), "the read did not wait for the store: this proves nothing"
        yield _Silence(readers, reads, waits.result(30), *writers)


def test_reads_wait_then_fail_and_the_mount_lives_on(silence: _Silence) -> None:
    """With and without OPEN, where the server takes connections and answers none."""
    _check_failed(silence.reads)
    for reader in silence.readers:
        reader.check_afterwards()


def test_an_outage_shorter_than_the_deadline_is_only_a_delay(silence: _Silence) -> None:
    assert silence.patient[0] == b"cold" * 1000


def test_what_could_not_be_published_is_told_kept_and_sent_later(silence: _Silence) -> None:
    writer = silence.lives
    writer.check()
    assert wait_for(writer.sent, 40), writer.mount.log()
    silence.readers[0].close()
    writer.mount.restart(wipe=True)
    assert writer.path.read_bytes() == WRITTEN


def test_an_unsent_file_is_sent_by_the_next_mount(silence: _Silence) -> None:
    writer = silence.dies
    writer.check()
    writer.mount.wipe()
    writer.mount.start()
    assert wait_for(writer.sent, 30), writer.mount.log()
    assert writer.path.read_bytes() == WRITTEN


def test_reads_wait_then_fail_where_nothing_listens(server: EmbeddedS3) -> None:
    with (
        _mounted(server) as opened,
        _mounted(server, "ro,no_open") as unopened,
        _readers([opened, unopened]) as readers,
        ThreadPoolExecutor(4) as pool,
    ):
        with _gone(server):
            _check_failed(list(pool.map(_timed, [call for reader in readers for call in reader.calls()])))
            for reader in readers:
                reader.check_what_is_here()
        for reader in readers:
            reader.check_afterwards()
