"""No room for cache and staging: writers get ENOSPC, readers go on from the store."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, detach, need_fuse, only_a_mount, rigged, wait_for

pytestmark = pytest.mark.server

ROOM = 24 << 20


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 24 MiB."""
    need_fuse()
    only_a_mount()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    folder = tmp_path_factory.mktemp("headrace-small-disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOM},mode=0700", "headrace-test", str(folder)]
    subprocess.run(command, check=True, timeout=30)
    try:
        yield folder
    finally:
        detach(str(folder))


BODIES = {f"o{number}": bytes((number + n) % 251 for n in range(251)) * (24_000 + number) for number in range(8)}


@pytest.fixture
def mount(small_disk: Path, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    def fill(rig: Rig) -> None:
        rig.home = small_disk  # cache and staging
        for key, body in BODIES.items():
            rig.store().put(key, body)

    with rigged(seaweedfs, before=fill, HEADRACE_CACHE_MIN_FREE="0") as rig:
        yield rig
        rig.stop()


def test_writers_get_enospc_and_can_write_again_when_there_is_room(mount: Rig) -> None:
    big, small = Path(mount.folder, "big"), Path(mount.folder, "small")
    with open(big, "wb", buffering=0) as file:
        with pytest.raises(OSError) as caught:
            file.writelines(bytes(1 << 20) for _ in range(2 * ROOM >> 20))
        assert mount.staged(), "it was not staged on the small disk: this proves nothing"
    assert caught.value.errno == errno.ENOSPC
    big.unlink()
    assert wait_for(lambda: shutil.disk_usage(mount.state).free > ROOM // 2, 20), mount.staged()
    small.write_bytes(b"small" * 1000)
    assert small.read_bytes() == b"small" * 1000
    assert mount.store().get("small").data == b"small" * 1000


def test_readers_go_on_from_the_store(mount: Rig) -> None:
    filler = mount.state / "filler"
    with open(filler, "wb") as file:
        free = shutil.disk_usage(mount.state).free
        os.posix_fallocate(file.fileno(), 0, free - (1 << 20))
    for key, body in BODIES.items():
        assert Path(mount.folder, key).read_bytes() == body
    os.unlink(filler)
    for key, body in BODIES.items():
        assert Path(mount.folder, key).read_bytes() == body


def test_the_cache_gives_way_to_what_is_being_written(small_disk: Path, seaweedfs: EmbeddedS3) -> None:
    def fill(rig: Rig) -> None:
        rig.home = small_disk
        for key, body in BODIES.items():
            rig.store().put(key, body)

    def free() -> int:
        return shutil.disk_usage(small_disk).free

    reserve = 8 << 20
    with rigged(seaweedfs, before=fill, HEADRACE_CACHE_MIN_FREE=str(reserve)) as rig:
        for key, body in BODIES.items():
            assert Path(rig.folder, key).read_bytes() == body
        assert wait_for(lambda: rig.stats()["mount.fills_under_way"] == 0, 20)  # what has begun is finished
        assert wait_for(lambda: free() < reserve + (6 << 20), 20), "the cache was not filled: this proves nothing"
        with open(Path(rig.folder, "big"), "wb", buffering=0) as file:
            for _ in range(2):
                assert wait_for(lambda: free() >= reserve, 20)
                file.write(bytes(7 << 20))
        assert rig.store().head("big").size == 14 << 20
