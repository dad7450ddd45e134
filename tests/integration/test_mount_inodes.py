"""Inode numbers and names through a mount whose listings are made anew all the time."""

from __future__ import annotations

import ctypes
import os
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no store behind it")]

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_REMOUNT = 32 | 2 | 4 | 1024
"""MS_REMOUNT | MS_NOSUID | MS_NODEV | MS_NOATIME (linux/mount.h)."""
_OUTSIDE = ("a", "b", "folder")
_OPERATIONS = 700
_MOST = 80


@pytest.fixture(scope="module", params=["listing", "full"])
def mount(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, HEADRACE_MOUNT_METADATA=request.param, HEADRACE_MOUNT_TTL="0.1s") as rig:
        yield rig
        rig.stop()


@dataclass(frozen=True)
class _Top:
    """A folder of the mount that one test has for itself, or, without a name, what lies at the mount's top."""

    mount: Rig
    name: str

    @property
    def folder(self) -> str:
        return os.path.join(self.mount.folder, self.name).rstrip("/")

    def put(self, key: str) -> None:
        self.mount.store().put(os.path.join(self.name, key), b"from outside")

    def filled(self) -> _Top:
        """With objects, once the mount shows them."""
        for key in _OUTSIDE:
            self.put(key if key != "folder" else "folder/one")
        assert wait_for(lambda: all(os.path.exists(f"{self.folder}/{key}") for key in _OUTSIDE), 30)
        return self


@pytest.fixture
def top(mount: Rig, request: pytest.FixtureRequest) -> _Top:
    return _Top(mount, request.function.__name__).filled()


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


def _another_listing(top: _Top, number: int) -> None:
    """It is listed anew: it shows what has just been put there."""
    top.put(f"new-{number}")
    assert wait_for(lambda: os.path.exists(f"{top.folder}/new-{number}"), 30)


def test_a_file_keeps_its_number_over_listings_that_differ(mount: Rig) -> None:
    top = _Top(mount, "").filled()  # of the mount itself
    with _Pinned() as pinned:
        for name in ("a", "folder"):
            pinned.hold(f"{top.folder}/{name}")
        for number in range(5):
            _another_listing(top, number)
            for entry in os.scandir(top.folder):
                entry.stat(follow_symlinks=False)
            for name in ("a", "folder"):
                pinned.check(f"{top.folder}/{name}")


def test_a_folder_that_lost_its_last_file_keeps_its_number(top: _Top) -> None:
    with _Pinned() as pinned:
        pinned.hold(f"{top.folder}/folder")
        os.unlink(f"{top.folder}/folder/one")
        for number in range(5):
            _another_listing(top, number)
            pinned.check(f"{top.folder}/folder")
            assert os.listdir(f"{top.folder}/folder") == []


def test_an_open_folder_does_not_show_again_what_was_gone_before(top: _Top) -> None:
    for number in range(5):
        Path(top.folder, f"file-{number}").touch()
        _another_listing(top, 2 * number)  # which has the file
        os.unlink(f"{top.folder}/file-{number}")
        with os.scandir(top.folder) as opened:
            _another_listing(top, 2 * number + 1)
            assert f"file-{number}" not in [entry.name for entry in opened]


def test_a_folder_shows_what_was_made_and_unmade_while_it_was_open_as_it_is(top: _Top) -> None:
    for name in ("kept", "removed", "replaced"):
        Path(top.folder, name).write_bytes(b"before")
    with os.scandir(top.folder) as opened:
        os.unlink(f"{top.folder}/removed")
        os.unlink(f"{top.folder}/replaced")
        os.mkdir(f"{top.folder}/replaced")
        shown = {entry.name: entry.is_dir() for entry in opened}
    assert (shown["kept"], shown["replaced"], "removed" in shown) == (False, True, False)
    assert not os.path.exists(f"{top.folder}/removed"), "the kernel was told of it again"


def test_names_and_numbers_stay_whatever_else_happens(top: _Top) -> None:
    """A random walk of one user: what was made is there, under the inode number it had, until it is removed."""
    with ExitStack() as stack:
        _Walk(top, _chosen(top), stack.enter_context(_Pinned())).run()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the kernel forget names")
def test_names_stay_whatever_the_kernel_forgets(top: _Top) -> None:
    """The same walk where nobody holds anything, and the kernel and the mount are told to forget all the time."""
    _ForgetfulWalk(top, _chosen(top), _Loose()).run()


def _chosen(top: _Top) -> random.Random:
    """Another walk for each way to list; a failure shows the seed."""
    seed = 0 if top.mount.variables["HEADRACE_MOUNT_METADATA"] == "listing" else 1
    print(f"seed {seed}")
    return random.Random(seed)


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
    def __init__(self, top: _Top, chosen: random.Random, pinned: _Pinned) -> None:
        self.top = top
        self.chosen = chosen
        self.pinned = pinned
        self.folders = [top.folder]
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
            f"{folder}/{name}" for name in _OUTSIDE
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
        self.top.put(os.path.relpath(f"{self.new()}-outside", self.top.folder))


class _ForgetfulWalk(_Walk):
    def opened(self) -> None:
        """The kernel forgets what nobody holds. Of this mount only, which a remount does: `drop_caches` acts on all."""
        assert LIBC.mount(b"headrace", os.fsencode(self.top.mount.folder), None, _REMOUNT, None) == 0, os.strerror(
            ctypes.get_errno()
        )

    def look(self) -> None:
        self.opened()
        super().look()

    def outside(self) -> None:
        super().outside()
        self.top.mount.refresh()
