"""The mount against a local folder: the same random operations on both, results and errno compared after each."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from headrace.store import open_store
from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import COMMAND, PLAIN, Rig, only_a_mount, rigged

pytestmark = pytest.mark.server

PATHS = st.sampled_from(["a", "b", "c.txt", "b/a", "b/c.txt", "b/d é", "b/d é/a", "d é", "d é/c.txt"])  # few: they meet
CONTENT = st.binary(max_size=30) | st.integers(1, 200_000).map(lambda size: (b"0123456789abcdef" * 12_500)[:size])
SIZES = st.sampled_from([0, 1, 10, 4095, 4096, 70_000])
LONG_AGO = st.integers(1_000_000_000, 1_400_000_000)
HANDLES = st.integers(0, 2)


class FolderMachine(RuleBasedStateMachine):
    """One folder of the mount and one on local disk. `rig` and `pairs` are set by the test."""

    rig: Rig
    pairs: list[tuple[str, str]]

    @initialize()
    def begin(self) -> None:
        here = tempfile.mkdtemp(prefix="folder-", dir=self.rig.folder)
        there = tempfile.mkdtemp(prefix="headrace-test-local-")
        self.roots = (here, there)
        self.pairs.append(self.roots)
        self.handles: dict[int, tuple[int, int]] = {}
        self.same = True
        for folder in ("b", "b/d é"):  # or most paths would lead nowhere
            self.mkdir(folder)

    def teardown(self) -> None:
        if hasattr(self, "handles"):
            for descriptor in (fd for pair in self.handles.values() for fd in pair):
                os.close(descriptor)
            if self.same:
                same_tree(*self.roots)

    def both(self, call: Callable[[str], Any]) -> None:
        """Do it to the mount and to the local folder; both must give the same, or fail with the same errno."""
        self.agree([_outcome(call, root) for root in self.roots])

    def agree(self, outcomes: list[tuple[int, Any]]) -> None:
        self.same = outcomes[0] == outcomes[1]
        assert self.same, f"mount {_said(outcomes[0])}, local {_said(outcomes[1])}"

    @rule(path=PATHS, data=CONTENT)
    def write(self, path: str, data: bytes) -> None:
        self.both(lambda root: Path(root, path).write_bytes(data))

    @rule(path=PATHS, data=CONTENT)
    def create(self, path: str, data: bytes) -> None:
        self.both(lambda root: _with(root, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, lambda fd: os.write(fd, data)))

    @rule(path=PATHS, data=CONTENT)
    def append(self, path: str, data: bytes) -> None:
        self.both(lambda root: _with(root, path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, lambda fd: os.write(fd, data)))

    @rule(path=PATHS, data=CONTENT, at=SIZES)
    def overwrite(self, path: str, data: bytes, at: int) -> None:
        self.both(lambda root: _with(root, path, os.O_RDWR, lambda fd: os.pwrite(fd, data, at)))

    @rule(path=PATHS, size=SIZES)
    def truncate(self, path: str, size: int) -> None:
        self.both(lambda root: os.truncate(os.path.join(root, path), size))

    @rule(path=PATHS)
    def read(self, path: str) -> None:
        self.both(lambda root: Path(root, path).read_bytes())

    @rule(path=PATHS, at=SIZES, size=SIZES)
    def read_part(self, path: str, at: int, size: int) -> None:
        self.both(lambda root: _with(root, path, os.O_RDONLY, lambda fd: os.pread(fd, size, at)))

    @rule(path=PATHS)
    def look(self, path: str) -> None:
        self.both(lambda root: _seen(os.path.join(root, path)))

    @rule(path=PATHS | st.just("."))
    def list(self, path: str) -> None:
        def seen(root: str) -> list[tuple[str, bool, bool]]:
            entries = os.scandir(os.path.join(root, path))
            return sorted((entry.name, entry.is_dir(), entry.is_symlink()) for entry in entries)

        self.both(seen)

    @rule(path=PATHS)
    def mkdir(self, path: str) -> None:
        self.both(lambda root: os.mkdir(os.path.join(root, path)))

    @rule(path=PATHS)
    def rmdir(self, path: str) -> None:
        self.both(lambda root: os.rmdir(os.path.join(root, path)))

    @rule(path=PATHS)
    def unlink(self, path: str) -> None:
        self.both(lambda root: os.unlink(os.path.join(root, path)))

    @rule(old=PATHS, new=PATHS)
    def rename(self, old: str, new: str) -> None:
        self.both(lambda root: os.rename(os.path.join(root, old), os.path.join(root, new)))

    @rule(path=PATHS, to=PATHS)
    def symlink(self, path: str, to: str) -> None:
        self.both(lambda root: os.symlink(to, os.path.join(root, path)))

    @rule(path=PATHS)
    def readlink(self, path: str) -> None:
        self.both(lambda root: os.readlink(os.path.join(root, path)))

    @rule(path=PATHS, mode=st.sampled_from([0o600, 0o644, 0o755, 0o400]))
    def chmod(self, path: str, mode: int) -> None:
        self.both(lambda root: _on_file(os.path.join(root, path), lambda full: os.chmod(full, mode)))

    @rule(path=PATHS, when=LONG_AGO)
    def utime(self, path: str, when: int) -> None:
        self.both(lambda root: _on_file(os.path.join(root, path), lambda full: os.utime(full, (when, when))))

    # Handles that stay open over other operations; for writing, because one for reading keeps to the version it opened

    @precondition(lambda self: len(self.handles) < 3)
    @rule(handle=HANDLES, path=PATHS, flags=st.sampled_from([os.O_RDWR, os.O_RDWR | os.O_CREAT]))
    def open(self, handle: int, path: str, flags: int) -> None:
        if handle in self.handles:
            return
        opened = [_outcome(lambda root: os.open(os.path.join(root, path), flags, 0o644), root) for root in self.roots]
        codes = [code for code, _ in opened]
        if codes == [0, 0]:
            self.handles[handle] = (opened[0][1], opened[1][1])
            return
        for code, descriptor in opened:
            if code == 0:
                os.close(descriptor)
        self.agree([(code, None) for code in codes])

    @precondition(lambda self: self.handles)
    @rule(handle=HANDLES, data=CONTENT, at=SIZES)
    def handle_write(self, handle: int, data: bytes, at: int) -> None:
        self.on_handle(handle, lambda fd: os.pwrite(fd, data, at))

    @precondition(lambda self: self.handles)
    @rule(handle=HANDLES, at=SIZES, size=SIZES)
    def handle_read(self, handle: int, at: int, size: int) -> None:
        self.on_handle(handle, lambda fd: (os.pread(fd, size, at), os.fstat(fd).st_size))

    @precondition(lambda self: self.handles)
    @rule(handle=HANDLES, size=SIZES)
    def handle_truncate(self, handle: int, size: int) -> None:
        self.on_handle(handle, lambda fd: os.ftruncate(fd, size))

    @precondition(lambda self: self.handles)
    @rule(handle=HANDLES)
    def handle_sync(self, handle: int) -> None:
        self.on_handle(handle, os.fsync)

    @precondition(lambda self: self.handles)
    @rule(handle=HANDLES)
    def close(self, handle: int) -> None:
        self.on_handle(handle, os.close)
        self.handles.pop(handle, None)

    def on_handle(self, handle: int, call: Callable[[int], Any]) -> None:
        if handle in self.handles:
            self.agree([_outcome(call, fd) for fd in self.handles[handle]])


def _outcome(call: Callable[[Any], Any], where: Any) -> tuple[int, Any]:
    try:
        return 0, call(where)
    except OSError as error:
        return error.errno or -1, None


def _said(outcome: tuple[int, Any]) -> str:
    return errno.errorcode.get(outcome[0], str(outcome[0])) if outcome[0] else repr(outcome[1])[:200]


def _with(root: str, path: str, flags: int, call: Callable[[int], Any]) -> Any:
    descriptor = os.open(os.path.join(root, path), flags, 0o644)
    try:
        return call(descriptor)
    finally:
        os.close(descriptor)


def _on_file(full: str, call: Callable[[str], Any]) -> Any:
    """Folders keep no attributes: theirs are not compared."""
    return call(full) if not os.path.isdir(full) else None


def _seen(full: str) -> tuple[Any, ...]:
    """What `lstat` tells that must agree: kind, and for files size, permissions, and a time set on purpose."""
    found = os.lstat(full)
    kind = stat.S_IFMT(found.st_mode)
    if kind != stat.S_IFREG:
        return (kind,)
    old = found.st_mtime if found.st_mtime < 1_500_000_000 else "now"
    return kind, found.st_size, stat.S_IMODE(found.st_mode), old


def same_tree(here: str, there: str) -> None:
    """Both folders hold the same names, contents, attributes and links."""
    trees = [dict(_tree(root)) for root in (here, there)]
    assert trees[0] == trees[1]


def _tree(root: str) -> Iterator[tuple[str, Any]]:
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            full = os.path.join(folder, name)
            where = os.path.relpath(full, root)
            if os.path.islink(full):
                yield where, os.readlink(full)
            elif os.path.isdir(full):
                yield where, "folder"
            else:
                yield where, (_seen(full), Path(full).read_bytes())


@pytest.fixture(scope="module")
def mount(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, HEADRACE_MOUNT_METADATA="full") as rig:  # modes and times outlive the mount
        yield rig


def test_the_mount_does_what_a_local_folder_does(mount: Rig) -> None:
    """Also after a new mount without a cache: everything that was compared is in the store."""
    pairs: list[tuple[str, str]] = []

    class Machine(FolderMachine):
        pass

    Machine.rig, Machine.pairs = mount, pairs
    limits = settings(max_examples=25, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    try:
        run_state_machine_as_test(Machine, settings=limits)
        mount.restart(wipe=True)
        for here, there in pairs:
            same_tree(here, there)
        assert any(os.listdir(there) for _, there in pairs), "the machine wrote nothing: this proves nothing"
    finally:
        for _, there in pairs:
            shutil.rmtree(there, ignore_errors=True)


# What random operations reach too seldom


def test_mmap_writes_are_published(mount: Rig) -> None:
    path = Path(mount.folder, "mapped")
    path.write_bytes(bytes(100_000))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[70_000:70_005] = b"hello"
        mapped.flush()
        assert path.read_bytes()[70_000:70_005] == b"hello"
    mount.restart(wipe=True)
    assert path.read_bytes() == bytes(70_000) + b"hello" + bytes(29_995)


def test_a_file_larger_than_a_part_is_appended_to_and_changed_within(mount: Rig) -> None:
    path = Path(mount.folder, "large")
    block = os.urandom(1 << 20)
    path.write_bytes(block * 20)
    with open(path, "ab") as file:
        file.write(b"the end")
    with open(path, "r+b") as file:
        file.seek(9 << 20)
        file.write(b"middle")
    mount.restart(wipe=True)
    expected = bytearray(block * 20 + b"the end")
    expected[9 << 20 : (9 << 20) + 6] = b"middle"
    assert path.read_bytes() == expected


def test_what_is_not_possible_is_refused_with_the_right_errno(mount: Rig) -> None:
    only_a_mount()
    file = Path(mount.folder, "plain.txt")
    file.write_text("x")
    other = str(file) + ".2"
    stats = Path(mount.folder, ".headrace", "stats.json")
    deep = _deep(mount.folder, 5)
    refused: dict[str, tuple[Callable[[], Any], set[int]]] = {
        "hard link": (lambda: os.link(file, other), {errno.EPERM}),
        "named pipe": (lambda: os.mkfifo(other), {errno.EPERM}),
        "device": (lambda: os.mknod(other, stat.S_IFCHR | 0o600, os.makedev(1, 3)), {errno.EPERM}),
        "extended attribute": (lambda: os.setxattr(file, "user.x", b"y"), {errno.ENOTSUP}),
        "statistics": (lambda: stats.write_text("x"), {errno.EPERM, errno.EACCES, errno.EROFS}),
        "name": (lambda: Path(mount.folder, "n" * 300).write_text("x"), {errno.ENAMETOOLONG}),
        "key": (lambda: _new(deep), {errno.ENAMETOOLONG}),
        "folder's key": (lambda: os.mkdir(deep), {errno.ENAMETOOLONG}),
        "link's key": (lambda: os.symlink("x", deep), {errno.ENAMETOOLONG}),
        "link's name": (lambda: os.symlink("x", str(Path(mount.folder, "n" * 250))), {errno.ENAMETOOLONG}),
        "new key": (lambda: os.rename(file, deep), {errno.ENAMETOOLONG}),
        "key that the server takes for another": (lambda: _new(f"{mount.folder}/a\\b"), {errno.EINVAL}),
        "new key that it takes for another": (lambda: os.rename(file, f"{mount.folder}/a\\b"), {errno.EINVAL}),
    }  # fmt: skip
    for what, (attempt, codes) in refused.items():
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.errno in codes, (what, caught.value)
    assert not os.path.exists(other)
    assert (mount.staged(), file.read_text()) == ({}, "x")


def _new(path: str) -> None:
    """Only opened: a refusal at the close would come too late."""
    os.open(path, os.O_WRONLY | os.O_CREAT)


def _deep(folder: str, levels: int) -> str:
    """A path whose key is longer than an object store takes, though each of its names is short enough."""
    path = Path(folder, *("f" * 250 for _ in range(levels - 1)))
    path.mkdir(parents=True, exist_ok=True)
    return str(path / ("n" * 250))


def test_a_read_only_mount_refuses_every_change(mount: Rig, seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    Path(mount.folder, "kept").write_text("kept")
    with rigged(seaweedfs, bucket=mount.bucket, options="ro") as rig:
        kept = Path(rig.folder, "kept")
        changes: list[Callable[[], Any]] = [
            lambda: kept.write_text("x"),
            lambda: kept.with_name("new").touch(),
            kept.unlink,
            lambda: kept.rename(kept.with_name("other")),
            lambda: kept.with_name("folder").mkdir(),
            lambda: kept.chmod(0o600),
            lambda: os.truncate(kept, 0),
        ]
        for change in changes:
            with pytest.raises(OSError) as caught:
                change()
            assert caught.value.errno == errno.EROFS
        assert kept.read_text() == "kept"


def _attached_twice(rig: Rig) -> None:
    """The namespace is mounted, with a bucket at ``/one`` and another at ``/two``."""
    other = rig.server.create_bucket(f"{rig.bucket}-two")
    for path, url in (("/one", f"s3://{rig.bucket}"), ("/two", other)):
        command = [*COMMAND, "attach", path, url]
        subprocess.run(command, cwd=rig.scratch, env={**os.environ, **rig.environment}, check=True, timeout=60)
    rig.path = "/"


def test_mv_between_two_stores_copies_by_itself(seaweedfs: EmbeddedS3) -> None:
    """docs/semantics.md, T11."""
    only_a_mount()
    with rigged(seaweedfs, before=_attached_twice) as rig:
        one, two = Path(rig.folder, "one"), Path(rig.folder, "two")
        content = os.urandom(300_000)
        (one / "file").write_bytes(content)
        (one / "file").chmod(0o640)
        os.utime(one / "file", (1_500_000_000, 1_500_000_000))
        (one / "folder" / "below").mkdir(parents=True)
        (one / "folder" / "below" / "deep").write_bytes(b"deep")
        os.symlink("below/deep", one / "folder" / "link")
        for name in ("file", "folder"):
            with pytest.raises(OSError) as caught:
                os.rename(one / name, two / name)
            assert caught.value.errno == errno.EXDEV
        subprocess.run(["mv", one / "file", one / "folder", two], check=True, timeout=120)
        assert os.listdir(one) == []
        moved = (two / "file").stat()
        assert (stat.S_IMODE(moved.st_mode), moved.st_mtime) == (0o640, 1_500_000_000)
        assert ((two / "file").read_bytes(), (two / "folder" / "link").read_bytes()) == (content, b"deep")
        there = open_store(f"s3://{rig.bucket}-two", seaweedfs.options())
        keys = {info.key for page in there.list() for info in page if not info.key.endswith("/")}
        assert keys == {"file", "folder/below/deep", "folder/link.rclonelink"}
        assert there.get("file").data == content
        assert [info.key for page in rig.store().list() for info in page if not info.key.endswith("/")] == []


def test_the_last_close_wins_whole(mount: Rig, seaweedfs: EmbeddedS3) -> None:
    """Two mounts write one file at the same time: afterwards it is one of the two, never a mixture."""
    only_a_mount()
    with rigged(seaweedfs, bucket=mount.bucket) as other:
        first, second = b"1" * 3_000_000, b"2" * 2_000_000
        with open(Path(mount.folder, "both"), "wb") as one, open(Path(other.folder, "both"), "wb") as two:
            for start in range(0, len(first), 1 << 20):
                one.write(first[start : start + (1 << 20)])
                two.write(second[start : start + (1 << 20)])
            one.flush()
            two.flush()
            one.close()
        other.stop()
    mount.restart(wipe=True)
    assert Path(mount.folder, "both").read_bytes() == second


if PLAIN:
    del test_the_last_close_wins_whole  # a plain folder is not there twice
