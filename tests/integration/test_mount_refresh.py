"""What a mount does when it is told to look at the store anew, or has to: nobody who works in it is disturbed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.testing.http import FaultServer
from headrace.testing.messages import s3_error
from headrace.testing.servers import EmbeddedS3
from tests.children import running
from tests.mount_rig import PLAIN, Rig, faults_before, rigged, wait_for

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
    with running(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _Worker(process)
        finally:
            process.kill()


def test_who_works_in_a_folder_stays_there_and_sees_what_is_new(mount: Rig) -> None:
    """Also in a folder made here, which no listing has told of yet."""
    for name in ("deep/er", "made/here"):
        folder = Path(mount.folder, name)
        folder.mkdir(parents=True, exist_ok=True)
        with _working_in(folder) as worker:
            before = worker.sees()
            assert before.startswith("here")
            inodes = [os.stat(each).st_ino for each in (folder, folder.parent)]
            mount.store().put(f"{name}/then", b"from outside")
            mount.refresh()
            assert wait_for(lambda worker=worker, before=before: worker.sees() != before, 10), name
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
    held = [os.open(folder, os.O_PATH) for folder in (deep, other)]  # else a kernel short of memory forgets them
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
    for fd in held:
        os.close(fd)


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
        for number in range(300):
            moved = moved.rename(moved.parent / f"moved {number}")
        assert worker.sees() == before
        assert mount.stats()["mount.listings"] == listings


@pytest.fixture
def faults(seaweedfs: EmbeddedS3) -> Iterator[FaultServer]:
    with faults_before(seaweedfs) as server:
        yield server


def _refreshed(rig: Rig) -> None:
    """Have the mount look anew, and wait until it has been told."""
    before = rig.stats().get("mount.refreshes", 0)
    rig.refresh()
    assert wait_for(lambda: rig.stats().get("mount.refreshes", 0) > before, 10), rig.log()


_BEFORE_OR_AFTER = (["one", "two"], ["one", "three", "two"])
"""What may be seen by whoever asked before the refresh."""


def _two_files(rig: Rig) -> None:
    rig.store().put("deep/one", b"content")
    rig.store().put("deep/two", b"content")
    rig.store().put("beside/one", b"content")


def test_a_file_in_a_folder_that_is_being_listed_is_found_at_once_after_a_refresh(
    seaweedfs: EmbeddedS3, faults: FaultServer
) -> None:
    """Neither the listing that began before it is waited for, nor the one that is to come."""
    variables = {"AWS_ENDPOINT_URL_S3": faults.endpoint, "HEADRACE_MOUNT_TTL": "1h"}
    with rigged(seaweedfs, before=_two_files, **variables) as rig, ThreadPoolExecutor(2) as pool:
        deep = Path(rig.folder, "deep")
        with faults.holding("list", "deep/") as held:
            first = pool.submit(os.listdir, deep)
            assert wait_for(lambda: held.count == 1, 10)
            rig.store().put("deep/three", b"content")
            _refreshed(rig)
            later = pool.submit(os.listdir, deep)
            assert (deep / "three").read_bytes() == b"content"
        assert sorted(first.result(30)) in _BEFORE_OR_AFTER
        assert sorted(later.result(30)) == ["one", "three", "two"]
        rig.stop()


@pytest.mark.parametrize("broken", [False, True])
def test_a_folder_opened_after_a_refresh_shows_what_is_new_though_it_was_being_listed(
    seaweedfs: EmbeddedS3, faults: FaultServer, broken: bool
) -> None:
    """What was asked for before tells what was before, whatever becomes of it. Other folders do not wait for it."""
    variables = {"AWS_ENDPOINT_URL_S3": faults.endpoint, "HEADRACE_MOUNT_TTL": "1h"}
    with rigged(seaweedfs, before=_two_files, **variables) as rig, ThreadPoolExecutor(8) as pool:
        deep, beside = Path(rig.folder, "deep"), Path(rig.folder, "beside/one")
        inode = (deep / "one").stat().st_ino
        _refreshed(rig)
        with faults.holding("list", "deep/") as held:
            first = pool.submit(os.listdir, deep)
            assert wait_for(lambda: held.count == 1, 10)
            assert beside.stat().st_size == 7
            rig.store().put("deep/three", b"content")
            _refreshed(rig)
            later = [pool.submit(os.listdir, deep) for _ in range(2)]
            rig.store().put("beside/one", b"other content")
            _refreshed(rig)
            assert wait_for(lambda: beside.stat().st_size == 13, 10)
            later.append(pool.submit(os.listdir, deep))
            for _ in range(4):
                _refreshed(rig)
                later.append(pool.submit(os.listdir, deep))
            if broken:
                held.instead = s3_error(403, "Forbidden", "AccessDenied")
        if broken:
            with pytest.raises(PermissionError):
                first.result(30)
        else:
            assert sorted(first.result(30)) in _BEFORE_OR_AFTER
        for found in later:
            assert sorted(found.result(30)) == ["one", "three", "two"]
        assert (deep / "one").stat().st_ino == inode
        rig.store().put("deep/four", b"content")
        _refreshed(rig)
        assert sorted(os.listdir(deep)) == ["four", "one", "three", "two"]
        assert (deep / "one").stat().st_ino == inode
        rig.stop()


def test_what_was_asked_of_a_name_before_a_refresh_is_not_kept_after_it(
    seaweedfs: EmbeddedS3, faults: FaultServer
) -> None:
    variables = {
        "AWS_ENDPOINT_URL_S3": faults.endpoint, "HEADRACE_MOUNT_TTL": "1h", "HEADRACE_MOUNT_METADATA": "full",
    }  # fmt: skip
    with rigged(seaweedfs, before=_two_files, **variables) as rig, ThreadPoolExecutor(1) as pool:
        one = Path(rig.folder, "deep/one")
        assert sorted(os.listdir(one.parent)) == ["one", "two"]
        with faults.holding("head", f"{rig.bucket}/deep/one") as held:
            found = pool.submit(os.stat, one)
            assert wait_for(lambda: held.count == 1, 10)
            rig.store().put("deep/one", b"newer")
            _refreshed(rig)
        assert found.result(30).st_size in (5, 7)
        assert one.stat().st_size == 5
        assert one.read_bytes() == b"newer"
        rig.stop()
