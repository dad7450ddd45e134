"""docs/semantics.md, "Where a mount is not a disk", re-enacted through the kernel.

One test for each numbered statement, named after it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder refuses less")]

_LIBC = ctypes.CDLL(None, use_errno=True)
_EXCHANGE, _WHITEOUT, _NOREPLACE = 2, 4, 1
_PUNCH_HOLE = 3


def _fill(rig: Rig) -> None:
    store = rig.store()
    store.put("old", b"old")
    store.put("both", b"the file")
    store.put("both.rclonelink", b"nowhere")
    store.put("all/inside", b"")
    store.put("all.rclonelink", b"nowhere")
    store.put("link.rclonelink", b"both")


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, before=_fill, HEADRACE_CACHE_TTL="1h") as made:
        yield made


@pytest.fixture
def at(rig: Rig) -> Path:
    return Path(rig.folder)


def _rename(old: Path, new: Path, flags: int) -> None:
    if _LIBC.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags):
        raise OSError(ctypes.get_errno(), "renameat2")


def _punch(path: Path) -> None:
    with path.open("r+b") as file:
        if _LIBC.fallocate(file.fileno(), _PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(1)):
            raise OSError(ctypes.get_errno(), "fallocate")


def _write_at(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        os.pwrite(file.fileno(), b"1", offset)


def _bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # a socket's path is short
        server.bind(path.name)


REFUSED: dict[str, tuple[int, Callable[[Path], object]]] = {
    "a hard link": (errno.EPERM, lambda at: os.link(at / "old", at / "hard")),
    "a FIFO": (errno.EPERM, lambda at: os.mkfifo(at / "fifo")),
    "a socket": (errno.EPERM, lambda at: _bind(at / "socket")),
    "a device": (errno.EPERM, lambda at: os.mknod(at / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))),
    "setting an attribute": (errno.ENOTSUP, lambda at: os.setxattr(at / "old", "user.x", b"1")),
    "reading one": (errno.ENOTSUP, lambda at: os.getxattr(at / "old", "user.x")),
    "listing them": (errno.ENOTSUP, lambda at: os.listxattr(at / "old")),
    "removing one": (errno.ENOTSUP, lambda at: os.removexattr(at / "old", "user.x")),
    "an ACL": (errno.ENOTSUP, lambda at: os.setxattr(at / "old", "system.posix_acl_access", b"\2\0\0\0")),
    "O_TMPFILE": (errno.EOPNOTSUPP, lambda at: os.open(at, os.O_TMPFILE | os.O_RDWR)),
    "RENAME_EXCHANGE": (errno.EINVAL, lambda at: _rename(at / "old", at / "both", _EXCHANGE)),
    "RENAME_WHITEOUT": (errno.EINVAL, lambda at: _rename(at / "old", at / "new", _WHITEOUT)),
    "RENAME_NOREPLACE": (errno.EEXIST, lambda at: _rename(at / "old", at / "both", _NOREPLACE)),
    "a hole": (errno.EOPNOTSUPP, lambda at: _punch(at / "old")),
    "a long name": (errno.ENAMETOOLONG, lambda at: (at / ("x" * 256)).touch()),
    "a long key": (errno.ENAMETOOLONG, lambda at: os.makedirs(at / "/".join(["x" * 200] * 6))),
    "a large file": (errno.EFBIG, lambda at: os.truncate(at / "old", 6 << 40)),
    "a byte far behind": (errno.EFBIG, lambda at: _write_at(at / "old", 6 << 40)),
    "the mount point's mode": (errno.EPERM, lambda at: at.chmod(0o700)),
    "the mount point's owner": (errno.EPERM, lambda at: os.chown(at, 1, 1)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_x1_what_is_refused(rig: Rig, at: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(at.parent)
    code, wrong = REFUSED[what]
    with pytest.raises(OSError) as caught:
        wrong(at)
    assert caught.value.errno == code
    assert (at / "old").read_bytes() == b"old"
    assert (at / "both").read_bytes() == b"the file"


def test_x2_reading_times(at: Path) -> None:
    (at / "dated").write_bytes(b"1")
    os.utime(at / "dated", (100, 200))
    found = (at / "dated").stat()
    assert (found.st_atime, found.st_mtime) == (200, 200)
    subprocess.run(["touch", "-a", at / "dated"], check=True)
    assert (at / "dated").stat().st_mtime == 200


IMPORTS = """
import importlib, os, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
try:
    import added
except ImportError:
    print("absent", flush=True)
sys.stdin.readline()
import added
print(added.x)
"""


def test_x3_the_time_of_a_folder(rig: Rig, at: Path) -> None:
    folder = at / "package"
    folder.mkdir()
    (folder / "other.py").touch()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", IMPORTS, folder], stdin=pipe, stdout=pipe, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "absent\n"
        (folder / "added.py").write_text("x = 7\n")
        assert running.communicate("\n", timeout=60)[0] == "7\n"

    def changes(work: Callable[[], object], where: Path = folder) -> None:
        before = where.stat().st_mtime_ns
        work()
        assert where.stat().st_mtime_ns > before

    changes(lambda: (folder / "added.py").unlink())
    changes(lambda: (folder / "below").mkdir())
    changes(lambda: (folder / "below").rmdir())
    changes(lambda: (folder / "link").symlink_to("other.py"))
    changes(lambda: (folder / "other.py").rename(folder / "another.py"))
    changes(lambda: (at / "at the top").touch(), at)
    for where in (folder, at):
        os.utime(where, (5, 6))
        assert where.stat().st_mtime == 6
        changes(lambda where=where: (where / "after").touch(), where)  # type: ignore[misc]
    rig.store().put("package/from elsewhere", b"")
    before = folder.stat().st_mtime_ns
    rig.refresh()
    assert wait_for(lambda: "from elsewhere" in os.listdir(folder) and folder.stat().st_mtime_ns > before, 20)


def test_x4_a_log_is_followed(at: Path) -> None:
    with (at / "log").open("w", buffering=1) as writer:
        writer.write("one\n")
        with (at / "log").open() as reader:
            assert reader.read() == "one\n"
            for line in ("two\n", "three\n"):
                writer.write(line)
                assert reader.read() == line
            os.fsync(writer.fileno())
            writer.write("four\n")
            assert reader.read() == "four\n"
            writer.close()
            with (at / "log").open("a") as later:
                later.write("five\n")
                later.flush()
                assert reader.read() == "five\n"
    assert (at / "log").read_text() == "one\ntwo\nthree\nfour\nfive\n"


@pytest.mark.parametrize("mode", ["rb", "r+b"])
@pytest.mark.parametrize("name", ["old one", "new one"])
def test_x5_no_links(rig: Rig, at: Path, mode: str, name: str) -> None:
    if name == "old one":
        rig.store().put(name, b"old")
        rig.refresh()
        assert wait_for((at / name).exists, 20)
    else:
        (at / name).write_bytes(b"new")
    with (at / name).open(mode) as file:
        assert os.fstat(file.fileno()).st_nlink == 1
        (at / name).unlink()
        assert os.fstat(file.fileno()).st_nlink == 0
        assert file.read() in (b"old", b"new")


def test_x6_a_file_and_a_link_of_one_name(rig: Rig, at: Path) -> None:
    names = sorted(os.listdir(at))
    assert names.count("both") == names.count("all") == names.count("link") == 1
    assert (at / "both").read_bytes() == b"the file"
    assert not (at / "both").is_symlink()
    assert (at / "all").is_dir()
    assert (at / "link").is_symlink()
    shown = subprocess.run(["ls", "-1", at], capture_output=True, text=True, check=True).stdout.splitlines()
    assert shown.count("both") == shown.count("all") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="allow_other is root's to give")
def test_x7_bits_that_give_rights(seaweedfs: EmbeddedS3) -> None:
    somebody = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
    with rigged(seaweedfs, options="allow_other") as made:
        made.scratch.chmod(0o755)
        program = Path(made.folder, "program")
        program.write_bytes(b"1")
        for change in (
            lambda: subprocess.run([*somebody, "sh", "-c", f"echo x >> {program}"], check=True),
            lambda: subprocess.run([*somebody, "truncate", "-s", "3", program], check=True),
            lambda: os.chown(program, 1, 1),
        ):
            program.chmod(0o6777)
            assert program.stat().st_mode & 0o7777 == 0o6777
            change()
            assert program.stat().st_mode & 0o7777 == 0o777
