"""What a mount does when it is told to look at the store anew, or has to: nobody who works in it is disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no store behind it")]

_WORKER = """
import os, sys
folder = os.getcwd()
for line in sys.stdin:
    try:
        same = os.getcwd() == folder and os.path.samestat(os.stat("."), os.stat(folder))
        print("here" if same else "elsewhere", *sorted(os.listdir(".")), flush=True)
    except OSError as error:
        print(f"lost: {error}", flush=True)
"""


@pytest.fixture(params=["listing", "full"])
def mount(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    def before(rig: Rig) -> None:
        for key in ("deep/er/one", "other/one"):
            rig.store().put(key, b"from outside")

    with rigged(seaweedfs, before=before, HEADRACE_MOUNT_METADATA=request.param, HEADRACE_MOUNT_TTL="1h") as rig:
        yield rig
        rig.stop()


class _Worker:
    """A process that works in a folder of the mount."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sees(self) -> str:
        """What it says of where it is, and the names there."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


@contextmanager
def _working_in(folder: Path) -> Iterator[_Worker]:
    command = [sys.executable, "-c", _WORKER]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _Worker(process)
        finally:
            process.kill()


@pytest.mark.parametrize("name", ["deep/er", "made/here"])
def test_who_works_in_a_folder_stays_there_and_sees_what_is_new(mount: Rig, name: str) -> None:
    """Also in a folder made here, which no listing has told of yet."""
    folder = Path(mount.folder, name)
    folder.mkdir(parents=True, exist_ok=True)
    with _working_in(folder) as worker:
        before = worker.sees()
        assert before.startswith("here")
        inodes = [os.stat(each).st_ino for each in (folder, folder.parent)]
        mount.store().put(f"{name}/then", b"from outside")
        mount.refresh()
        assert wait_for(lambda: worker.sees() != before, 10)
        assert worker.sees() == f"{before} then"
        assert [os.stat(each).st_ino for each in (folder, folder.parent)] == inodes
        assert (folder / "then").read_bytes() == b"from outside"


def test_what_is_the_same_keeps_its_inode_number(mount: Rig) -> None:
    """Though nobody holds it: what is compared by number (hard links, `samefile`) is compared across a refresh too."""
    made = Path(mount.folder, "made/here")
    made.mkdir(parents=True)
    (made / "own").write_bytes(b"mine")
    paths = [made / "own", made, made.parent, Path(mount.folder, "deep/er/one"), Path(mount.folder, "deep")]
    inodes = [path.stat().st_ino for path in paths]
    for number in range(3):
        mount.show(f"made/here/{number}", b"from outside")
        assert [path.stat().st_ino for path in paths] == inodes


def test_what_was_absent_or_deleted_or_replaced_is_seen_as_it_is(mount: Rig) -> None:
    store = mount.store()
    deep, other = Path(mount.folder, "deep/er"), Path(mount.folder, "other")
    absent = [deep / "absent", deep / "late/one", other / "absent"]
    own = Path(mount.folder, "own")
    own.write_bytes(b"mine")
    assert [path.exists() for path in absent] == [False] * 3
    assert (other / "one").read_bytes() == b"from outside"
    store.put("deep/er/absent", b"1")
    store.put("deep/er/late/one", b"22")
    store.put("other/absent", b"333")
    store.put("own", b"theirs")
    store.delete(["other/one"])
    assert [path.exists() for path in absent] == [False] * 3, "trusted for an hour"
    mount.refresh()
    assert wait_for(lambda: [path.exists() and path.stat().st_size for path in absent] == [1, 2, 3], 10)
    assert wait_for(lambda: not (other / "one").exists() and own.read_bytes() == b"theirs", 10)
    assert sorted(os.listdir(other)) == ["absent"]


def test_more_absent_names_than_are_remembered_are_asked_for_again(seaweedfs: EmbeddedS3) -> None:
    """The kernel is let keep only so many as can be told to it later."""
    with rigged(seaweedfs, HEADRACE_MOUNT_TTL="1h") as mount:
        names = [str(number) for number in range(33_000)]
        for name in names:
            assert not os.path.exists(f"{mount.folder}/{name}")
        for name in (names[0], names[-1]):
            mount.store().put(name, b"late")
        mount.refresh()
        assert wait_for(lambda: Path(mount.folder, names[0]).exists() and Path(mount.folder, names[-1]).exists(), 10)
        mount.stop()


def test_renames_do_not_make_the_mount_look_anew(mount: Rig) -> None:
    """Whatever a rename hides for a moment, the rest of the mount is as well known as before."""
    folder = Path(mount.folder, "deep/er")
    moved = Path(mount.folder, "other/moved")
    moved.write_bytes(b"1")
    with _working_in(folder) as worker:
        before = worker.sees()
        listings = mount.stats()["mount.listings"]
        for number in range(600):
            moved = moved.rename(moved.parent / f"moved {number}")
        assert worker.sees() == before
        assert mount.stats()["mount.listings"] == listings
