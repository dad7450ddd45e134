"""The cache's disk full, failing, read-only, or without power, on a real ext4 of its own."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest

from headrace.base.errors import DeniedError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings
from headrace.cache import Cache, Fill
from tests.cache_kit import MB, content, entry_file, fill, loop_mount, named, open_cache, remount, unmount, worker

_SHUTDOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_LOG = 2


def shut_down(mountpoint: Path) -> None:
    """From now on every access fails with EIO, and what has not reached the disk never will: a power loss."""
    fd = os.open(mountpoint, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG))
    finally:
        os.close(fd)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "headrace.cache"]


def test_a_full_disk_evicts_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk, size=1000 * MB)  # far more than the disk has
        kept = 0
        for number in range(300):
            name, label = named(cache, f"k{number}", 100_000)
            kept += cache.fill(name, content(f"k{number}", 100_000), label)
        assert kept > 200, "what was evicted made room for what followed"
        assert cache.enabled
        assert cache.filling
        assert cache.status().evicted > 50
        report = cache.verify()
        assert report.bad == []
        assert report.checked > 50
        assert warnings_in(caplog) == []
        cache.close()


def test_a_full_disk_evicts_and_goes_on_where_many_are_filled_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk, size=1000 * MB)
        last: list[Fill] = []
        for start in range(0, 600, 50):
            named_now = [(f"k{number}", *named(cache, f"k{number}", 50_000)) for number in range(start, start + 50)]
            last = [Fill(name, memoryview(content(key, 50_000)), label) for key, name, label in named_now]
            cache.fill_many(last)
        cache.settle()
        assert cache.filling
        assert cache.status().evicted > 100
        assert sum(cache.holds(fill.name) for fill in last) > 25, "the last ones found room too"
        report = cache.verify()
        assert report.bad == []
        assert report.checked > 100
        assert warnings_in(caplog) == []
        cache.close()


def test_a_disk_that_fails_while_many_are_filled_together_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk)
        fills = [
            Fill(name, memoryview(bytes(5000)), label)
            for name, label in (named(cache, f"k{n}", 5000) for n in range(40))
        ]
        cache.fill_many(fills[:20])
        shut_down(disk)
        cache.fill_many(fills)
        assert not cache.filling
        assert len(warnings_in(caplog)) == 1
        cache.close()


def test_a_disk_filled_by_others_is_left_alone(tmp_path: Path) -> None:
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk, size=1000 * MB, min_free=5 * MB)
        names = [fill(cache, f"k{number}", 100_000) for number in range(40)]
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        (disk / "others").write_bytes(bytes(free - 2 * MB))
        late, label = named(cache, "late", 100_000)
        cache.fill(late, content("late", 100_000), label)
        left = os.statvfs(disk)
        assert left.f_bavail * left.f_frsize >= 5 * MB, "the cache gave back what the disk was short of"
        assert 0 < sum(cache.path(name) is not None for name in names) < 40
        cache.close()


def test_a_failing_disk_is_switched_off_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk)
        names = [fill(cache, f"k{number}", 5000) for number in range(20)]
        shut_down(disk)
        for name in names:
            assert cache.read(name) is None
            other, label = named(cache, f"not {name}", 5000)
            assert not cache.fill(other, content("x", 5000), label)
            assert cache.blocks(name, 5000, label) is None
        assert not cache.enabled
        assert cache.claim(names[0]) is None
        assert "Input/output error" in str(cache.status().reason)
        assert 1 <= len(warnings_in(caplog)) <= 2, "once for filling, once for reading"
        cache.close()


def test_after_a_power_loss_nothing_wrong_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 20 * 4096
    with loop_mount(tmp_path, 64) as disk:
        cache = open_cache(disk, size=50 * MB)
        for number in range(60):
            fill(cache, f"safe{number}", 10_000)
        os.sync()
        for number in range(120):
            fill(cache, f"late{number}", 10_000)
        name, label = named(cache, "big", size)
        entry = cache.blocks(name, size, label)
        assert entry is not None
        entry.write(0, content("big", size)[: 10 * 4096])
        # The journal commits, with the names in it; the bytes of most files have not been written.
        fd = os.open(disk / "other", os.O_WRONLY | os.O_CREAT)
        os.fsync(fd)
        os.close(fd)
        entry.close()
        cache.close()
        shut_down(disk)
        unmount(disk)
        remount(tmp_path / "disk.img", disk)
        monkeypatch.setattr("headrace.cache.reading.boot_time", lambda: os.stat(disk / "other").st_ctime + 3600)
        monkeypatch.setattr("headrace.cache.blocks.boot_id", lambda: "another-boot")
        booted = open_cache(disk, size=50 * MB)
        torn = 0
        for number in range(120):
            key = f"late{number}"
            data = booted.read(named(booted, key, 10_000)[0])
            torn += data is None
            assert data is None or data == content(key, 10_000)
        for number in range(60):
            key = f"safe{number}"
            assert booted.read(named(booted, key, 10_000)[0]) == content(key, 10_000)
        part = booted.read_range(name, 0, 10 * 4096)
        assert part is None or part == content("big", size)[: 10 * 4096]
        assert torn, "the test did lose something"
        assert booted.verify().bad == []
        booted.close()


def test_a_read_only_disk_is_read_and_not_filled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk)
        name = fill(cache, "k", 5000)
        cache.close()
        unmount(disk)
        remount(tmp_path / "disk.img", disk, "ro")
        cache = Cache.open(CacheSettings(dir=str(disk), size=MB, min_free=0))
        assert cache.read(name) == content("k", 5000)
        other, label = named(cache, "other", 5000)
        assert not cache.fill(other, content("other", 5000), label)
        assert cache.blocks(other, 5000, label) is None
        assert (cache.enabled, cache.filling) == (True, False)
        assert cache.status().entries == 1
        with pytest.raises(DeniedError, match="Read-only file system"):
            cache.pin([name])
        assert len(warnings_in(caplog)) == 1
        cache.close()


def test_a_disk_gone_read_only_while_in_use(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As ext4 does with `errors=remount-ro`, which the kernel's own trigger for tests brings about."""
    with loop_mount(tmp_path, 16) as disk:
        cache = open_cache(disk)
        name = fill(cache, "k", 5000)
        device = os.path.basename(subprocess.check_output(["findmnt", "-no", "SOURCE", disk], text=True).strip())
        subprocess.run(["mount", "-o", "remount,errors=remount-ro", disk], check=True)
        Path(f"/sys/fs/ext4/{device}/trigger_fs_error").write_text("on purpose")
        with pytest.raises(OSError, match="Read-only"):
            (disk / "probe").touch()
        for number in range(10):
            other, label = named(cache, f"k{number}", 4000)
            assert not cache.fill(other, content(f"k{number}", 4000), label)
        assert cache.read(name) == content("k", 5000)
        assert not cache.filling
        assert len(warnings_in(caplog)) == 1
        cache.close()


def test_entries_that_cannot_be_read_switch_it_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Needs no privilege: a shard that is no folder."""
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(8)]
    for shard in (tmp_path / "v1" / "objects").iterdir():
        shard.rename(shard.with_suffix(".away"))
        shard.write_text("not a folder")
    for name in names:
        assert cache.read(name) is None
    assert not cache.enabled
    assert len(warnings_in(caplog)) == 1
    assert cache.status().errors == 4


def test_a_file_size_limit_is_no_room(tmp_path: Path) -> None:
    """Needs no privilege: the limit makes a write fail half way through."""
    script = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
cache = open_cache(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
name, label = named(cache, "large", 100_000)
assert not cache.fill(name, content("large", 100_000), label)
assert cache.read(name) is None
assert cache.enabled and cache.filling
for number in range(20):
    fill(cache, f"k{number}", 5000)
assert cache.verify().bad == []
"""
    with worker(script, tmp_path) as process:
        assert process.wait(60) == 0
    assert open_cache(tmp_path).status().entries == 20


@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_folder_without_permission(tmp_path: Path, mode: int) -> None:
    """Unreadable: off, and a clear error for who asks. Unwritable and empty: the same."""
    folder = tmp_path / "c"
    folder.mkdir(mode=mode)
    script = """
import logging
from headrace.base.errors import DeniedError
from headrace.base.settings import CacheSettings
from headrace.cache import Cache, Fill
from tests.rights import bound_by_modes
with bound_by_modes():
    try:
        open_cache(sys.argv[1])
    except DeniedError as error:
        print(error)
    cache = Cache.open(CacheSettings(dir=sys.argv[1]))
    assert not cache.enabled and cache.read("0" * 32 + "-1") is None
"""
    with worker(script, folder) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        assert process.wait(60) == 0
    assert "the cache folder cannot be used: Permission denied" in said
    assert str(folder) in said
    assert "HEADRACE_CACHE_DIR" in said
    folder.chmod(0o700)


def test_out_of_descriptors_is_not_the_disks_fault(tmp_path: Path) -> None:
    cache = Cache.open(CacheSettings(dir=str(tmp_path), size=MB, min_free=0), Metrics())
    name = fill(cache, "k", 5000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        for _ in range(10):
            assert cache.read(name) is None
            other, label = named(cache, "other", 10)
            assert not cache.fill(other, content("other", 10), label)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert cache.enabled
    assert cache.read(name) == content("k", 5000)


def test_killed_at_any_instant(tmp_path: Path) -> None:
    """Ten writers in turn, each killed in the midst of filling: every entry is whole, and nothing stays behind."""
    script = """
cache = open_cache(sys.argv[1], size=3 * MB)
size = 20 * 4096
print("ready", flush=True)
for number in range(10**9):
    key = f"k{random.randrange(200)}"
    name, label = named(cache, key, 30_000)
    if cache.read(name) is None:
        cache.fill(name, content(key, 30_000), label)
    big = f"big{random.randrange(4)}"
    name, label = named(cache, big, size)
    entry = cache.blocks(name, size, label)
    if entry is not None:
        with entry:
            for start, stop in entry.missing()[:1]:
                entry.write(start, content(big, size)[start:start + 4096])
"""
    for turn in range(10):
        with worker(script, tmp_path) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                process.wait(0.005 + 0.02 * turn)
            except Exception:
                process.send_signal(signal.SIGKILL)
    for path in (tmp_path / "v1" / "tmp").rglob("*"):
        os.utime(path, (time.time() - 3600,) * 2)  # nobody alive has moved it there just now
    cache = open_cache(tmp_path, size=3 * MB)
    report = cache.verify()
    assert report.bad == []
    assert report.checked > 0
    node = next((tmp_path / "v1" / "tmp").iterdir())
    assert [path for path in node.rglob("*") if path.is_file() and path.name != "owners"] == []
    for number in range(200):
        name, label = named(cache, f"k{number}", 30_000)
        assert cache.read(name) in (None, content(f"k{number}", 30_000))
        assert cache.fill(name, content(f"k{number}", 30_000), label)
    for number in range(4):
        name, label = named(cache, f"big{number}", 20 * 4096)
        entry = cache.blocks(name, 20 * 4096, label)
        assert entry is not None
        with entry:
            there = set(range(20)) - {n for a, b in entry.missing() for n in range(a // 4096, -(-b // 4096))}
            for index in there:
                piece = content(f"big{number}", 20 * 4096)[index * 4096 : (index + 1) * 4096]
                assert entry.read(index * 4096, (index + 1) * 4096) == piece
    assert entry_file(cache, name).parent.parent.parent.is_dir()
    assert sum(p.stat().st_blocks * 512 for p in (tmp_path / "v1").rglob("*") if p.is_file()) <= 3 * MB + 65536
