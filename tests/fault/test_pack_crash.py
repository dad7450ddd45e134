"""Packing that is killed at any instant, that runs twice at once, or that finds no room."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headrace.base.errors import NoRoomError
from headrace.base.settings import CacheSettings, Settings
from headrace.namespace import Namespace
from headrace.pack import PackOptions, pack
from tests.cache_kit import loop_mount
from tests.integration.cli_kit import PROGRAM, Shell, s3_shell, shell  # noqa: F401

SHARDS = 30
ARGUMENTS = ("--shard-size", "60kB", "--shuffle", "5", "--workers", "2")
SLOW = "import time\ndef slow(sample):\n    time.sleep(0.004)\n    return sample\n"


def make_tree(folder: Path) -> None:
    folder.mkdir()
    for number in range(10 * SHARDS):
        (folder / f"{number:04d}.bin").write_bytes(os.urandom(4800))


def start(shell: Shell, *arguments: str) -> subprocess.Popen[bytes]:  # noqa: F811
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(what: object, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while not what():  # type: ignore[operator]
        assert process.poll() is None, "ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.002)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tar")}


@pytest.mark.parametrize("at", [1, 7, 20])
def test_killed_with_some_shards_finished_it_goes_on_and_makes_only_the_others(
    shell: Shell,  # noqa: F811
    at: int,
) -> None:
    make_tree(shell.folder / "tree")
    shell.file("prepare.py", SLOW)
    command = ("pack", "tree", "out", *ARGUMENTS, "--map", "prepare:slow")
    out = shell.folder / "out"
    process = start(shell, *command)
    wait_for(lambda: len(list(out.glob("_pack/shards/*.json"))) >= at, process)
    process.send_signal(signal.SIGKILL)
    process.wait()

    finished = {path.stem for path in out.glob("_pack/shards/*.json")}
    assert at <= len(finished) < SHARDS, "killed too late or too early to show anything"
    assert not (out / "_pack/index.json").exists()
    before = {name: (out / f"{name}.tar").stat() for name in finished}

    ended = shell.json(*command)
    assert ended["kept"] == len(finished)
    assert ended["made"] == ended["shards"] - len(finished) > 0
    for name, status in before.items():
        now = (out / f"{name}.tar").stat()
        assert (now.st_mtime_ns, now.st_ino) == (status.st_mtime_ns, status.st_ino), "a finished shard was made again"

    shell.run("pack", "tree", "undisturbed", *ARGUMENTS, "--map", "prepare:slow")
    assert contents(out) == contents(shell.folder / "undisturbed")
    assert len(contents(out)) == ended["shards"] >= SHARDS
    ours = (".tar", ".json")
    left = [
        path.name
        for path in out.rglob("*")
        if path.is_file() and path.suffix not in ours and path.parent != out / "_pack/index"
    ]
    assert all(name.startswith(".headrace-") for name in left)  # hidden, and not in any listing


def test_killed_over_and_over_it_still_comes_to_the_same_shards(s3_shell: Shell) -> None:  # noqa: F811
    make_tree(s3_shell.folder / "tree")
    bucket = s3_shell.variables["BUCKET"]
    s3_shell.file("prepare.py", SLOW.replace("0.004", "0.03"))
    s3_shell.run("cp", "prepare.py", f"{bucket}/")  # so that there is something to list from the first look on
    command = ("pack", "tree", f"{bucket}/out", *ARGUMENTS, "--map", "prepare:slow")

    for at in (1, 4, 9):
        process = start(s3_shell, *command)
        wait_for(lambda at=at: s3_shell.run("ls", "-r", f"{bucket}/").out.count("_pack/shards/") >= at, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    s3_shell.file("prepare.py", SLOW.replace("0.004", "0"))
    packed = s3_shell.json(*command)
    assert 0 < packed["kept"] < packed["shards"], "killed too late or too early to show anything"
    s3_shell.run("cp", "-r", f"{bucket}/out", "out")
    s3_shell.run("pack", "tree", "undisturbed", *ARGUMENTS, "--map", "prepare:slow")
    assert contents(s3_shell.folder / "out") == contents(s3_shell.folder / "undisturbed")


def test_two_at_once_into_one_place_both_come_to_the_same(shell: Shell) -> None:  # noqa: F811
    make_tree(shell.folder / "tree")
    both = [start(shell, "pack", "tree", "out", *ARGUMENTS, "--verify", "full") for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert shell.json("pack", "tree", "out", *ARGUMENTS)["made"] == 0
    shell.run("pack", "tree", "alone", *ARGUMENTS)
    assert contents(shell.folder / "out") == contents(shell.folder / "alone")


def test_no_room_for_the_temporary_file_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path / "tree")
    settings = Settings(cache=CacheSettings(dir=str(tmp_path / "cache")))
    namespace = Namespace.load(settings)
    source, destination = ((tmp_path / name).as_uri() for name in ("tree", "out"))
    with loop_mount(tmp_path, 16) as disk, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(disk))
        free = os.statvfs(disk).f_bfree * os.statvfs(disk).f_frsize
        with (disk / "filler").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - (900 << 10))
        options = PackOptions(shard_size=10_000_000, layout="tfrecord")  # a tar takes no temporary file
        with pytest.raises(NoRoomError) as caught:
            pack(source, destination, options, namespace=namespace, settings=settings)
        assert caught.value.path == str(disk)
        assert "TMPDIR" in (caught.value.hint or "")
        assert not list((tmp_path / "out").glob("*.tfrecord"))
        (disk / "filler").unlink()
        assert pack(source, destination, options, namespace=namespace, settings=settings).made == 1
        assert os.listdir(disk) == ["lost+found"]
