"""docs/semantics.md, "Writing through the mount", re-enacted without a kernel: through `Staging`, which it calls.

One test for each numbered statement, named after it.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.base.errors import (
    ChangedError,
    InputError,
    NameRefusedError,
    NameTooLongError,
    NoRoomError,
    ReadOnlyError,
    TryAgainError,
)
from headrace.fetch import Read
from headrace.mount.kernel.error_numbers import errno_of
from headrace.mount.write_back.object_metadata import Attributes, link_path
from headrace.mount.write_back.staging import Staging, StagingOptions
from headrace.store.embedded import EmbeddedS3
from tests.staging_kit import FILE, FOLDER, PATIENT, World, bucket_of, key_of, world
from tests.unit.mount.write_back.test_staging import files_up_to

MB = 1 << 20


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path, f"memory://{secrets.token_hex(8)}") as made:
        yield made


@pytest.fixture
def s3(tmp_path: Path, seaweedfs: EmbeddedS3) -> Iterator[World]:
    url, options = bucket_of(seaweedfs, f"semantics-{secrets.token_hex(6)}")
    with world(tmp_path / "s3", url, options) as made:
        yield made


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == code


def until(made: World, expected: dict[str, bytes]) -> None:
    deadline = time.monotonic() + 20
    while made.objects() != expected:
        assert time.monotonic() < deadline, made.objects()
        time.sleep(0.01)


def test_t1_whole_or_nothing(w: World):
    file = w.staging.create("/d/f", FILE)
    file.write(5, b"56789")
    file.write(0, b"01234")
    file.truncate(8)
    file.truncate(10)
    assert file.read(3, 100) == b"34567\0\0"
    assert w.objects() == {}
    file.publish()
    assert w.objects() == {"f": b"01234567\0\0"}
    file.release()


def test_t2_close_and_fsync_publish(w: World, tmp_path: Path):
    w.write("/d/empty", b"")
    file = w.staging.create("/d/f", FILE)
    file.write(0, b"1")
    file.publish()
    assert w.objects() == {"empty": b"", "f": b"1"}
    puts = w.store.calls.count("put")
    file.publish()
    file.release()
    assert w.store.calls.count("put") == puts
    w.store.down = True
    with pytest.raises(TryAgainError):
        w.write("/d/g", b"2")
    with world(tmp_path / "2", f"memory://{secrets.token_hex(8)}", options=StagingOptions(period_s=0.05)) as other:
        file = other.staging.create("/d/log", FILE)
        file.write(0, b"line")
        until(other, {"log": b"line"})
        file.release()


def test_t3_one_request_and_warm(s3: World):
    s3.store.calls.clear()
    s3.write("/d/f", b"x" * 50_000)
    info = s3.store.inner.head("f")  # a mount knows what it has written
    assert bytes(s3.fetcher.get(Read(s3.store, "f", info.size, info.version)).data) == b"x" * 50_000
    assert s3.store.calls == ["put"]


def test_t4_only_what_is_new(s3: World):
    content = os.urandom(MB) * 20
    s3.write("/d/big", content)
    for line in (b"one", b"two"):
        assert s3.staging.drain(10)
        assert s3.fetcher.cache is not None
        s3.fetcher.cache.evict()
        s3.store.calls.clear()
        file = s3.staging.open("/d/big", None, truncate=False, attrs=FILE)
        file.write(file.size, line)
        assert "get" not in s3.store.calls
        file.publish()
        if line == b"two":  # by the first append the server had shown that it copies
            assert "get" not in s3.store.calls
        file.release()
    assert s3.objects()["big"] == content + b"onetwo"


def test_t5_one_version(w: World):
    content = os.urandom(MB) * 20
    w.store.put("big", content)
    file = w.staging.open("/d/big", None, truncate=False, attrs=FILE)
    assert file.read(0, 10) == content[:10]
    w.store.put("big", b"x" * 20 * MB)
    with pytest.raises(ChangedError) as caught:
        file.read(10 * MB, 10)
    assert errno_of(caught.value) == errno.ESTALE
    assert file.read(0, 10) == content[:10]
    file.release()


def test_t6_the_last_one_wins(w: World, tmp_path: Path):
    other = Staging(str(tmp_path / "other"), w.ns, PATIENT)
    files = [w.staging.create("/d/f", FILE), other.create("/d/f", FILE)]
    files[0].write(0, b"first" * 10)
    files[1].write(3, b"second")
    for file in files:
        file.publish()
        file.release()
    other.close()
    assert w.objects() == {"f": b"\0\0\0second"}


def test_t7_kept_until_it_succeeds(w: World):
    w.store.down = True
    with pytest.raises(TryAgainError):
        w.write("/d/f", b"mine")
    assert [waiting.path for waiting in w.staging.backlog()] == ["/d/f"]
    file = w.staging.hold("/d/f")
    assert file is not None
    assert file.read(0, 10) == b"mine"
    file.release()
    w.store.inner.put("f", b"another's")
    w.store.down = False
    until(w, {"f": b"mine"})


def test_t8_after_a_kill(w: World):
    open_one = w.staging.create("/d/open", FILE)
    open_one.write(0, b"half a")
    w.store.down = True
    with pytest.raises(TryAgainError):
        w.write("/d/f", b"failed")
    recovered = w.crash().recover()
    until(w, {"f": b"failed"})
    assert [Path(kept).parent.name for kept in recovered.orphans] == ["left"]
    assert Path(recovered.orphans[0]).read_bytes() == b"half a"
    assert [(left.path, left.file) for left in w.staging.orphans()] == [("/d/open", recovered.orphans[0])]
    w.write("/d/open", b"something else")
    assert w.staging.orphans()
    w.write("/d/open", b"half a file, and the rest")
    deadline = time.monotonic() + 20
    while w.staging.orphans():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_t9_renaming_a_file(w: World):
    w.write("/d/a", b"a")
    w.write("/d/b", b"b")
    shown: list[tuple[bool, bool]] = []
    delete = w.store.inner.delete

    def look(keys: object) -> None:
        shown.append((w.staging.hides("/d/a"), w.staging.hides("/d/b")))
        delete(keys)  # type: ignore[arg-type]

    w.store.inner.delete = look  # type: ignore[method-assign]
    w.staging.rename("/d/a", "/d/b")
    assert (w.objects(), shown) == ({"b": b"a"}, [(True, False)])
    new, replaced = w.staging.create("/d/new", FILE), w.staging.open("/d/b", None, truncate=False, attrs=FILE)
    new.write(0, b"1")
    w.staging.rename("/d/new", "/d/b")
    assert w.objects() == {"b": b"1"}
    replaced.write(0, b"nothing of this")
    replaced.publish()
    new.write(1, b"2")
    new.publish()
    assert w.objects() == {"b": b"12"}
    assert replaced.read(0, 100) == b"nothing of this"
    new.release()
    replaced.release()

    def fails(keys: object) -> None:
        raise TryAgainError("no")

    w.store.inner.delete = fails  # type: ignore[method-assign]
    w.staging.rename("/d/b", "/d/c")
    assert w.staging.hides("/d/b")
    for path in ("/d/b", "/d/c"):
        with pytest.raises(TryAgainError):
            w.staging.create(path, FILE)
    w.store.inner.delete = delete  # type: ignore[method-assign]
    assert w.staging.drain(10)
    assert w.objects() == {"c": b"12"}
    assert not w.staging.hides("/d/b")


def test_t10_renaming_a_folder(w: World):
    for name in "ab":
        w.write(f"/d/old/{name}", name.encode())
    copy, shown = w.store.inner.copy, set[tuple[bool, bool]]()

    def watched(source: str, target: str, **kw: object) -> None:
        shown.add((w.staging.hides("/d/old/a"), w.staging.hides("/d/new/a")))
        copy(source, target)
        w.store.inner.put("old/other", b"another's")

    w.store.inner.copy = watched  # type: ignore[method-assign]
    w.staging.rename("/d/old", "/d/new")
    assert shown == {(False, True)}
    assert w.objects() == {"new/a": b"a", "new/b": b"b", "old/other": b"another's"}

    def fails(source: str, target: str, **kw: object) -> None:
        raise TryAgainError("no")

    w.store.inner.copy = fails  # type: ignore[method-assign]
    before = w.objects()
    with pytest.raises(TryAgainError):
        w.staging.rename("/d/new", "/d/newer")
    assert w.objects() == before
    with refused(errno.ENOTEMPTY):
        w.staging.rename("/d/new", "/d/old")
    w.ns.attach("/d/new/in", f"memory://{secrets.token_hex(8)}")
    with refused(errno.EBUSY):
        w.staging.rename("/d/new", "/d/newer")
    # killed at any instant: tests/unit/mount/write_back/test_staging.py


def test_t11_between_stores(w: World):
    w.ns.attach("/e", f"memory://{secrets.token_hex(8)}")
    w.write("/d/f", b"1")
    with refused(errno.EXDEV):
        w.staging.rename("/d/f", "/e/f")
    assert w.objects() == {"f": b"1"}
    # what mv makes of it: tests/integration/test_mount_posix.py


def test_t12_unlink(w: World):
    w.write("/d/f", b"1")
    file = w.staging.open("/d/f", None, truncate=False, attrs=FILE)
    w.staging.unlink("/d/f")
    assert w.objects() == {}
    file.write(1, b"2")
    file.publish()
    assert file.read(0, 10) == b"12"
    file.release()
    assert w.objects() == {}


def test_t13_folders(w: World, s3: World, tmp_path: Path):
    s3.staging.mkdir("/d/a", FOLDER)
    assert s3.objects() == {"a/": b""}
    s3.staging.rmdir("/d/a")
    assert s3.objects() == {}
    (tmp_path / "data").mkdir()
    with world(tmp_path / "3", f"file://{tmp_path}/data") as disk:
        disk.staging.mkdir("/d/a", FOLDER)
        assert (tmp_path / "data" / "a").is_dir()
    w.staging.mkdir("/d/a", FOLDER)
    assert w.objects() == {}
    again = w.crash()
    again.recover()
    assert again.made("/d/a") is not None
    w.write("/d/a/b/f", b"1")
    with refused(errno.ENOTEMPTY):
        again.rmdir("/d/a")
    again.unlink("/d/a/b/f")
    assert again.made("/d/a/b") is not None
    again.rmdir("/d/a/b")
    again.rmdir("/d/a")
    assert again.made("/d/a") is None


def test_t14_links(w: World):
    w.staging.symlink("/d/name", "../where")
    assert w.objects() == {"name.rclonelink": b"../where"}
    assert link_path("/d/name") == "/d/name.rclonelink"


def test_t15_attributes(s3: World, tmp_path: Path):
    s3.store.put("f", b"1", metadata={"colour": "blue"})
    file = s3.staging.open("/d/f", None, truncate=False, attrs=FILE)
    file.write(0, b"2")
    file.set_attributes(Attributes(0o100600, 7, 8, 1_500_000_000_000_000_001))
    file.publish()
    file.release()
    wanted = {"colour": "blue", "mode": "33152", "uid": "7", "gid": "8", "mtime": "1500000000.000000001"}
    assert s3.store.describe("f").metadata == wanted
    s3.staging.set_attributes("/d/f", Attributes(uid=9))
    assert s3.store.describe("f").metadata == {**wanted, "uid": "9"}
    (tmp_path / "data").mkdir()
    with world(tmp_path / "2", f"file://{tmp_path}/data") as disk:
        disk.write("/d/f", b"1")
        disk.staging.set_attributes("/d/f", Attributes(uid=9))
        assert disk.objects() == {"f": b"1"}


@pytest.mark.parametrize("mount", [False, True])
def test_t16_read_only(tmp_path: Path, mount: bool):
    options = StagingOptions(read_only=mount)
    with world(tmp_path, f"memory://{secrets.token_hex(8)}", options=options, read_only=not mount) as made:
        for wrong in (
            lambda: made.staging.create("/d/f", FILE),
            lambda: made.staging.unlink("/d/f"),
            lambda: made.staging.rename("/d/f", "/d/g"),
            lambda: made.staging.mkdir("/d/f", FOLDER),
            lambda: made.staging.set_attributes("/d/f", FILE),
        ):
            with pytest.raises(ReadOnlyError) as caught:
                wrong()
            assert errno_of(caught.value) == errno.EROFS
        assert made.store.calls == []


def test_t17_a_full_disk(w: World):
    file = w.staging.create("/d/f", FILE)
    file.write(0, b"before")
    with files_up_to(50_000):
        with pytest.raises(NoRoomError) as caught:
            file.write(49_990, b"x" * 100)
        assert errno_of(caught.value) == errno.ENOSPC
        assert file.read(0, 6) == b"before"
    file.truncate(6)
    file.publish()
    file.release()
    assert w.objects() == {"f": b"before"}


def test_t18_one_live_mount(w: World):
    with pytest.raises(InputError):
        Staging(str(w.folder), w.ns)
    w.staging.close()
    Staging(str(w.folder), w.ns).close()
    # after kill -9: tests/stress/test_staging_kills.py


def test_t19_names_that_the_store_cannot_hold(w: World, s3: World):
    def refuses(made: World, path: str, code: int) -> None:
        for wrong in (
            lambda: made.staging.create(path, FILE),
            lambda: made.staging.mkdir(path, FOLDER),
            lambda: made.staging.symlink(path, "target"),
            lambda: made.staging.rename("/d/old", path),
        ):
            with pytest.raises(NameRefusedError) as caught:
                wrong()
            assert errno_of(caught.value) == code
        assert made.store.calls == []

    refuses(w, "/d/a\nb", errno.EINVAL)
    refuses(s3, f"/d/{key_of(1025)}", errno.ENAMETOOLONG)
    s3.store.put(f"a/{key_of(1022)}", b"1")
    with pytest.raises(NameTooLongError):
        s3.staging.rename("/d/a", "/d/ab")
    assert s3.objects() == {f"a/{key_of(1022)}": b"1"}
    # more of each: tests/unit/mount/write_back/test_staged_names.py
