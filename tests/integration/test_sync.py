"""``headrace sync`` as users run it: a folder that is written to, a real S3 server, and what is found in the bucket."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from headrace.base.errors import HeadraceError
from headrace.store import open_store
from headrace.sync import CLASSES, State, Sync, SyncOptions, syncer
from headrace.testing.faults import FaultStore
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from headrace.upload import committed, is_complete
from tests.sync_rig import Rig, wait_for

pytestmark = pytest.mark.server

MB = 1_000_000


@pytest.fixture
def rig(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[Rig]:
    made = Rig(seaweedfs, tmp_path)
    yield made
    made.close()


def test_once_sends_all_of_it_and_the_next_time_nothing(rig: Rig):
    bodies = {"a.txt": b"a", "empty": b"", "deep/er/b c.json": b"{}", "large.dat": os.urandom(20 * MB)}
    for name, body in bodies.items():
        path = rig.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    (rig.folder / "half.tmp").write_bytes(b"about to be renamed")
    first = rig.once()
    assert rig.objects() == bodies
    assert (first["files"], first["left"]) == (4, [])
    assert first["bytes"] == sum(map(len, bodies.values()))
    again = rig.once()
    assert (again["files"], again["bytes"], again["requests"]) == (0, 0, 0)


def test_what_is_there_already_is_not_sent_again_when_nothing_is_remembered(rig: Rig):
    (rig.folder / "same").write_bytes(b"x" * 1000)
    (rig.folder / "other").write_bytes(b"y" * 1000)
    rig.once()
    (rig.folder / "other").write_bytes(b"z" * 1000)
    for path in sorted((rig.scratch / "state").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    told = rig.once()
    assert told["bytes"] == 1000
    assert rig.objects() == {"same": b"x" * 1000, "other": b"z" * 1000}


def test_changes_follow_within_seconds(rig: Rig):
    rig.start("--period", "300ms")
    (rig.folder / "first").write_text("1")
    assert wait_for(lambda: rig.has("first", b"1"), 15)
    (rig.folder / "a/new/folder").mkdir(parents=True)
    (rig.folder / "a/new/folder/file").write_text("2")
    assert wait_for(lambda: rig.has("a/new/folder/file", b"2"), 15)
    (rig.folder / "first").write_text("3")
    assert wait_for(lambda: rig.has("first", b"3"), 15)
    (rig.folder / "first").unlink()
    code, told, _ = rig.stop()
    assert (code, told["left"]) == (0, [])
    assert rig.has("first", b"3"), "deleted here, kept there"
    assert [one["state"] for one in rig.status()] == ["finished"]


def test_it_follows_without_being_told_of_changes(rig: Rig, tmp_path: Path):
    blind = tmp_path / "blind" / "watchfiles"
    blind.mkdir(parents=True)
    (blind / "__init__.py").write_text("raise ImportError('not installed')\n")
    rig.variables = {"PYTHONPATH": str(blind.parent)}
    rig.start("--period", "300ms")
    (rig.folder / "deep").mkdir()
    (rig.folder / "deep/file").write_text("2")
    assert wait_for(lambda: rig.has("deep/file", b"2"), 15)


def test_deleted_there_too_when_that_is_wanted(rig: Rig):
    (rig.folder / "kept").write_text("k")
    (rig.folder / "gone").write_text("g")
    rig.store().put("runs/one/foreign", b"not ours")
    rig.once("--delete")
    (rig.folder / "gone").unlink()
    rig.once("--delete")
    assert set(rig.objects()) == {"kept", "foreign"}


def remade(folder: Path) -> None:
    """Another folder in its place, with most of what was there."""
    folder.rename(folder.with_name("old"))
    shutil.copytree(folder.with_name("old"), folder)
    (folder / "0").unlink()


def emptied(folder: Path, *names: str) -> None:
    for name in names or os.listdir(folder):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


ABSENT: dict[str, tuple[Callable[[Path], None], str]] = {
    "everything": (emptied, "nothing is left of what was sent (6 files)"),
    "more than half": (lambda folder: emptied(folder, "0", "1", "2", "3"), "4 of 6 files that were sent are gone"),
    "another folder": (remade, "the folder is another than the one that was sent"),
    "no folder": (lambda folder: folder.rename(folder.with_name("old")), ""),
}


@pytest.mark.parametrize("how", ABSENT)
def test_an_absence_alone_deletes_nothing(rig: Rig, how: str):
    """Whoever deleted so much, or made the folder anew, says so."""
    happens, why = ABSENT[how]
    for number in range(5):
        (rig.folder / str(number)).write_text("x")
    (rig.folder / "sub").mkdir()
    (rig.folder / "sub/file").write_text("y")
    rig.once("--delete")
    there = rig.objects()
    assert len(there) == 6
    happens(rig.folder)
    left = {str(path.relative_to(rig.folder)) for path in rig.folder.rglob("*") if path.is_file()}
    for _ in range(2):  # it is not forgotten
        ended = rig.run(str(rig.folder), rig.url, "--once", "--json", "--delete")
        assert ended.returncode == (5 if why else 2), ended.stderr
        assert why in ended.stderr
        assert not why or "--force" in ended.stderr
        assert rig.objects() == there
    if why:
        assert rig.once("--delete", "--force")["deleted"] == 6 - len(left)
        assert set(rig.objects()) == left
        assert rig.once("--delete")["refused"] == ""


def test_the_share_that_may_go_is_told(rig: Rig):
    for number in range(4):
        (rig.folder / str(number)).write_text("x")
    rig.once("--delete")
    emptied(rig.folder, "0", "1", "2")
    assert rig.run(str(rig.folder), rig.url, "--once", "--delete", "--max-delete", "60").returncode == 5
    assert rig.once("--delete", "--max-delete", "75")["deleted"] == 3
    assert set(rig.objects()) == {"3"}


def test_what_is_here_but_left_out_is_not_deleted_there(rig: Rig):
    """It is not gone; nor is what turned into something that is not sent."""
    for name in ("a.txt", "b.txt", "c.dat", "d.dat", "e.dat"):
        (rig.folder / name).write_text("x")
    rig.once("--delete")
    emptied(rig.folder, "c.dat")
    (rig.folder / "c.dat").mkdir()
    assert rig.once("--delete", "--exclude", "*.txt")["deleted"] == 0
    assert len(rig.objects()) == 5


def test_what_is_left_out_counts_neither_as_deleted_nor_as_lost(rig: Rig):
    """Three of four files are left out: one that is deleted is a half of what there is, and not nearly all."""
    for name in ("a.txt", "b.txt", "c.txt", "d.dat", "e.dat"):
        (rig.folder / name).write_text("x")
    rig.once("--delete")
    emptied(rig.folder, "d.dat")
    assert rig.once("--delete", "--exclude", "*.txt")["deleted"] == 1
    assert set(rig.objects()) == {"a.txt", "b.txt", "c.txt", "e.dat"}


def test_another_folder_that_lacks_nothing_is_taken(rig: Rig):
    """Though some of what was sent is left out: it is there."""
    for name in ("a.txt", "b.dat", "c.dat", "d.dat"):
        (rig.folder / name).write_text("x")
    rig.once("--delete")
    rig.folder.rename(rig.folder.with_name("old"))
    shutil.copytree(rig.folder.with_name("old"), rig.folder)
    assert rig.once("--delete", "--exclude", "*.txt")["refused"] == ""
    emptied(rig.folder, "b.dat")
    assert rig.once("--delete")["deleted"] == 1


def test_committed_checkpoints_are_deleted_only_when_named(rig: Rig):
    for step in ("1", "2", "3"):
        (rig.folder / "checkpoints" / step).mkdir(parents=True)
        (rig.folder / "checkpoints" / step / "model.pt").write_text(step)
    (rig.folder / "checkpoints/4").mkdir()
    (rig.folder / "checkpoints/4/half.pt").write_text("not committed")
    for step in ("1", "2", "3"):
        (rig.folder / "checkpoints" / step / "COMMITTED").touch()
    for number in range(4):
        (rig.folder / str(number)).write_text("x")
    rig.once("--delete")  # the fourth is complete, too, once it ends
    rig.store().delete(["runs/one/checkpoints/4/COMMITTED"])
    before = set(rig.objects())
    assert {f"checkpoints/{step}/COMMITTED" for step in "123"} <= before
    emptied(rig.folder, "checkpoints/1", "checkpoints/2", "0")
    assert rig.once("--delete", "--delete-checkpoint", "checkpoints/2")["deleted"] == 2
    assert before - set(rig.objects()) == {"0", "checkpoints/2/model.pt", "checkpoints/2/COMMITTED"}


def test_of_a_log_that_grows_only_what_is_new_is_sent(rig: Rig):
    rig.start("--period", "300ms")
    line = b"%063d\n"
    seen: dict[int, bytes] = {}
    over = threading.Event()
    store = rig.store()

    def look() -> None:
        while not over.wait(0.2):
            with suppress(HeadraceError):
                body = bytes(store.get("runs/one/train.log").data)
                seen[len(body)] = body

    looking = threading.Thread(target=look)
    looking.start()
    number, until = 0, time.monotonic() + 60
    with open(rig.folder / "train.log", "wb", buffering=0) as file:
        while (number < 330_000 or len(seen) <= 5) and time.monotonic() < until:
            file.write(b"".join(line % n for n in range(number, number + 4000)))
            number += 4000
            time.sleep(0.05)
    code, told, said = rig.stop()
    over.set()
    looking.join()
    whole = b"".join(line % n for n in range(number))
    assert code == 0, said
    assert rig.objects() == {"train.log": whole}
    assert len(whole) > 20 * MB, "too short: this proves nothing"
    assert len(seen) > 5, "it was not sent as it grew: this proves nothing"
    assert all(whole.startswith(body) for body in seen.values())
    # Below 5 MiB an object cannot be appended to, and is sent anew.
    assert told["bytes"] < 1.1 * len(whole) + 15 * MB


def test_rewritten_truncated_and_rotated_logs_end_as_they_are(rig: Rig):
    names = ("rewritten.log", "cut.log", "turned.log")
    for name in names:
        (rig.folder / name).write_bytes(os.urandom(8 * MB))
    rig.once()
    with open(rig.folder / "rewritten.log", "r+b") as file:  # in the middle, and longer
        file.seek(4 * MB)
        file.write(b"other")
        file.seek(0, os.SEEK_END)
        file.write(os.urandom(MB))
    with open(rig.folder / "cut.log", "r+b") as file:
        file.truncate(0)
        file.write(os.urandom(9 * MB))
    (rig.folder / "turned.log").rename(rig.folder / "turned.log.1")
    (rig.folder / "turned.log").write_bytes(os.urandom(10 * MB))
    rig.once()
    assert rig.objects() == {path.name: path.read_bytes() for path in rig.folder.iterdir()}


CHUNK, CHUNKS = 100_000, 80


def order(turn: int) -> list[int]:
    """The order in which one turn rewrites the chunks of a file."""
    return random.Random(turn).sample(range(CHUNKS), CHUNKS)


def was_once(body: bytes) -> bool:
    """Whether a file rewritten in this way ever held just this: what is new must have been written first."""
    turns = [int.from_bytes(body[at : at + 4], "little") for at in range(0, len(body), CHUNK)]
    new = max(turns)
    count = turns.count(new)
    first = order(new)[:count]
    return all(turns[chunk] == new for chunk in first) and set(turns) <= {new, new - 1}


def test_an_object_is_never_a_mixture_of_two_states_of_its_file(rig: Rig):
    (rig.folder / "in-place.json").write_bytes(bytes(CHUNK * CHUNKS))
    rig.start("--period", "300ms")
    over, arrived = threading.Event(), threading.Event()

    def write() -> None:
        turn = 0
        while not over.is_set():
            busy_until = time.monotonic() + 0.7
            with open(rig.folder / "in-place.json", "r+b", buffering=0) as file:
                while time.monotonic() < busy_until:
                    turn += 1
                    body = turn.to_bytes(4, "little") * (CHUNK // 4)
                    for chunk in order(turn):
                        os.pwrite(file.fileno(), body, chunk * CHUNK)
            arrived.clear()
            arrived.wait(2.0)  # at rest, until it was sent as it is: else there is hardly a state to send

    writing = threading.Thread(target=write)
    writing.start()
    store, seen = rig.store(), set[bytes]()
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and len(seen) < 4:
            with suppress(HeadraceError):
                body = bytes(store.get("runs/one/in-place.json").data)
                assert was_once(body), "it is torn"
                if body[:4] not in seen:
                    seen.add(body[:4])
                    arrived.set()
            time.sleep(0.05)
    finally:
        over.set()
        arrived.set()
        writing.join()
    assert rig.stop()[0] == 0
    assert len(seen) >= 4, "it was hardly sent: this proves nothing"
    assert rig.objects() == {"in-place.json": (rig.folder / "in-place.json").read_bytes()}


@pytest.mark.parametrize("runs", [True, False], ids=["while it runs", "between two"])
def test_a_rewrite_that_keeps_size_and_time_is_sent(rig: Rig, *, runs: bool) -> None:
    """In place (``touch -r``), by another file (``cp -p``, ``rsync -t``), renamed since, and through a hard link."""
    names = {"small.json": 100, "large.dat": 20 * MB, "replaced.dat": MB, "renamed.json": 100, "linked.json": 100}
    for name, size in names.items():
        (rig.folder / name).write_bytes(os.urandom(size))
    apart = rig.scratch / "apart"
    os.link(rig.folder / "linked.json", apart)
    bodies = {name: (rig.folder / name).read_bytes() for name in names}
    if runs:
        rig.start("--period", "300ms")
        assert wait_for(lambda: rig.objects() == bodies)
    else:
        rig.once()
    for name, size in names.items():
        path = rig.folder / name
        times = path.stat()
        bodies[name] = os.urandom(size)
        if name == "replaced.dat":
            other = rig.scratch / "other"
            other.write_bytes(bodies[name])
            other.replace(path)
        else:
            with open(apart if name == "linked.json" else path, "r+b") as file:
                file.write(bodies[name])
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (rig.folder / "renamed.json").rename(rig.folder / "new.json")
    bodies["new.json"] = bodies["renamed.json"]
    del bodies["renamed.json"]
    if not runs:
        rig.once()
    assert wait_for(lambda: bodies.items() <= rig.objects().items(), 30)
    if runs:
        assert rig.stop()[0] == 0


def test_a_mode_or_a_link_that_changes_sends_nothing_again(rig: Rig) -> None:
    (rig.folder / "a.json").write_bytes(os.urandom(MB))
    rig.once()
    (rig.folder / "a.json").chmod(0o600)
    os.link(rig.folder / "a.json", rig.scratch / "linked")
    assert rig.once()["bytes"] == 0


def test_what_is_renamed_is_copied_in_the_store(rig: Rig):
    (rig.folder / "old.dat").write_bytes(os.urandom(20 * MB))
    rig.start("--period", "300ms")
    body = (rig.folder / "old.dat").read_bytes()
    assert wait_for(lambda: rig.has("old.dat", body))
    (rig.folder / "old.dat").rename(rig.folder / "new.dat")
    os.link(rig.folder / "new.dat", rig.folder / "linked.dat")
    (rig.folder / "pointer.dat").symlink_to("new.dat")
    assert wait_for(lambda: all(rig.has(name, body) for name in ("new.dat", "linked.dat", "pointer.dat")))
    _, told, _ = rig.stop()
    assert told["bytes"] == len(body)


def test_a_model_is_sent_when_it_is_closed(rig: Rig):
    rig.start("--period", "300ms")
    with open(rig.folder / "model.pt", "wb", buffering=0) as file:
        file.write(os.urandom(MB))
        (rig.folder / "beside").write_text("1")
        assert wait_for(lambda: rig.has("beside"))
        (rig.folder / "beside").write_text("2")
        assert wait_for(lambda: rig.has("beside", b"2"))
        assert not rig.has("model.pt"), "sent while it was being written"
        file.write(os.urandom(MB))
    assert wait_for(lambda: rig.has("model.pt", (rig.folder / "model.pt").read_bytes()))


def test_a_checkpoint_counts_when_all_of_it_is_there(rig: Rig):
    rig.start("--period", "300ms")
    folder = rig.folder / "checkpoints" / "100"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(os.urandom(MB))
    assert wait_for(lambda: rig.has("checkpoints/100/model.pt"))
    (folder / "optimizer.pt").write_bytes(os.urandom(MB))
    assert wait_for(lambda: rig.has("checkpoints/100/optimizer.pt"))
    assert not rig.has("checkpoints/100/COMMITTED"), "its writer may not be done"
    (folder / "COMMITTED").touch()
    assert wait_for(lambda: rig.has("checkpoints/100/COMMITTED"))
    marker = rig.store().get("runs/one/checkpoints/100/COMMITTED").data
    assert b"optimizer.pt" in bytes(marker)
    # Written again: the marker goes before any of it does.
    (folder / "COMMITTED").unlink()
    (folder / "model.pt").write_bytes(os.urandom(2 * MB))
    assert wait_for(lambda: rig.has("checkpoints/100/model.pt", (folder / "model.pt").read_bytes()))
    assert not rig.has("checkpoints/100/COMMITTED")
    (folder / "COMMITTED").touch()
    assert wait_for(lambda: rig.has("checkpoints/100/COMMITTED"))


def test_a_checkpoint_finished_in_the_last_moment_is_marked(tmp_path: Path):
    """Nothing is watched here, so only the last look of all can find the writer's word."""
    folder = tmp_path / "out/checkpoints/100"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights")
    store = open_store(f"memory://{tmp_path.name}-{os.getpid()}")
    state = State(str(tmp_path / "state"), str(tmp_path / "out"), store.url)
    with Sync(str(tmp_path / "out"), store, "", state, SyncOptions(watch=False, rescan=60.0)) as sync:
        assert wait_for(lambda: sync.report().files == 1)
        (folder / "COMMITTED").touch()
        report = sync.finish(timeout=60)
    assert (report.files, report.checkpoints, report.left) == (1, 1, ())
    assert store.head("checkpoints/100/COMMITTED").size > 0


def test_what_is_written_before_the_kernel_tells_of_changes_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Where there are many folders, watching them begins long after the first look; the next of its own is far."""
    watch = watchfiles.watch
    about_to, go = threading.Event(), threading.Event()

    def late(*arguments: Any, **options: Any) -> Any:
        about_to.set()
        go.wait(30)
        yield from watch(*arguments, **options)

    monkeypatch.setattr(watchfiles, "watch", late)
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "first").write_text("x")
    store = open_store(f"memory://{tmp_path.name}-{os.getpid()}")
    state = State(str(tmp_path / "state"), str(folder), store.url)
    with Sync(str(folder), store, "", state, SyncOptions(rescan=3600.0)) as sync:
        assert about_to.wait(30)
        assert wait_for(lambda: sync.report().files == 1), "it has looked once"
        (folder / "second").write_text("x")
        go.set()
        assert wait_for(lambda: sync.report().files == 2)


def test_what_a_dead_attempt_left_half_done_never_counts(tmp_path: Path):
    """Staying quiet says nothing about a folder whose writer is gone."""
    folder = tmp_path / "out/checkpoints"
    for name in ("half", "whole"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.pt").write_bytes(b"weights")
    (folder / "whole/COMMITTED").touch()
    store = open_store(f"memory://{tmp_path.name}-{os.getpid()}")
    state = State(str(tmp_path / "state"), str(tmp_path / "out"), store.url)
    often = tuple(replace(one, period=0.3) for one in CLASSES)  # it looks as often, since nobody tells of changes
    options = SyncOptions(often, watch=False, quiet=2.0)
    with Sync(str(tmp_path / "out"), store, "", state, options) as sync:
        assert sync.settle(30)
        names = {info.key for page in store.list("") for info in page}
        assert {"checkpoints/half/model.pt", "checkpoints/whole/model.pt", "checkpoints/whole/COMMITTED"} == names
        (folder / "other").mkdir()
        (folder / "other/model.pt").write_bytes(b"more")
        assert wait_for(lambda: sync.report().checkpoints == 2), "the next attempt's, which its quiet tells"
        names = {info.key for page in store.list("") for info in page}
        assert "checkpoints/other/COMMITTED" in names
        assert "checkpoints/half/COMMITTED" not in names
        (folder / "half/model.pt").write_bytes(b"weights, again")
        assert wait_for(lambda: sync.report().checkpoints == 3), "written to by the living, it counts as ever"


def save(out: Path, name: str) -> None:
    folder = out / "checkpoints" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "COMMITTED").unlink(missing_ok=True)
    (folder / "model.pt").write_bytes(os.urandom(10))
    (folder / "COMMITTED").touch()


def finished(state: State) -> list[str]:
    """Folders that the ledger knows to be finished."""
    with closing(sqlite3.connect(state.ledger)) as base:
        return [folder for (folder,) in base.execute("select folder from finished")]


def test_the_order_of_checkpoints_is_that_in_which_they_were_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Not the one in which they were sent: a large one may come after a small one that was finished later."""
    store = open_store(f"memory://{tmp_path.name}-{os.getpid()}")
    put, small_is_there = store.put, threading.Event()

    def late(key: str, *arguments: Any, **options: Any) -> Any:
        if key.endswith("large/model.pt"):
            assert small_is_there.wait(30)
        return put(key, *arguments, **options)

    monkeypatch.setattr(store, "put", late)
    state = State(str(tmp_path / "state"), str(tmp_path / "out"), store.url)
    (tmp_path / "out").mkdir()
    with Sync(str(tmp_path / "out"), store, "", state):
        save(tmp_path / "out", "large")
        assert wait_for(lambda: "checkpoints/large" in finished(state))
        save(tmp_path / "out", "a-small")
        assert wait_for(lambda: is_complete(store, "checkpoints/a-small"))
        small_is_there.set()
        assert wait_for(lambda: is_complete(store, "checkpoints/large"))
        large, small = committed(store, "checkpoints/large"), committed(store, "checkpoints/a-small")
        assert large is not None
        assert small is not None
        assert large < small
        monkeypatch.setattr(time, "time_ns", lambda: 0)  # the clock is set back
        save(tmp_path / "out", "large")
        assert wait_for(lambda: (committed(store, "checkpoints/large") or small) > small)


def test_checkpoints_that_are_found_at_once_are_in_the_order_of_their_files(tmp_path: Path):
    """As at a job's end, or after a crash."""
    store = open_store(f"memory://{tmp_path.name}-{os.getpid()}")
    for number, name in enumerate(("iter-9", "iter-10", "iter-1")):
        save(tmp_path / "out", name)
        os.utime(tmp_path / "out/checkpoints" / name / "model.pt", (1e9 + number, 1e9 + number))
    state = State(str(tmp_path / "state"), str(tmp_path / "out"), store.url)
    with Sync(str(tmp_path / "out"), store, "", state) as sync:
        assert sync.finish(timeout=60).checkpoints == 3
    times = {name: committed(store, f"checkpoints/{name}") for name in ("iter-9", "iter-10", "iter-1")}
    assert sorted(times, key=lambda name: times[name] or (0, 0)) == ["iter-9", "iter-10", "iter-1"]


def test_old_times_do_not_make_a_checkpoint_whole(tmp_path: Path):
    """Files that are copied with their times, or a clock that is set: quiet is what is seen here, not what they say."""
    out = tmp_path / "out"
    for name in ("before", "now"):
        (out / "checkpoints" / name).mkdir(parents=True)
    (out / "checkpoints/before/model.pt").write_bytes(b"weights")
    os.utime(out / "checkpoints/before/model.pt", (1e9, 1e9))
    store = open_store(f"memory://{tmp_path.name}-{os.getpid()}")
    state = State(str(tmp_path / "state"), str(out), store.url)

    def names() -> set[str]:
        return {info.key for page in store.list("") for info in page}

    with Sync(str(out), store, "", state, SyncOptions(quiet=3.0)) as sync:
        assert wait_for(lambda: "checkpoints/before/COMMITTED" in names()), "it lay there long before"
        for part in ("1", "2"):
            (out / part).write_bytes(b"")
            os.utime(out / part, (1e9, 1e9))
            renamed = time.monotonic()
            (out / part).rename(out / f"checkpoints/now/{part}.pt")
        assert wait_for(lambda: "checkpoints/now/COMMITTED" in names())
        assert time.monotonic() - renamed >= 3.0
        marker = bytes(store.get("checkpoints/now/COMMITTED").data)
        assert all(part in marker for part in (b"1.pt", b"2.pt"))
        assert wait_for(lambda: sync.report().checkpoints == 2), "counted a moment after its marker is there"


def test_once_the_store_answers_nobody_waits_for_his_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each file that failed waits longer from time to time; one that arrives shows that it need not."""
    monkeypatch.setattr(syncer, "_RETRY_FIRST_S", 600.0)
    monkeypatch.setattr(syncer, "_RETRY_S", 600.0)
    out = tmp_path / "out"
    out.mkdir()
    state = State(str(tmp_path / "state"), str(out), "memory://")
    away = Plan([Fault(Kind.REFUSE, operations=frozenset({"put", "head"}))])
    store = FaultStore(open_store(f"memory://{tmp_path.name}-{os.getpid()}-back"), away)
    often = tuple(replace(one, period=0.1) for one in CLASSES)
    names = {"one", "two", "three"}
    with Sync(str(out), store, "", state, SyncOptions(often)) as sync:
        for name in names:
            (out / name).write_text(name)
        assert wait_for(lambda: {one.path for one in sync.report().left if one.error} == names)
        store.plan = Plan()
        (out / "late").write_text("late")
        assert wait_for(lambda: {info.key for page in store.list("") for info in page} == {*names, "late"})


def test_the_end_does_not_wait_for_what_can_never_be_sent(tmp_path: Path):
    """A file whose name is taken by a folder there: refused once more at the end, and named."""
    out, bucket = tmp_path / "out", tmp_path / "bucket"
    (out / "x").mkdir(parents=True)
    (out / "x/y").write_text("1")
    (out / "z").write_text("2")
    bucket.mkdir()
    (bucket / "x").write_text("in the way")
    state = State(str(tmp_path / "state"), str(out), f"file://{bucket}")
    with Sync(str(out), open_store(f"file://{bucket}"), "", state, SyncOptions(watch=False)) as sync:
        began = time.monotonic()
        report = sync.finish(timeout=600)
        assert time.monotonic() - began < 300
    assert [one.path for one in report.left] == ["x/y"]
    assert (bucket / "z").read_text() == "2"


def test_a_checkpoint_cut_short_is_never_marked(rig: Rig):
    rig.start("--period", "300ms")
    folder = rig.folder / "checkpoints" / "7"
    folder.mkdir(parents=True)
    (folder / "model.pt").write_bytes(os.urandom(MB))
    assert wait_for(lambda: rig.has("checkpoints/7/model.pt"))
    code, told, _ = rig.stop()  # the job is stopped while it writes
    assert (code, told["left"]) == (0, [])
    assert not rig.has("checkpoints/7/COMMITTED")
    os.utime(folder / "model.pt", (time.time() - 1000, time.time() - 1000))
    rig.run("--recover")
    assert not rig.has("checkpoints/7/COMMITTED")
    assert rig.once()["checkpoints"] == 1, "--once says that nothing is being written any more"
    assert rig.has("checkpoints/7/COMMITTED")


def test_many_small_files_keep_to_the_allowance_of_requests(rig: Rig):
    for number in range(600):
        (rig.folder / f"{number:04d}.json").write_text(str(number))
    rig.variables = {"HEADRACE_SYNC_REQUESTS": "100"}
    rig.start("--period", "300ms")
    assert wait_for(lambda: len(rig.objects()) >= 100)
    before = rig.status()[0]
    assert before["files"] > 300, "it sent them regardless"
    code, told, _ = rig.stop()  # at the end all of them are
    assert (code, told["files"], told["left"]) == (0, 600, [])
    assert len(rig.objects()) == 600


def test_two_syncs_of_one_pair_are_refused(rig: Rig):
    rig.start()
    assert rig.process is not None
    second = rig.run(str(rig.folder), rig.url, "--once")
    assert second.returncode == 6
    assert f"pid {rig.process.pid}" in second.stderr
    assert rig.run(str(rig.folder), rig.url + "-elsewhere", "--once").returncode == 0


def test_what_is_no_file_is_left_out_and_told(rig: Rig, tmp_path: Path):
    (tmp_path / "secret").write_text("elsewhere")
    (rig.folder / "out.txt").symlink_to(tmp_path / "secret")
    (rig.folder / "outer").symlink_to(tmp_path)
    (rig.folder / "round").symlink_to(".")
    os.mkfifo(rig.folder / "pipe")
    (rig.folder / "file").write_text("1")
    told = rig.once()
    assert set(rig.objects()) == {"file"}
    assert {name for name, _ in told["skipped"]} >= {"out.txt", "pipe"}


def test_mistakes_are_answered_in_a_line(rig: Rig):
    assert rig.run(str(rig.folder)).returncode == 2
    assert rig.run("--recover", str(rig.folder), rig.url).returncode == 2
    assert rig.run("--recover", str(rig.folder), "--delete-checkpoint", "checkpoints/1").returncode == 2
    missing = rig.run(str(rig.folder / "nowhere"), rig.url, "--once")
    assert (missing.returncode, "is not a folder" in missing.stderr) == (2, True)
    (rig.folder / "file").write_text("1")
    denied = rig.run(str(rig.folder), "s3://no-such-bucket-here/x", "--once", "--drain", "3s")
    assert denied.returncode in (3, 6)
    assert "Traceback" not in denied.stderr


def test_ctrl_c_ends_it_at_once_and_names_what_is_left(rig: Rig):
    (rig.folder / "large.dat").write_bytes(os.urandom(40 * MB))
    rig.start("--bandwidth", "1MB")
    assert wait_for(lambda: rig.status()[0]["files"] == 1)
    began = time.monotonic()
    code, _, said = rig.stop(signal.SIGINT)
    assert code == 130
    assert time.monotonic() - began < 3
    assert "left: large.dat" in said
    assert rig.objects() == {}
