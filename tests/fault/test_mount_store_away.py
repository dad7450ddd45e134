"""The store is away: reads wait up to their deadline, then fail with EIO; nothing hangs, and the mount lives on."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, only_a_mount, own_server, rigged, wait_for

pytestmark = pytest.mark.server

DEADLINE_S = 3.0
SLACK_S = 12.0
"""Beside the deadline: a second operation of the same call, a slow machine."""


@contextmanager
def _stopped(server: EmbeddedS3) -> Iterator[None]:
    """The server takes connections and answers none."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


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


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
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
    store.put("big", bytes(range(256)) * 40_000)


@pytest.fixture
def mount(server: EmbeddedS3) -> Iterator[Rig]:
    """A mount with a warm file, cold ones and a short deadline."""
    with _mounted(server) as mount:
        yield mount


@contextmanager
def _mounted(server: EmbeddedS3, options: str = "") -> Iterator[Rig]:
    variables = {"HEADRACE_FETCH_DEADLINE": f"{DEADLINE_S:g}s", "HEADRACE_CACHE_WHOLE": "1MB"}
    # without fetching ahead: what has not been read is cold
    with rigged(server, before=_fill, options=options, HEADRACE_MOUNT_PREFETCH="false", **variables) as rig:
        assert Path(rig.folder, "warm").read_bytes() == b"warm" * 1000
        assert {entry.name for entry in os.scandir(rig.folder)} >= {"warm", "cold", "later", "big"}
        yield rig


@pytest.mark.parametrize("outage", [_stopped, _gone])
@pytest.mark.parametrize("options", ["", "ro,no_open"])
def test_reads_wait_then_fail_and_the_mount_lives_on(server: EmbeddedS3, options: str, outage: Any) -> None:
    with _mounted(server, options) as mount:
        _reads_wait_then_fail(mount, server, outage)


def _reads_wait_then_fail(mount: Rig, server: EmbeddedS3, outage: Any) -> None:
    cold, warm = Path(mount.folder, "cold"), Path(mount.folder, "warm")
    with open(Path(mount.folder, "big"), "rb", buffering=0) as big:
        assert os.pread(big.fileno(), 4, 0) == bytes(range(4))
        with outage(server):
            result, seconds = _timed(cold.read_bytes)
            assert result == -errno.EIO
            assert seconds < DEADLINE_S + SLACK_S
            result, seconds = _timed(lambda: os.pread(big.fileno(), 4096, 9_000_000))
            assert result == -errno.EIO
            assert seconds < DEADLINE_S + SLACK_S
            # what is here needs no store
            assert warm.read_bytes() == b"warm" * 1000
            assert warm.stat().st_size == 4000
            assert "cold" in mount.log(), "the path of the failed read is not in the log"
        assert os.pread(big.fileno(), 4, 9_000_000) == bytes(range(9_000_000 % 256, 9_000_000 % 256 + 4))
        assert wait_for(lambda: _timed(cold.read_bytes)[0] == b"cold" * 1000, 20)
    assert Path(mount.folder, "later").read_bytes() == b"later" * 1000


def test_a_short_outage_is_only_a_delay(server: EmbeddedS3) -> None:
    with rigged(server, before=_fill, HEADRACE_FETCH_DEADLINE="30s", HEADRACE_MOUNT_PREFETCH="false") as rig:
        read: list[tuple[Any, float]] = []
        reader = threading.Thread(target=lambda: read.append(_timed(Path(rig.folder, "cold").read_bytes)))
        with _stopped(server):
            reader.start()
            reader.join(2)
            assert reader.is_alive(), "the read did not wait for the store: this proves nothing"
        reader.join(30)
        assert read[0][0] == b"cold" * 1000


def test_what_could_not_be_published_is_told_kept_and_sent_later(mount: Rig, server: EmbeddedS3) -> None:
    path = Path(mount.folder, "written")
    data = os.urandom(300_000)
    with _stopped(server):
        file = open(path, "wb", buffering=0)  # noqa: SIM115 - its close is looked at
        file.write(data)
        result, seconds = _timed(lambda: os.fsync(file.fileno()))
        assert result in (-errno.EIO, -errno.ETIMEDOUT, -errno.EAGAIN)
        assert seconds < DEADLINE_S + SLACK_S
        result, seconds = _timed(file.close)
        assert result in (-errno.EIO, -errno.ETIMEDOUT, -errno.EAGAIN), "close did not say that it failed"
        assert seconds < DEADLINE_S + SLACK_S
        assert path.read_bytes() == data, "what waits to be sent is not readable"
        assert any(mount.staged().values())
    store = mount.store()
    assert wait_for(lambda: _has(store, "written", data), 40), mount.log()
    mount.restart(wipe=True)
    assert path.read_bytes() == data


def test_an_unsent_file_is_sent_by_the_next_mount(mount: Rig, server: EmbeddedS3) -> None:
    path = Path(mount.folder, "written")
    with _stopped(server):
        file = open(path, "wb", buffering=0)  # noqa: SIM115 - its close is looked at
        file.write(b"x" * 50_000)
        assert _timed(file.close)[0] < 0
        mount.kill()
        assert any(mount.staged().values()), "nothing was staged: this proves nothing"
    mount.wipe()
    mount.start()
    assert wait_for(lambda: _has(mount.store(), "written", b"x" * 50_000), 30), mount.log()
    assert path.read_bytes() == b"x" * 50_000


def _has(store: Any, key: str, data: bytes) -> bool:
    try:
        return bytes(store.get(key).data) == data
    except Exception:
        return False
