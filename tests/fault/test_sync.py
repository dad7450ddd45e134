"""Syncs that are killed, cut off from the store, or out of room: nothing is lost, or torn, or told wrongly."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import detach
from tests.sync_rig import Relay, Rig, wait_for

pytestmark = pytest.mark.server

MB = 1_000_000


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(seaweedfs, tmp_path)
    yield made
    made.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def remembered(rig: Rig) -> set[str]:
    """Names that the ledger says are sent."""
    import sqlite3

    (path,) = (rig.scratch / "state").glob("*/ledger.sqlite")
    with sqlite3.connect(path) as base:
        return {name for (name,) in base.execute("select name from sent")}


def test_what_a_killed_sync_left_is_sent_by_the_next(rig: Rig):
    for number in range(300):
        (rig.folder / f"{number:03d}.json").write_bytes(os.urandom(20_000))
    (rig.folder / "large.dat").write_bytes(os.urandom(40 * MB))
    rig.start("--bandwidth", "4MB")
    assert wait_for(lambda: len(rig.names()) > 120)
    rig.kill()
    there, here = rig.objects(), contents(rig.folder)
    assert 0 < len(there) < 301, "it was done already: this proves nothing"
    assert all(here[name] == body for name, body in there.items())
    assert remembered(rig) <= set(there)
    assert [one["state"] for one in rig.status()] == ["lost"]
    recovered = rig.run("--recover", "--json")
    assert recovered.returncode == 0, recovered.stderr
    (row,) = json.loads(recovered.stdout)
    assert row["state"] == "finished"
    # What had been sent and not yet been written down: 64 that may be under way, and the large one.
    assert row["files"] <= 301 - len(there) + 65, "it sent again what was there"
    assert rig.objects() == here
    assert json.loads(rig.run("--recover", "--json").stdout) == []


def test_what_was_left_out_is_not_sent_by_recover_either(rig: Rig):
    (rig.folder / "ckpt-1").mkdir()
    (rig.folder / "ckpt-1/model.pt").write_bytes(b"1")
    (rig.folder / "ckpt-1/COMMITTED").touch()
    (rig.folder / "key.secret").write_bytes(b"not for the bucket")
    rig.start("--exclude", "*.secret", "--checkpoint", "ckpt-*", "--bandwidth", "1MB")
    assert wait_for(lambda: rig.has("ckpt-1/COMMITTED"))
    rig.kill()
    (rig.folder / "late").write_bytes(b"2")
    (rig.folder / "ckpt-2").mkdir()
    (rig.folder / "ckpt-2/model.pt").write_bytes(b"3")
    (rig.folder / "ckpt-2/COMMITTED").touch()
    recovered = rig.run("--recover")
    assert recovered.returncode == 0, recovered.stderr
    assert set(rig.names()) == {
        "ckpt-1/model.pt", "ckpt-1/COMMITTED", "ckpt-2/model.pt", "ckpt-2/COMMITTED", "late",
    }  # fmt: skip
    assert rig.objects()["ckpt-2/COMMITTED"] != b""


def test_killed_again_and_again_while_a_log_grows(rig: Rig):
    log = rig.folder / "train.log"
    for turn in range(4):
        rig.start("--period", "300ms")
        with open(log, "ab", buffering=0) as file:
            for _ in range(30):
                file.write(os.urandom(100_000))
                time.sleep(0.03)
        size = log.stat().st_size
        assert wait_for(lambda size=size: rig.has("train.log") and len(rig.objects()["train.log"]) > size - 3 * MB)
        rig.kill()
        assert log.read_bytes().startswith(rig.objects()["train.log"]), turn
    assert rig.run("--recover").returncode == 0
    assert rig.objects() == contents(rig.folder)


@pytest.fixture
def relay(rig: Rig) -> Iterator[Relay]:
    """The way of the rig's commands to the server."""
    made = Relay(rig.server.endpoint)
    made.open()
    rig.variables = {"AWS_ENDPOINT_URL_S3": made.url}
    yield made
    made.close()


def test_the_store_is_away_for_a_while(rig: Rig, relay: Relay):
    rig.start("--period", "500ms")
    (rig.folder / "before").write_text("1")
    assert wait_for(lambda: rig.has("before"))
    relay.cut()
    (rig.folder / "meanwhile").write_text("2")
    (rig.folder / "before").write_text("3")
    assert wait_for(lambda: relay.turned_away >= 4), "both were tried, and one again"
    assert wait_for(lambda: rig.status()[0]["files"] == 2)
    assert rig.objects() == {"before": b"1"}
    relay.open()
    assert wait_for(lambda: rig.has("before", b"3") and rig.has("meanwhile", b"2"), 90)
    code, told, said = rig.stop()
    assert (code, told["left"]) == (0, []), said


def test_the_store_stays_away_until_the_end(rig: Rig, relay: Relay):
    rig.start("--drain", "3s")
    relay.close()
    (rig.folder / "late").write_text("1")
    began = time.monotonic()
    code, told, said = rig.stop()
    assert time.monotonic() - began < 20
    assert code == 6
    assert [one["path"] for one in told["left"]] == ["late"]
    assert "headrace sync --recover" in said
    assert [one["state"] for one in rig.status()] == ["stopped"]
    relay.open()
    assert rig.run("--recover").returncode == 0
    assert rig.objects() == {"late": b"1"}


def test_the_deadline_at_the_end_is_kept_and_the_rest_named(rig: Rig):
    (rig.folder / "large.dat").write_bytes(os.urandom(40 * MB))
    (rig.folder / "small").write_text("1")
    rig.start("--bandwidth", "1MB", "--drain", "2s")
    assert wait_for(lambda: rig.has("small"))
    began = time.monotonic()
    code, told, said = rig.stop()
    assert time.monotonic() - began < 12
    assert code == 6
    assert [one["path"] for one in told["left"]] == ["large.dat"]
    assert "left: large.dat: 40,000,000 bytes" in said
    assert set(rig.objects()) == {"small"}


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    folder = tmp_path_factory.mktemp("headrace-small-disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "headrace-test", str(folder)], check=True, timeout=30)
    try:
        yield folder
    finally:
        detach(str(folder))


def test_a_file_system_over_the_folder_deletes_nothing(rig: Rig, small_disk: Path):
    """Put there while the sync runs, or before it starts."""
    for number in range(3):
        (rig.folder / str(number)).write_text("x")
    rig.once("--delete")
    rig.start("--delete")
    with bound(small_disk, rig.folder):
        code, told, said = rig.stop()
        assert (code, told["deleted"]) == (5, 0)
        assert "the folder is another than the one that was sent" in said
        ended = rig.run(str(rig.folder), rig.url, "--once", "--delete")
        assert ended.returncode == 5
        assert "covered by a mount" in ended.stderr
    assert rig.once("--delete")["refused"] == ""
    assert set(rig.objects()) == set("012")


def test_a_file_system_below_the_folder_that_is_away_deletes_nothing(rig: Rig, small_disk: Path):
    for number in range(9):
        (rig.folder / str(number)).write_text("x")
    (rig.folder / "other/deep").mkdir(parents=True)
    with bound(small_disk, rig.folder / "other"):
        (rig.folder / "other/file").write_text("y")
        rig.once("--delete")
    (rig.folder / "8").unlink()
    ended = rig.run(str(rig.folder), rig.url, "--once", "--delete")
    assert ended.returncode == 5
    assert "the file system on which other/file lay is not there" in ended.stderr
    with bound(small_disk, rig.folder / "other"):
        assert rig.once("--delete")["deleted"] == 1
    assert set(rig.objects()) == {*"01234567", "other/file"}


@contextmanager
def bound(disk: Path, folder: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", str(disk), str(folder)], check=True, timeout=30)
    try:
        yield
    finally:
        detach(str(folder))


def test_no_room_to_remember_costs_nothing_but_another_look(rig: Rig, small_disk: Path):
    rig.variables = {"HEADRACE_SYNC_STATE": str(small_disk)}
    (rig.folder / "before").write_text("0")
    rig.once()
    with open(small_disk / "filler", "wb") as file:
        file.write(bytes(shutil.disk_usage(small_disk).free - 8192))
        rest = shutil.disk_usage(small_disk).free
        file.write(bytes(rest))
    for number in range(200):
        (rig.folder / f"{number:03d}-{'n' * 150}").write_bytes(b"x" * 100)
    told = rig.once()
    assert told["left"] == []
    assert rig.objects() == contents(rig.folder)
    (small_disk / "filler").unlink()
    assert rig.once()["left"] == []
    assert rig.once()["bytes"] == 0


def test_a_ledger_that_is_not_one_is_put_aside(rig: Rig):
    (rig.folder / "file").write_text("1")
    rig.once()
    (path,) = (rig.scratch / "state").glob("*/ledger.sqlite")
    path.write_bytes(b"not a data base" * 1000)
    (rig.folder / "other").write_text("2")
    assert rig.once()["files"] == 1
    assert rig.objects() == {"file": b"1", "other": b"2"}


def test_a_clock_that_jumps_stops_nothing(rig: Rig):
    """File times from the future and the past are times like others."""
    rig.start("--period", "500ms")
    for name, shift in (("future", 10_000_000), ("past", -1_000_000_000)):
        (rig.folder / name).write_text("1")
        os.utime(rig.folder / name, (time.time() + shift, time.time() + shift))
    assert wait_for(lambda: rig.has("future", b"1") and rig.has("past", b"1"))
    (rig.folder / "future").write_text("2")
    os.utime(rig.folder / "future", (0, 0))
    assert wait_for(lambda: rig.has("future", b"2"))
    code, told, said = rig.stop()
    assert (code, told["left"]) == (0, []), said
