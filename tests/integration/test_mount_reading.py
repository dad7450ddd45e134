"""Reading through a real mount of a real bucket: contents, freshness, what it costs, and what is left afterwards."""

from __future__ import annotations

import errno
import json
import os
import random
import shlex
import stat
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.mount import unmount
from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import COMMAND, PLAIN, Rig, rigged, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(PLAIN, reason="a plain folder has no store behind it")]

MIB = 1 << 20
FILES = {
    "small/one.bin": random.Random(1).randbytes(110_000),
    "small/two.bin": random.Random(2).randbytes(110_001),
    "empty": b"",
    "deep/er/and/é ü.txt": "ça".encode(),
    "middle.bin": random.Random(3).randbytes(3 * MIB + 7),
    "large.bin": random.Random(4).randbytes(MIB) * 41 + b"the end",
}


def _fill(rig: Rig) -> None:
    store = rig.store()
    for key, data in FILES.items():
        store.put(key, data)
    store.put("points.rclonelink", b"small/one.bin")
    store.put("both", b"a file under a folder's name")
    store.put("both/inside", b"seen")


@pytest.fixture(scope="module", params=["", "no_passthrough", "ro,no_open"])
def mount(request: pytest.FixtureRequest, seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, options=request.param, before=_fill, HEADRACE_CACHE_TTL="1h") as rig:
        yield rig


def _stat(rig: Rig, name: str) -> float:
    return float(rig.stats().get(name, 0))


def test_files_read_as_they_are_cold_and_warm(mount: Rig) -> None:
    for _ in range(3):
        for name, data in FILES.items():
            assert Path(mount.folder, name).read_bytes() == data, name
    assert os.readlink(Path(mount.folder, "points")) == "small/one.bin"
    assert Path(mount.folder, "points").read_bytes() == FILES["small/one.bin"]
    # the statistics file itself is open; without OPEN, what is kept at hand goes after 10 to 20 s
    assert wait_for(lambda: _stat(mount, "mount.open_files") <= 1, 30)


def test_listings_show_what_is_there(mount: Rig) -> None:
    assert sorted(os.listdir(mount.folder)) == sorted(
        ["both", "deep", "empty", "large.bin", "middle.bin", "points", "small"]
    )
    assert os.listdir(Path(mount.folder, "both")) == ["inside"], "a folder hides the file of its name"
    status = os.stat(Path(mount.folder, "middle.bin"))
    assert (status.st_size, stat.S_ISREG(status.st_mode), status.st_nlink) == (len(FILES["middle.bin"]), True, 1)
    assert abs(status.st_mtime - mount.store().head("middle.bin").mtime_us / 1e6) < 1
    assert stat.S_ISDIR(os.stat(Path(mount.folder, "deep/er")).st_mode)
    assert stat.S_ISLNK(os.lstat(Path(mount.folder, "points")).st_mode)
    with pytest.raises(FileNotFoundError):
        os.stat(Path(mount.folder, "absent"))


def test_no_head_for_what_a_listing_told(mount: Rig) -> None:
    for name in FILES:
        os.stat(Path(mount.folder, name))
        Path(mount.folder, name).read_bytes()
    assert _stat(mount, "fetch.heads") == 0


def test_passthrough_where_it_is_allowed(mount: Rig) -> None:
    path = Path(mount.folder, "middle.bin")
    path.read_bytes()
    allowed = bool(_stat(mount, "mount.passthrough"))
    assert allowed == (os.geteuid() == 0 and not mount.options), "said at start"
    with path.open("rb") as file:
        if allowed and wait_for(lambda: _stat(mount, "mount.backing_ids") > 0 or file.closed, 0):
            assert _stat(mount, "mount.open_by_kernel") >= 1
        assert file.read() == FILES["middle.bin"]


def test_an_open_file_stays_what_it_was(mount: Rig) -> None:
    """And the next open, once the mount looks anew, sees what is there."""
    store = mount.store()
    path = mount.show("changing", b"a" * 300_000)
    with path.open("rb", buffering=0) as before:
        assert before.read(1000) == b"a" * 1000
        store.put("changing", b"b" * 200_000)
        mount.refresh()
        assert wait_for(lambda: os.stat(path).st_size == 200_000, 5), mount.told()
        with path.open("rb") as after:
            assert after.read() == b"b" * 200_000
        assert before.read(400_000) == b"a" * 299_000
    store.delete(["changing"])
    mount.refresh()
    assert wait_for(lambda: not path.exists(), 5)


@pytest.mark.parametrize("mount", ["", "no_passthrough"], indirect=True)
def test_an_object_that_changed_unseen_is_read_whole_in_its_new_version(mount: Rig) -> None:
    """The listing is still trusted, so the open meets another version than it told of: never a mixture, no error.

    Without OPEN the first read is refused: `test_mount_unopened`.
    """
    store = mount.store()
    path = mount.show("unseen", b"old" * 1000)
    store.put("unseen", b"new!" * 1000)
    assert path.read_bytes() == b"new!" * 1000
    store.delete(["unseen"])
    mount.refresh()


def test_random_reads_of_a_large_object_fetch_little(mount: Rig) -> None:
    data = random.Random(9).randbytes(MIB) * 48
    path = mount.show("random.bin", data)
    before = _stat(mount, "fetch.bytes")
    with path.open("rb", buffering=0) as file:
        for offset in (40 * MIB + 5, 3 * MIB, 22 * MIB + 4095, 33 * MIB):
            file.seek(offset)
            assert file.read(4096) == data[offset : offset + 4096]
    assert _stat(mount, "fetch.bytes") - before < 3 * MIB
    # Without OPEN nobody says that he has closed it: what is at hand goes with the sweep after the next, every 10 s.
    assert wait_for(lambda: _stat(mount, "mount.stream_bytes") == 0, 30), mount.told()


def test_what_does_not_exist_is_asked_for_once(mount: Rig) -> None:
    folder = Path(mount.folder, "small")
    os.listdir(folder)
    before = _stat(mount, "mount.lookups_asked")
    for _ in range(50):
        assert not (folder / "nothing").exists()
    assert _stat(mount, "mount.lookups_asked") == before


def test_a_large_folder_takes_no_objects(seaweedfs: EmbeddedS3) -> None:
    names = [f"k{number:05d}" for number in range(2500)]

    with rigged(seaweedfs, before=_walk_of([f"many/{name}" for name in names])) as rig:
        folder = Path(rig.folder, "many")
        assert sorted(os.listdir(folder)) == names
        assert {entry.name: entry.stat().st_size for entry in os.scandir(folder)} == dict.fromkeys(names, 1)
        assert rig.stats()["mount.nodes"] < 10
        assert rig.stats()["fetch.heads" if "fetch.heads" in rig.stats() else "mount.nodes"] < 10
        began = rig.stats()["mount.listings"]
        for name in names[::25]:
            assert (folder / name).read_bytes() == b"x"
        assert rig.stats()["mount.listings"] == began


def test_refused(mount: Rig) -> None:
    path = Path(mount.folder, "middle.bin")
    for call in (lambda: os.listxattr(path), lambda: os.getxattr(path, "user.x")):
        with pytest.raises(OSError, match="not supported") as caught:
            call()
        assert caught.value.errno == errno.ENOTSUP


def _walk_of(keys: Sequence[str]) -> Callable[[Rig], None]:
    def fill(rig: Rig) -> None:
        store = rig.store()

        def put(key: str) -> None:
            store.put(key, b"x")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(put, keys))

    return fill


def test_a_walk_lists_the_next_folders_ahead_and_each_once(seaweedfs: EmbeddedS3) -> None:
    keys = [f"walk/{folder:02d}/{file:03d}" for folder in range(12) for file in range(260)]
    with rigged(seaweedfs, before=_walk_of(keys), HEADRACE_CACHE_TTL="1h") as rig:
        root = Path(rig.folder, "walk")
        names = sorted(os.listdir(root))
        before = _stat(rig, "mount.listings")
        os.listdir(root / names[1])
        assert _stat(rig, "mount.listings") == before + 1, "one folder is no walk"
        for name in names[2:5]:
            os.listdir(root / name)
        assert wait_for(lambda: _stat(rig, "mount.listings") >= before + 8, 30), "4 asked for, and at least 4 ahead"
        seen = [len(os.listdir(root / name)) for name in names]
        assert seen == [260] * 12
        assert _stat(rig, "mount.listings") == before + 12


def test_a_walk_over_small_folders_lists_many_of_them_at_once(seaweedfs: EmbeddedS3) -> None:
    names = [f"{number:02d}{tail}" for number in range(40) for tail in ("", "-b", " é")]
    keys = [f"walk/{name}/{file}" for name in names for file in range(3)]
    keys += [f"walk/{names[50]}/deep/er/{file}" for file in range(3)] + ["walk/20-a file between", "walk/zz"]
    with rigged(seaweedfs, before=_walk_of(keys), HEADRACE_CACHE_TTL="1h") as rig:
        root = Path(rig.folder, "walk")
        began = _stat(rig, "mount.listings")
        found = {
            os.path.relpath(os.path.join(folder, name), rig.folder)
            for folder, _, files in os.walk(root)
            for name in files
        }
        assert found == set(keys)
        assert _stat(rig, "mount.listings") <= began + 12, "of 123 folders"
        os.unlink(root / names[60] / "1")
        (root / names[61] / "mine").write_bytes(b"written here")
        assert sorted(os.listdir(root / names[60])) == ["0", "2"]
        assert sorted(os.listdir(root / names[61])) == ["0", "1", "2", "mine"]
        assert all(os.stat(root / name / "0").st_size == 1 for name in names)


def test_what_a_walk_listed_ahead_is_trusted_no_longer_than_the_rest(seaweedfs: EmbeddedS3) -> None:
    keys = [f"walk/{folder:02d}/{file}" for folder in range(30) for file in range(3)]
    with rigged(seaweedfs, before=_walk_of(keys), HEADRACE_CACHE_TTL="1s") as rig:
        root = Path(rig.folder, "walk")
        for name in sorted(os.listdir(root))[:10]:
            os.listdir(root / name)
        rig.store().put("walk/20/new", b"x")
        assert wait_for(lambda: "new" in os.listdir(root / "20"), 30)


def test_metrics_for_prometheus(mount: Rig) -> None:
    text = Path(mount.folder, ".headrace", "metrics").read_text()
    assert "# TYPE headrace_mount_open_files gauge" in text
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    assert all(name.startswith("headrace_") and float(value) >= 0 for name, value in lines)
    assert ".headrace" not in os.listdir(mount.folder), "found by name only: a walk does not meet it"
    assert sorted(os.listdir(Path(mount.folder, ".headrace"))) == [
        "left.json", "metrics", "pending.json", "readers.json", "stats", "stats.json",
    ]  # fmt: skip
    assert all(entry.is_file() for entry in os.scandir(Path(mount.folder, ".headrace")))


# the command line: the same whatever the options of the mount beside it


def _run(rig: Rig, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **rig.environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _live(rig: Rig) -> list[dict[str, Any]]:
    return json.loads(_run(rig, "mounts", "--live", "--json").stdout)


@contextmanager
def _second(rig: Rig, point: Path) -> Iterator[str]:
    """Another mount in the background, of a folder of the bucket; it is gone afterwards."""
    point.mkdir()
    made = _run(rig, "mount", f"s3://{rig.bucket}/small", str(point), "-o", "ro")
    assert made.returncode == 0, made.stderr
    try:
        yield str(point)
    finally:
        if os.path.ismount(point):
            unmount(str(point), lazy=True)


def _is_live(rig: Rig, point: str) -> bool:
    return point in [each["mountpoint"] for each in _live(rig)]


@pytest.mark.parametrize("mount", [""], indirect=True)
def test_background_mount_is_told_of_and_taken_away(mount: Rig, tmp_path: Path) -> None:
    with _second(mount, tmp_path / "headrace-test-second") as point:
        assert sorted(os.listdir(point)) == ["one.bin", "two.bin"], "it answers as soon as the command returns"
        assert _is_live(mount, point)
        again = _run(mount, "mount", f"s3://{mount.bucket}/", point)
        assert (again.returncode, "mounted here already" in again.stderr) == (2, True)
        with open(f"{point}/one.bin", "rb") as file:
            busy = _run(mount, "umount", point)
            assert (busy.returncode, "busy" in busy.stderr.lower()) == (2, True), busy.stderr
            assert file.read(3) == FILES["small/one.bin"][:3]
        ended = _run(mount, "umount", point)
        assert ended.returncode == 0, ended.stderr
        assert not os.path.ismount(point)
        assert not _is_live(mount, point)


@pytest.mark.parametrize("mount", [""], indirect=True)
def test_who_looks_at_the_statistics_is_waited_for(mount: Rig, tmp_path: Path) -> None:
    """As runs do that watch the mounts of their machine."""
    with _second(mount, tmp_path / "headrace-test-watched") as point:
        file = open(f"{point}/.headrace/stats.json", "rb")  # noqa: SIM115  # closed from another thread
        assert file.read()
        threading.Timer(0.3, file.close).start()
        unmount(point)
        assert wait_for(lambda: not _is_live(mount, point), 20)


@pytest.mark.parametrize("mount", [""], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["s3://{bucket}/nowhere", "{point}", "-o", "ro"], 3, "no such file or folder"),
        (["s3://no-bucket-of-that-name/nowhere", "{point}"], 3, "no such bucket"),
        (["s3://{bucket}/middle.bin", "{point}"], 2, "is a file"),
        (["s3://{bucket}/", "{point}/absent"], 3, "no such folder"),
        (["s3://{bucket}/", "{full}"], 2, "not empty"),
        (["s3://{bucket}/", "{point}", "-o", "umsak=022"], 2, "umask"),
    ],
)
def test_mistakes_are_told(mount: Rig, tmp_path: Path, arguments: list[str], code: int, says: str) -> None:
    point, full = tmp_path / "headrace-test-point", tmp_path / "full"
    point.mkdir()
    full.mkdir()
    (full / "file").touch()
    filled = [each.format(bucket=mount.bucket, point=point, full=full) for each in arguments]
    ended = _run(mount, "mount", *filled)
    assert (ended.returncode, says in ended.stderr) == (code, True), ended.stderr
    assert not os.path.ismount(point)


@pytest.mark.parametrize("mount", [""], indirect=True)
def test_a_folder_that_is_not_there_yet_can_be_mounted_to_be_written(mount: Rig, tmp_path: Path) -> None:
    point = tmp_path / "headrace-test-new"
    point.mkdir()
    made = _run(mount, "mount", f"s3://{mount.bucket}/not yet/there", str(point))
    assert made.returncode == 0, made.stderr
    try:
        assert os.listdir(point) == []
        (point / "first").write_bytes(b"1")
    finally:
        assert _run(mount, "umount", str(point)).returncode == 0
    assert bytes(mount.store().get("not yet/there/first").data) == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="mount(8) calls helpers for root only")
@pytest.mark.parametrize("mount", [""], indirect=True)
@pytest.mark.parametrize("source", ["s3://{bucket}/small", "/training-data/small", "headrace"])
def test_mount_8_mounts_what_fstab_says(mount: Rig, tmp_path: Path, source: str) -> None:
    """In a namespace of its own, where the helper lies in /sbin. A second `mount -a` finds that all is mounted."""
    point = tmp_path / "point"
    point.mkdir()
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/headrace.toml").write_text(
        f'[mounts."/training-data"]\nurl = "s3://{mount.bucket}"\n[mount]\nrun_dir = "{tmp_path}/run"\n'
    )
    program = tmp_path / "headrace"
    program.write_text(f'#!/bin/sh\nexec {" ".join(COMMAND)} "$@"\n')
    program.chmod(0o755)
    variables = {**mount.environment, "HEADRACE_PROGRAM": str(program)}
    (tmp_path / "variables").write_text("".join(f"{key}={shlex.quote(value)}\n" for key, value in variables.items()))
    named = source.format(bucket=mount.bucket)
    options = f"ro,_netdev,nofail,x-systemd.automount,env={tmp_path}/variables,config={tmp_path}/settings/headrace.toml"
    (tmp_path / "fstab").write_text(f"{named} {point} headrace {options} 0 0\n")
    below = "training-data/small/" if source == "headrace" else ""
    helper = Path(__file__).parents[2] / "scripts" / "mount.headrace"
    script = f"""
        set -e
        mount -t tmpfs none /usr/sbin
        cp {helper} /usr/sbin/mount.headrace
        mount -a -T {tmp_path}/fstab
        cat {point}/{below}one.bin
        ! touch {point}/new 2> {tmp_path}/refused
        mount -a -T {tmp_path}/fstab || echo "the second ends with $?"
        findmnt -n -o SOURCE,FSTYPE {point} >&2
        umount {point}
    """
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script],
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == FILES["small/one.bin"], done.stderr
    assert done.stderr.decode().split()[-2:] == [named, "fuse.headrace"]
    assert "Read-only" in (tmp_path / "refused").read_text()
