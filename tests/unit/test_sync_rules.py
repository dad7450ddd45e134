"""When a changed file is sent, at what price; what is looked at, and what is remembered."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from headrace.base.errors import InputError, TryAgainError
from headrace.store import ObjectInfo
from headrace.sync import FileClass, State, SyncOptions, statuses
from headrace.sync.digest import BLOCK, Digests
from headrace.sync.due import Allowance, Tracked, cost, pause
from headrace.sync.ledger import Ledger, Sent
from headrace.sync.scan import Folder, Stamp

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "size", "kind"),
    [
        ("train.log", 1, "log"),
        ("a/b/events.out.tfevents.1700.host", 1, "log"),
        ("train.log", 1 << 30, "log"),
        ("model.pt", 1, "model"),
        ("a.pt/config.json", 1, "small"),
        ("dump", 64 * MIB, "large"),
        ("dump", 64 * MIB - 1, "small"),
    ],
)
def test_the_class_of_a_file(name: str, size: int, kind: str):
    assert SyncOptions().class_of(name, size).name == kind


def test_classes_are_the_callers():
    options = SyncOptions((FileClass("mine", ("sub/*.bin",), at_least=10), FileClass("rest")))
    assert [options.class_of(*one).name for one in (("sub/a.bin", 10), ("sub/a.bin", 9), ("a.bin", 10))] == [
        "mine",
        "rest",
        "rest",
    ]
    for wrong in ({"classes": ()}, {"requests": 0}, {"rescan": 0}):
        with pytest.raises(InputError):
            SyncOptions(**wrong)
    with pytest.raises(InputError):
        FileClass("never", period=0)


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("checkpoints/100/model.pt", "checkpoints/100"),
        ("checkpoints/100/shards/0.pt", "checkpoints/100"),
        ("checkpoints/model.pt", None),
        ("other/checkpoints/100/model.pt", None),
        ("model.pt", None),
    ],
)
def test_the_checkpoint_of_a_file(name: str, folder: str | None):
    assert SyncOptions().checkpoint_of(name) == folder


LOG = FileClass("log", growing=True, period=5.0)


def tracked(size: int, sent: int | None, kind: FileClass = LOG) -> Tracked:
    known = None if sent is None else Sent(Stamp(sent, 1, 1, 1), ObjectInfo("k", sent, "e"))
    return Tracked("f", kind, Stamp(size, 2, 1, 1), 0.0, 0.0, known)


def test_what_costs_much_and_brings_little_waits():
    assert pause(tracked(100, None), appends=False) == 0
    assert pause(tracked(100, 50), appends=False) == 5
    assert pause(tracked(3 << 30, 2 << 30), appends=True) == pytest.approx(5 * 27 / 6)
    assert pause(tracked(1 << 30, (1 << 30) - 1), appends=False) == 300
    rewritten = tracked(40 * MIB, 40 * MIB, FileClass("small", period=5.0))
    assert pause(rewritten, appends=False) == 50


def test_requests_are_counted_and_allowed():
    assert cost(tracked(100, None), appends=False, part=16 * MIB) == 1
    assert cost(tracked(33 * MIB, None), appends=False, part=16 * MIB) == 5
    assert cost(tracked(1 << 30, 1), appends=True, part=16 * MIB) == 11
    allowance = Allowance(3600, 0.0)
    assert allowance.take(3600, 0.0) == 0
    assert allowance.take(10, 0.0) == pytest.approx(10)
    assert allowance.take(10, 9.0) == pytest.approx(1)
    assert allowance.take(10, 10.0) == 0
    assert allowance.take(10_000, 10.0 + 7200) == 0, "more than an hour's worth is made when the hour is full"


def test_digests_know_the_beginning_they_were_made_of(tmp_path: Path):
    path = tmp_path / "file"
    body = bytearray(os.urandom(3 * BLOCK + 1000))
    path.write_bytes(body)
    digests = Digests.of(str(path), len(body))
    assert digests.hold(str(path), every=True)
    path.write_bytes(body + b"more")
    assert digests.hold(str(path), every=True)
    longer = Digests.of(str(path), len(body) + 4, digests)
    assert list(longer.sums) == list(Digests.of(str(path), len(body) + 4).sums)
    body[BLOCK + 5] ^= 1  # in a block that samples may miss
    path.write_bytes(body)
    assert not digests.hold(str(path), every=True)
    body[BLOCK + 5] ^= 1
    for at in (0, 3 * BLOCK + 999):
        changed = bytearray(body)
        changed[at] ^= 1
        path.write_bytes(changed)
        assert not digests.hold(str(path), every=False)
    path.write_bytes(body[:-1])
    assert not digests.hold(str(path), every=False)
    with pytest.raises(EOFError):
        Digests.of(str(path), len(body))
    path.unlink()
    assert not digests.hold(str(path), every=True)


def test_a_scan_finds_files_and_tells_what_it_leaves_out(tmp_path: Path):
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/c").write_text("1")
    (root / ".git").mkdir()
    (root / ".git/config").write_text("1")
    (root / "x.tmp").write_text("1")
    (root / "link").symlink_to("a/b/c")
    (root / "dangling").symlink_to("nowhere")
    (root / "out").symlink_to(tmp_path)
    (root / "outer.txt").symlink_to("/etc/hostname")
    os.mkfifo(root / "pipe")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).write_text("1")
    folder = Folder(str(root), SyncOptions())
    assert set(folder.scan()) == {"a/b/c", "link"}
    assert set(folder.scan("a")) == {"a/b/c"}
    assert folder.scan("link") == {}
    assert {"outer.txt", "pipe", os.fsdecode(b"\xff")} <= set(folder.odd)
    for name in (".git/config", "x.tmp", "pipe", "nowhere", "a", "outer.txt"):
        assert folder.look(name) is None
    assert folder.look("link") == folder.look("a/b/c")


def test_whether_a_file_is_closed(tmp_path: Path):
    folder = Folder(str(tmp_path), SyncOptions())
    with open(tmp_path / "file", "wb") as file:
        file.write(b"1")
        assert folder.closed("file") is False
    if folder.closed("file") is None:
        pytest.skip("this file system gives no leases")
    assert folder.closed("file") is True
    with open(tmp_path / "file", "rb"):
        assert folder.closed("file") is True, "readers do not count"
    with open(tmp_path / "file", "ab"):  # and nothing of the look is left that would hold up a writer
        pass
    assert folder.closed("missing") is None


def test_the_ledger_gives_back_what_it_was_given(tmp_path: Path):
    path = str(tmp_path / "ledger")
    big = (1 << 64) - 1
    full = Sent(Stamp(5, 6, big, big), ObjectInfo("p/ü/name", 5, '"e', 77, "v"), Digests(5, [1, big]))
    bare = Sent(Stamp(0, 0, 0, 0), ObjectInfo("p/b", 0))
    first = Ledger(path, "p/")
    first.put({"ü/name": full, "b": bare, "c": bare})
    first.drop(["c"])
    first.commit("checkpoints/1", "x")
    first.commit("checkpoints/2", "y")
    first.commit("checkpoints/2", None)
    first.make_ready("checkpoints/3", "z")
    first.close()
    again = Ledger(path, "p/")
    found = again.sent()
    assert set(found) == {"ü/name", "b"}
    assert (found["ü/name"].stamp, found["ü/name"].info) == (full.stamp, full.info)
    digests = found["ü/name"].digests
    assert digests is not None
    assert (digests.size, list(digests.sums)) == (5, [1, big])
    assert (found["b"].info, found["b"].digests) == (bare.info, None)
    assert (again.commits(), again.ready()) == ({"checkpoints/1": "x"}, {"checkpoints/3": "z"})
    again.close()


def test_one_state_for_one_pair(tmp_path: Path):
    root = str(tmp_path / "state")
    assert list(statuses(root)) == []
    with State(root, str(tmp_path), "s3://b/x") as state:
        with pytest.raises(TryAgainError, match="another process"):
            State(root, str(tmp_path) + "/.", "s3://b/x")
        State(root, str(tmp_path), "s3://b/y").close()
        state.tell("running", 3, 100, 1.5, ["a"])
        assert {one.url: one.state for one in statuses(root)} == {"s3://b/x": "running", "s3://b/y": "lost"}
    assert {one.state for one in statuses(root)} == {"lost"}
    with State(root, str(tmp_path), "s3://b/x") as state:
        state.tell("finished", 0, 0, 0.0, [])
    (one,) = (one for one in statuses(root) if one.url == "s3://b/x")
    assert (one.state, one.pid, one.destination) == ("finished", None, "s3://b/x")
    assert one.updated is not None
    assert one.updated[:4] == time.strftime("%Y", time.gmtime())
