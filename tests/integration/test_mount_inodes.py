"""Inode numbers and names through a mount whose listings are made anew all the time."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no store behind it")]

_OPERATIONS = 700
_MOST = 80


@pytest.fixture(params=["listing", "full"])
def mount(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    def before(rig: Rig) -> None:
        for key in ("a", "b", "folder/one"):
            rig.store().put(key, b"from outside")

    with rigged(seaweedfs, before=before, HEADRACE_MOUNT_METADATA=request.param, HEADRACE_MOUNT_TTL="0.3s") as rig:
        yield rig
        rig.stop()


class _Pinned:
    """Names the kernel may not forget, as somebody holds them open (O_PATH)."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    def __enter__(self) -> _Pinned:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._held.values():
            os.close(fd)

    def hold(self, path: str) -> None:
        self._held[path] = os.open(path, os.O_PATH | os.O_NOFOLLOW)

    def let_go(self, path: str) -> None:
        os.close(self._held.pop(path))

    def renamed(self, path: str, to: str) -> None:
        self._held[to] = self._held.pop(path)

    def check(self, path: str) -> None:
        assert os.path.samestat(os.lstat(path), os.fstat(self._held[path])), f"{path} has another inode number"


def _another_listing(mount: Rig, number: int) -> None:
    """The root is listed anew: it shows what has just been put there."""
    mount.store().put(f"new-{number}", b"")
    assert wait_for(lambda: os.path.exists(f"{mount.folder}/new-{number}"), 30)


def test_a_file_keeps_its_number_over_listings_that_differ(mount: Rig) -> None:
    with _Pinned() as pinned:
        for name in ("a", "folder"):
            pinned.hold(f"{mount.folder}/{name}")
        for number in range(5):
            _another_listing(mount, number)
            for entry in os.scandir(mount.folder):
                entry.stat(follow_symlinks=False)
            for name in ("a", "folder"):
                pinned.check(f"{mount.folder}/{name}")


def test_a_folder_that_lost_its_last_file_keeps_its_number(mount: Rig) -> None:
    with _Pinned() as pinned:
        pinned.hold(f"{mount.folder}/folder")
        os.unlink(f"{mount.folder}/folder/one")
        for number in range(5):
            _another_listing(mount, number)
            pinned.check(f"{mount.folder}/folder")
            assert os.listdir(f"{mount.folder}/folder") == []


def test_an_open_folder_does_not_show_again_what_was_gone_before(mount: Rig) -> None:
    for number in range(5):
        Path(mount.folder, f"file-{number}").touch()
        _another_listing(mount, 2 * number)  # which has the file
        os.unlink(f"{mount.folder}/file-{number}")
        with os.scandir(mount.folder) as opened:
            _another_listing(mount, 2 * number + 1)
            assert f"file-{number}" not in [entry.name for entry in opened]


def test_a_folder_shows_what_was_made_and_unmade_while_it_was_open_as_it_is(mount: Rig) -> None:
    for name in ("kept", "removed", "replaced"):
        Path(mount.folder, name).write_bytes(b"before")
    with os.scandir(mount.folder) as opened:
        os.unlink(f"{mount.folder}/removed")
        os.unlink(f"{mount.folder}/replaced")
        os.mkdir(f"{mount.folder}/replaced")
        shown = {entry.name: entry.is_dir() for entry in opened}
    assert (shown["kept"], shown["replaced"], "removed" in shown) == (False, True, False)
    assert not os.path.exists(f"{mount.folder}/removed"), "the kernel was told of it again"


@pytest.mark.parametrize("seed", range(2))
def test_names_and_numbers_stay_whatever_else_happens(mount: Rig, seed: int) -> None:
    """A random walk of one user: what was made is there, under the inode number it had, until it is removed."""
    with ExitStack() as stack:
        _Walk(mount, random.Random(seed), stack.enter_context(_Pinned())).run()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the kernel forget names")
@pytest.mark.parametrize("seed", range(2))
def test_names_stay_whatever_the_kernel_forgets(mount: Rig, seed: int) -> None:
    """The same walk where nobody holds anything, and the kernel and the mount are told to forget all the time."""
    _ForgetfulWalk(mount, random.Random(seed), _Loose()).run()


class _Loose(_Pinned):
    """Nothing is held: names may come back under another number, but they come back."""

    def hold(self, path: str) -> None:
        """Nothing to do."""

    def let_go(self, path: str) -> None:
        """Nothing to do."""

    def renamed(self, path: str, to: str) -> None:
        """Nothing to do."""

    def check(self, path: str) -> None:
        os.lstat(path)


class _Walk:
    def __init__(self, mount: Rig, chosen: random.Random, pinned: _Pinned) -> None:
        self.mount = mount
        self.chosen = chosen
        self.pinned = pinned
        self.folders = [mount.folder]
        self.files: list[str] = []
        self.made = 0

    def run(self) -> None:
        kinds = [self.mkdir, self.create, self.look, self.list, self.rename, self.write, self.unlink, self.outside]
        for kind in self.chosen.choices(kinds, [1, 2, 6, 2, 1, 1, 1, 1], k=_OPERATIONS):
            kind()
        for path in self.files + self.folders[1:]:
            self.pinned.check(path)

    def new(self) -> str:
        self.made += 1
        return f"{self.chosen.choice(self.folders)}/{self.made}"

    def mkdir(self) -> None:
        if len(self.folders) < 12:
            path = self.new()
            os.mkdir(path)
            self.pinned.hold(path)
            self.folders.append(path)

    def create(self) -> None:
        if len(self.files) < _MOST:
            path = self.new()
            Path(path).write_bytes(b"made")
            self.pinned.hold(path)
            self.files.append(path)

    def look(self) -> None:
        known = self.files + self.folders[1:]
        for path in self.chosen.sample(known, min(len(known), 8)):
            self.pinned.check(path)

    def list(self) -> None:
        folder = self.chosen.choice(self.folders)
        with os.scandir(folder) as opened:
            self.opened()
            shown = {entry.path for entry in opened if entry.stat(follow_symlinks=False)}
        expected = {path for path in self.files + self.folders if os.path.dirname(path) == folder}
        assert {path for path in shown if not path.endswith("-outside")} - {
            f"{folder}/{name}" for name in ("a", "b", "folder")
        } == expected

    def opened(self) -> None:
        """A folder has been opened, and is about to be read."""

    def rename(self) -> None:
        if self.files:
            path, to = self.files.pop(self.chosen.randrange(len(self.files))), self.new()
            os.rename(path, to)
            self.pinned.renamed(path, to)
            self.files.append(to)

    def write(self) -> None:
        if self.files:
            Path(self.chosen.choice(self.files)).write_bytes(self.chosen.randbytes(50))

    def unlink(self) -> None:
        if len(self.files) > _MOST // 2:
            path = self.files.pop(self.chosen.randrange(len(self.files)))
            os.unlink(path)
            self.pinned.let_go(path)

    def outside(self) -> None:
        key = os.path.relpath(f"{self.new()}-outside", self.mount.folder)
        self.mount.store().put(key, b"from outside")


class _ForgetfulWalk(_Walk):
    def opened(self) -> None:
        Path("/proc/sys/vm/drop_caches").write_text("2")

    def look(self) -> None:
        self.opened()
        super().look()

    def outside(self) -> None:
        super().outside()
        self.mount.refresh()
