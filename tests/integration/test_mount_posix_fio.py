"""fio's verify jobs on the mount: every block carries its own checksum, also after a new mount without a cache."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, rigged

pytestmark = pytest.mark.server

JOBS = {
    "sequential": ["--rw=write", "--bs=128k", "--size=24m"],
    "random": ["--rw=randwrite", "--bs=4k-64k", "--size=12m", "--bsrange=4k-64k"],
    "mapped": ["--rw=randwrite", "--bs=4k", "--size=4m", "--ioengine=mmap"],
    "many files": ["--rw=write", "--bs=16k", "--size=4m", "--nrfiles=64", "--openfiles=8"],
    "synced": ["--rw=randwrite", "--bs=64k", "--size=2m", "--fsync=8"],
}


@pytest.fixture(scope="module")
def mount(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    if shutil.which("fio") is None:
        pytest.skip("fio is not installed: Debian package fio")
    with rigged(seaweedfs) as rig:
        yield rig
        rig.stop()


def _fio(mount: Rig, name: str, *more: str) -> None:
    command = ["fio", f"--name={name.replace(' ', '-')}", f"--directory={mount.folder}", "--verify=crc32c"]
    command += ["--verify_fatal=1", "--end_fsync=1", "--numjobs=2", "--thread", "--randrepeat=1", *JOBS[name], *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=mount.scratch)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:] + mount.log()


def test_blocks_are_what_was_written(mount: Rig) -> None:
    for name in JOBS:
        _fio(mount, name, "--do_verify=1")
    mount.restart(wipe=True)
    for name in JOBS:
        _fio(mount, name, "--verify_only=1")
