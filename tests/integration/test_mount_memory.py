"""What a mount's daemon holds: the bytes of what is being published, and names of its own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import PLAIN, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no daemon")]

_BUDGET = 32_000_000
_MOST = _BUDGET + 150_000_000
_CLOSE_TOGETHER = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
folder, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data, together = os.urandom(size), Barrier(count)
def write(number):
    fd = os.open(f"{folder}/{number}", os.O_WRONLY | os.O_CREAT)
    for at in range(0, size, 1 << 20):
        os.write(fd, data[at : at + (1 << 20)])
    together.wait()
    os.close(fd)
with ThreadPoolExecutor(count) as pool:
    list(pool.map(write, range(count)))
"""


def test_files_closed_together_do_not_lie_in_memory_together(seaweedfs: EmbeddedS3) -> None:
    """24 of 12 MB: one request each, and the memory budget bounds how many are under way."""
    with rigged(seaweedfs, HEADRACE_FETCH_MEMORY=str(_BUDGET)) as rig:
        command = [sys.executable, "-c", _CLOSE_TOGETHER, rig.folder, "24", "12000000"]
        subprocess.run(command, check=True, timeout=60)
        assert rig.peak_bytes() <= _MOST, rig.told()
        sizes = {info.size for page in rig.store().list() for info in page}
        assert sizes == {12_000_000}


def test_names_of_its_own_are_bounded_and_nothing_is_lost_by_that(seaweedfs: EmbeddedS3) -> None:
    """Whatever was written: of 600 names the kernel is asked to forget all but a 20th of ``mount.keys``."""
    with rigged(seaweedfs, HEADRACE_MOUNT_KEYS="2000") as rig:
        folder = Path(rig.folder, "some")
        folder.mkdir()
        assert list(folder.iterdir()) == []  # a listing that does not tell of what follows

        def write(number: int) -> None:
            (folder / f"{number:04d}").write_bytes(b"%d" % number)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(600)))
        with open(folder / "0000", "rb") as held:
            assert rig.stats()["mount.nodes"] > 600
            assert wait_for(lambda: rig.stats()["mount.nodes"] <= 110, 30), rig.told()
            assert held.read() == b"0"
        digest = hashlib.sha256()
        for name in sorted(os.listdir(folder)):
            digest.update((folder / name).read_bytes())
        assert digest.hexdigest() == hashlib.sha256(b"".join(b"%d" % number for number in range(600))).hexdigest()
        assert not (folder / "0600").exists()
        rig.stop()
