"""kill -9 of the mount's daemon: what was closed or fsynced is there after the next mount, byte for byte.

Each test also shows that it proves something: data lay in staging when the daemon died.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import NotFoundError
from headrace.store import Store
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import COMMAND, Rig, faults_before, line, only_a_mount, python, rigged, wait_for

pytestmark = pytest.mark.server

WRITER = """
import hashlib, os, random, sys
folder, seed = sys.argv[1], int(sys.argv[2])
rng = random.Random(seed)
kept = os.open(os.path.join(folder, "kept-open"), os.O_WRONLY | os.O_CREAT)
so_far = hashlib.sha256()
total = number = 0

def put(descriptor, data):
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view):]

while True:
    data = rng.randbytes(rng.choice([0, 1, 5_000, 100_000, 700_000, 6_000_000]))
    name = f"f{number:04d}"
    path = os.path.join(folder, name)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    put(descriptor, data)
    os.close(descriptor)
    print("whole", name, len(data), hashlib.sha256(data).hexdigest(), flush=True)
    if number % 4 == 1:
        os.rename(path, path + "-moved")
        print("moved", name, len(data), hashlib.sha256(data).hexdigest(), flush=True)
    if number % 4 == 2:
        os.unlink(path)
        print("removed", name, flush=True)
    part = rng.randbytes(50_000)
    put(kept, part)
    so_far.update(part)
    total += len(part)
    if number % 3 == 0:
        os.fsync(kept)
        print("synced", "kept-open", total, so_far.hexdigest(), flush=True)
    number += 1
"""


@pytest.mark.parametrize(("seed", "lines"), [(1, 6), (2, 25), (3, 60)])
def test_what_was_closed_or_synced_outlives_kill_9(seed: int, lines: int, seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    with rigged(seaweedfs) as rig:
        with python(WRITER, rig.folder, seed) as writer:
            told = [line(writer.stdout) for _ in range(lines)]
            rig.kill()
            rest, _ = writer.communicate(timeout=30)
        told += rest.splitlines()
        assert all(told), "the writer failed before the daemon was killed"
        staged = rig.staged()
        assert any(size for size in staged.values()), "nothing was staged at the kill: this proves nothing"
        rig.wipe()
        rig.start()
        _check(Path(rig.folder), told)
        rig.restart(wipe=True)
        _check(Path(rig.folder), told)
        assert not any(rig.staged().values()), "recovered files stay in staging"


def _check(folder: Path, told: list[str]) -> None:
    """Every promise that the writer was given holds. What it was just about to do may be done, or not."""
    expected: dict[str, tuple[int, str] | None] = {}
    doing, about = told[-1].split()[:2]
    if doing == "whole" and about.startswith("f"):
        number = int(about[1:])
        if number % 4 == 1 and (folder / f"{about}-moved").exists():
            told = [*told, told[-1].replace("whole", "moved", 1)]
        if number % 4 == 2 and not (folder / about).exists():
            told = [*told, f"removed {about}"]
    for what, name, *more in (one.split() for one in told):
        if what == "removed":
            expected[name] = None
        elif what == "moved":
            expected[name + "-moved"], expected[name] = (int(more[0]), more[1]), None
        else:
            expected[name] = (int(more[0]), more[1])
    for name, content in expected.items():
        if content is None:
            # the writer may have been killed by the error of the very next step: only names it went on from count
            assert not (folder / name).exists(), name
            continue
        data = (folder / name).read_bytes()
        size, digest = content
        if name == "kept-open":  # more may have been written since the last fsync
            assert len(data) >= size
            data = data[:size]
        assert (len(data), hashlib.sha256(data).hexdigest()) == (size, digest), name


CLOSER = """
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
with open(path, "wb") as file:
    for number in range(size >> 20):
        file.write(bytes([number % 256]) * (1 << 20))
    file.flush()
    print("closing", flush=True)
print("closed", flush=True)
"""


def test_killed_while_a_large_file_is_published_leaves_it_whole(seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    size = 96 << 20
    with rigged(seaweedfs) as rig:
        with python(CLOSER, os.path.join(rig.folder, "large"), size) as writer:
            assert line(writer.stdout) == "closing"
            store = rig.store()
            assert wait_for(lambda: store.unfinished("large"), 20), "its publication did not begin"
            rig.kill()
            assert "closed" not in writer.communicate(timeout=30)[0], "killed too late: this proves nothing"
        assert max(rig.staged().values(), default=0) == size, "it was not staged: this proves nothing"
        rig.wipe()
        rig.start()
        # it had not been closed: it is published, or kept whole for its owner; what is in the store is never torn
        rig.restart(wipe=True)
        path = Path(rig.folder, "large")
        if not path.exists():
            assert list(rig.left().values()) == [size]
            path = rig.staging / next(iter(rig.left()))
        with open(path, "rb") as file:
            for number in range(size >> 20):
                assert file.read(1 << 20) == bytes([number % 256]) * (1 << 20), f"MiB {number}"
            assert file.read() == b""
        Path(rig.folder, "after").write_bytes(b"the next write")
        assert wait_for(lambda: not store.unfinished("large"), 30), "parts of the killed publication are left"


HOLDER = """
import os, sys
folder, edited = sys.argv[1:]
held = []
for name in ("same", "begins", "other", "moved"):
    held.append(open(os.path.join(folder, name), "wb", buffering=0))
    held[-1].write(name.encode() * 100)
for name in ("edited", "edited-too"):
    held.append(open(os.path.join(folder, name), "r+b", buffering=0))
    held[-1].seek(int(edited))
    held[-1].write(b"edited")
held.append(open(os.path.join(folder, "cut"), "r+b", buffering=0))
held[-1].truncate(5 << 20)
held[-1].truncate(20 << 20)
print("open", flush=True)
sys.stdin.read()
"""


def test_what_was_open_at_a_kill_is_kept_until_it_is_in_the_store_or_taken_away(seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    content, edited = os.urandom(1 << 20) * 20, 9 << 20

    def fill(rig: Rig) -> None:
        for name in ("edited", "edited-too", "cut"):
            rig.store().put(name, content)

    with rigged(seaweedfs, before=fill) as rig:
        folder = Path(rig.folder)
        with python(HOLDER, folder, edited) as holder:
            assert line(holder.stdout) == "open", holder.stderr
            rig.kill()
        rig.start()
        names = {"same", "begins", "other", "moved", "edited", "edited-too", "cut"}
        left = {each["path"].rpartition("/")[2]: each for each in _live(rig)["left"]}
        assert left.keys() == names, rig.log()
        assert {name: left[name]["bytes"] for name in ("same", "edited")} == {"same": 400, "edited": 20 << 20}
        # of an edited object all but the block that was touched is missing; what it was extended by is not
        assert {name: left[name]["absent"] for name in names} == {
            **dict.fromkeys(names, 0), "edited": 16 << 20, "edited-too": 16 << 20, "cut": 5 << 20,
        }  # fmt: skip
        rig.kill()  # that much is kept, whatever comes
        rig.wipe()
        rig.start()
        assert {each["path"].rpartition("/")[2] for each in _live(rig)["left"]} == names
        (folder / "same").write_bytes(b"same" * 100)
        (folder / "begins").write_bytes(b"begins" * 101)
        (folder / "other").write_bytes(b"somebody else's" * 100)
        (folder / "edited").write_bytes(content[:edited] + b"edited" + content[edited + 6 :])
        (folder / "edited-too").write_bytes(content)
        shutil.move(left["moved"]["file"], folder / "moved")

        assert "moved" not in {each["path"].rpartition("/")[2] for each in _live(rig)["left"]}
        rig.restart(wipe=True)

        def remaining() -> set[str]:
            return {each["path"].rpartition("/")[2] for each in _live(rig)["left"]}

        assert wait_for(lambda: remaining() == {"other", "edited-too", "cut"}, 60), (remaining(), rig.log())
        assert (folder / "moved").read_bytes() == b"moved" * 100
        assert Path(left["other"]["file"]).read_bytes() == b"other" * 100
        assert len(rig.left()) == 3


def _live(rig: Rig) -> dict[str, Any]:
    """What ``headrace mounts --live`` tells of the mount."""
    command = [*COMMAND, "mounts", "--live", "--json"]
    told = subprocess.run(command, env={**os.environ, **rig.environment}, capture_output=True, timeout=60, check=True)
    (found,) = json.loads(told.stdout)
    return found


RENAMER = """
import os, sys
print("renaming", flush=True)
os.rename(sys.argv[1], sys.argv[2])
print("renamed", flush=True)
"""


def test_killed_while_a_folder_is_renamed_leaves_every_file_once(seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    count = 300

    def fill(rig: Rig) -> None:
        store = rig.store()
        for number in range(count):
            store.put(f"old/{number:03d}", str(number).encode())

    with rigged(seaweedfs, before=fill) as rig:
        old, new, store = Path(rig.folder, "old"), Path(rig.folder, "new"), rig.store()
        with python(RENAMER, old, new) as renamer:
            assert line(renamer.stdout) == "renaming"
            # as soon as a copy is there
            assert wait_for(lambda: len(_keys(store, "new/")) > 1, 20)  # one may be the marker
            rig.kill()
            done = "renamed" in renamer.communicate(timeout=30)[0]
        assert not done, "killed too late: this proves nothing"
        rig.wipe()
        rig.start()
        # what was begun is finished
        assert wait_for(lambda: (_count(old), _count(new)) == (0, count), 30), (_count(old), _count(new), rig.log())
        assert {path.name: path.read_text() for path in new.iterdir()} == {f"{n:03d}": str(n) for n in range(count)}
        rig.stop()
        keys = [*_keys(store, "old/"), *_keys(store, "new/")]
        assert len([key for key in keys if not key.endswith("/")]) == count


def _keys(store: Store, prefix: str) -> list[str]:
    return [info.key for page in store.list(prefix) for info in page]


def _count(folder: Path) -> int:
    try:
        return len(os.listdir(folder))
    except FileNotFoundError:
        return 0


def test_what_is_written_on_through_a_dead_mount_is_published_too(seaweedfs: EmbeddedS3) -> None:
    """The kernel takes it where it had the file itself: the next mount's cache must not have that file as it was."""
    only_a_mount()
    with faults_before(seaweedfs) as way, rigged(seaweedfs, AWS_ENDPOINT_URL_S3=way.endpoint) as rig:
        path, content = Path(rig.folder, "a"), bytearray(b"A" * 100_000)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        try:
            os.write(descriptor, content)
            way.plan = Plan((Fault(Kind.EXPIRED, operations=frozenset({"put"})),))
            with pytest.raises(OSError):
                os.fsync(descriptor)
            rig.kill()
            way.plan = Plan(())
            rig.start()
            assert wait_for(lambda: _published(rig, "a") == content, 20), rig.log()
            assert path.read_bytes() == content
            with contextlib.suppress(OSError):
                os.pwrite(descriptor, b"Z", 0)
                content[0] = ord("Z")
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        assert wait_for(lambda: _published(rig, "a") == content, 20), rig.log()
        assert wait_for(lambda: not any(rig.staged().values()), 20), "it is the cache's"
        assert path.read_bytes() == content


def _published(rig: Rig, name: str) -> bytes | None:
    try:
        return bytes(rig.store().get(name).data)
    except NotFoundError:
        return None


def test_a_dead_mount_answers_enotconn_and_the_next_mount_takes_its_place(seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    with rigged(seaweedfs) as rig:
        Path(rig.folder, "a").write_text("a")
        rig.kill()
        with pytest.raises(OSError) as caught:
            os.listdir(rig.folder)
        assert caught.value.errno == errno.ENOTCONN
        rig.start()
        assert Path(rig.folder, "a").read_text() == "a"
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        assert sum(one.split()[1] == rig.folder for one in mounts) == 1, "the dead mount lies below the new one"


def test_sigterm_drains_and_unmounts(seaweedfs: EmbeddedS3) -> None:
    only_a_mount()
    with rigged(seaweedfs) as rig:
        descriptor = os.open(Path(rig.folder, "open"), os.O_WRONLY | os.O_CREAT)
        try:
            os.write(descriptor, b"x" * 100_000)
            assert rig.process is not None
            os.kill(rig.process.pid, signal.SIGTERM)
            rig.gone()
            assert not os.path.ismount(rig.folder)
            assert rig.store().get("open").data == b"x" * 100_000
            with pytest.raises(OSError):  # with passthrough the kernel still takes the write: fsync says it is lost
                _write_and_sync(descriptor)
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _write_and_sync(descriptor: int) -> None:
    os.write(descriptor, b"y")
    os.fsync(descriptor)
