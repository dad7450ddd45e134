"""docs/semantics.md, "Reading through the mount", re-enacted through the kernel.

One test for each numbered statement, named after it.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from headrace.testing.servers.process import freeze, thaw
from tests.mount_rig import COMMAND, PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no store behind it")]

LARGE = random.Random(1).randbytes(24 << 20)
NO_OPEN = "ro,no_open"


def _fill(rig: Rig) -> None:
    store = rig.store()
    store.put("large", LARGE)
    store.put("small", b"old" * 1000)
    store.put("other", b"other" * 1000)


@pytest.fixture(params=["ro", NO_OPEN])
def either(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, options=request.param, before=_fill, HEADRACE_CACHE_TTL="1h") as rig:
        yield rig


@pytest.fixture
def opened(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, options="ro", before=_fill, HEADRACE_CACHE_TTL="1h") as rig:
        yield rig


@pytest.fixture
def unopened(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, options=NO_OPEN, before=_fill, HEADRACE_CACHE_TTL="1h") as rig:
        yield rig


def _read_on(fd: int) -> None:
    """To the end, as far as it comes; every byte is of the version that was there at first."""
    come = 0
    while part := os.pread(fd, 1 << 20, come):
        assert part == LARGE[come : come + len(part)]
        come += len(part)


def test_o1_an_open_file_is_of_one_version(either: Rig) -> None:
    fd = os.open(f"{either.folder}/large", os.O_RDONLY)
    try:
        assert os.pread(fd, 4096, 0) == LARGE[:4096]
        either.store().put("large", bytes(len(LARGE)))
        with pytest.raises(OSError, match="Stale") as caught:
            _read_on(fd)
        assert caught.value.errno == errno.ESTALE
    finally:
        os.close(fd)


def test_o2_what_changed_within_the_ttl_is_opened_in_its_present_version(opened: Rig) -> None:
    path = Path(opened.folder, "small")
    assert path.stat().st_size == 3000
    opened.store().put("small", b"new!" * 1000)
    assert path.read_bytes() == b"new!" * 1000


def test_o3_without_open_the_first_read_finds_out(unopened: Rig) -> None:
    path = Path(unopened.folder, "small")
    assert path.stat().st_size == 3000
    unopened.store().put("small", b"new!" * 1000)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Stale"):
            os.read(fd, 10)
    finally:
        os.close(fd)
    assert wait_for(lambda: path.stat().st_size == 4000, 10)
    assert path.read_bytes() == b"new!" * 1000


def test_o4_without_open_only_bytes_are_asked_for(unopened: Rig, tmp_path: Path) -> None:
    point = tmp_path / "headrace-test-point"
    point.mkdir()
    ended = subprocess.run(
        [*COMMAND, "mount", f"s3://{unopened.bucket}/", str(point), "-o", "no_open"],
        env={**os.environ, **unopened.environment}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    path = f"{unopened.folder}/other"
    assert Path(path).read_bytes() == b"other" * 1000
    assert unopened.process is not None
    freeze(unopened.process.pid)
    try:
        reader = subprocess.run(["/bin/cat", path], capture_output=True, timeout=30, check=True)
    finally:
        thaw(unopened.process.pid)
    assert reader.stdout == b"other" * 1000
