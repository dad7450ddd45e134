"""`Staging` from the outside: what the bucket holds after each operation, and what is refused."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import resource
import secrets
import signal
import subprocess
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    InputError,
    NoRoomError,
    NotFoundError,
    ReadOnlyError,
    TryAgainError,
)
from headrace.fetch import Read
from headrace.mount.write_back.object_metadata import Attributes, from_metadata, link_path
from headrace.mount.write_back.staged_file import StagedFile
from headrace.mount.write_back.staging import Staging, StagingOptions
from tests.staging_kit import FILE, FOLDER, PATIENT, Killed, World, world
from tests.sync_rig import wait_for

MB = 1 << 20


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno == code


def read(made: World, path: str) -> bytes:
    return bytes(made.ns.read(path))


# one file


def test_create_write_close(any_world: World):
    staging = any_world.staging
    file = staging.create("/d/a/b", FILE)
    assert staging.find("/d/a/b") is file
    assert staging.below("/d/a") == [file]
    assert any_world.objects() == {}
    file.write(3, b"def")
    file.write(0, b"abc")
    assert (file.size, file.read(1, 4), any_world.objects()) == (6, b"bcde", {})
    file.publish()
    assert any_world.objects() == {"a/b": b"abcdef"}
    file.release()
    assert staging.find("/d/a/b") is None
    assert read(any_world, "/d/a/b") == b"abcdef"
    assert any_world.ns.stat("/d/a/b").size == 6
    assert staging.backlog() == []
    assert [name for _, _, names in os.walk(any_world.folder / "files") for name in names] == []


def test_an_empty_file_is_published_too(any_world: World):
    any_world.write("/d/empty", b"")
    assert any_world.objects() == {"empty": b""}


def test_a_new_file_costs_one_put_and_is_warm(s3: World):
    s3.store.calls.clear()
    s3.write("/d/f", b"x" * 100_000)
    info = s3.store.inner.head("f")  # a mount knows what it has written
    assert bytes(s3.fetcher.get(Read(s3.store, "f", info.size, info.version)).data) == b"x" * 100_000
    assert s3.store.calls == ["put"]  # neither HEAD nor GET: known and cached
    assert s3.fetcher.cache is not None
    assert not s3.fetcher.cache.verify().bad


def test_a_closed_file_costs_no_memory(s3: World):
    """What it is is the mount's own to know. Measured between two counts of files, past what is made once."""

    cache = s3.fetcher.cache
    assert cache is not None

    def held(count: int) -> int:
        there = cache.status().entries
        for number in range(count):
            s3.write(f"/d/{count}-{number}", b"x")
        assert wait_for(lambda: cache.status().entries == there + count)  # what waits for the cache lies in memory
        s3.staging._queue.recent.clear()  # so many as were written in the last five seconds
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = held(300)  # more than what was just written is known of
        assert (held(600) - before) / 600 < 100
    finally:
        tracemalloc.stop()


def test_the_cache_holds_what_was_published_last(s3: World):
    for name, last in (("written", b"y" * 50_000), ("attributes", b"x" * 50_000)):
        file = s3.staging.create(f"/d/{name}", FILE)
        file.write(0, b"x" * 50_000)
        file.publish()
        file.write(0, last) if last[:1] == b"y" else s3.staging.set_attributes(f"/d/{name}", Attributes(0o100600))
        file.release()
        assert read(s3, f"/d/{name}") == last
    assert s3.fetcher.cache is not None
    report = s3.fetcher.cache.verify()
    assert (report.checked, report.bad) == (2, [])


def test_files_handed_to_the_cache_count_for_what_they_take(s3: World):
    """Room is reserved for many at once; what was too much is given back when no more come."""
    for number in range(5):
        s3.write(f"/d/{number}", b"x" * 100_000)
    cache = s3.fetcher.cache
    assert cache is not None
    assert wait_for(lambda: cache.status().entries == 5)
    assert cache.status().bytes == 5 * (25 * 4096 + 4096)


def test_a_failure_that_another_thread_has_made_good_is_over(memory: World, monkeypatch: pytest.MonkeyPatch):
    """A worker publishes between the moment a try fails and the moment that is noted."""
    inner, queue = memory.store.inner, memory.staging._queue
    put, failed = inner.put, queue._failed
    file = memory.staging.create("/d/f", FILE)
    file.write(0, b"x")

    def refuse(*_: object, **__: object) -> None:
        raise TryAgainError("away")

    def late(*args: Any, **kwargs: Any) -> None:
        monkeypatch.setattr(inner, "put", put)
        worker = threading.Thread(target=file.publish)
        worker.start()
        worker.join(20)
        failed(*args, **kwargs)

    monkeypatch.setattr(inner, "put", refuse)
    monkeypatch.setattr(queue, "_failed", late)
    with pytest.raises(TryAgainError):
        file.publish()
    assert memory.objects() == {"f": b"x"}
    assert memory.staging.backlog() == []
    file.release()
    assert memory.staging.drain(5)


def test_nothing_changed_is_not_published_again(memory: World):
    file = memory.staging.create("/d/f", FILE)
    file.write(0, b"1")
    for _ in range(3):
        file.publish()
    file.release()
    assert memory.store.calls.count("put") == 1


def test_editing_an_object(any_world: World):
    any_world.store.put("f", b"0123456789")
    file = any_world.staging.open("/d/f", None, truncate=False, attrs=FILE)
    assert file.read(0, 100) == b"0123456789"
    file.publish()
    assert "put" not in any_world.store.calls[1:]
    file.write(8, b"abcd")
    file.truncate(11)
    file.publish()
    assert any_world.objects() == {"f": b"01234567abc"}
    file.truncate(2)
    file.truncate(4)
    file.publish()
    file.release()
    assert any_world.objects() == {"f": b"01\0\0"}


def test_opening_truncated_fetches_nothing(memory: World):
    memory.store.put("f", b"old content")
    memory.store.calls.clear()
    file = memory.staging.open("/d/f", memory.ns.stat("/d/f"), truncate=True, attrs=FILE)
    file.write(0, b"new")
    file.publish()
    file.release()
    assert memory.objects() == {"f": b"new"}
    assert "get" not in memory.store.calls


def test_a_missing_object_cannot_be_opened(any_world: World):
    with pytest.raises(NotFoundError):
        any_world.staging.open("/d/none", None, truncate=False, attrs=FILE)
    assert any_world.staging.find("/d/none") is None


def test_two_handles_are_one_file(memory: World):
    one = memory.staging.create("/d/f", FILE)
    other = memory.staging.open("/d/f", None, truncate=False, attrs=FILE)
    third = memory.staging.hold("/d/f")
    assert one is other is third
    one.write(0, b"ab")
    other.write(1, b"c")
    one.publish()
    one.release()
    other.release()
    assert memory.staging.find("/d/f") is one
    assert one.read(0, 9) == b"ac"
    one.release()
    assert memory.staging.find("/d/f") is None
    assert memory.objects() == {"f": b"ac"}


def test_what_was_changed_elsewhere_since_it_was_seen_is_opened_as_it_is_now(memory: World):
    memory.store.put("f", b"old")
    seen = memory.ns.stat("/d/f")
    memory.store.put("f", b"newer")
    file = memory.staging.open("/d/f", seen, truncate=False, attrs=FILE)
    assert file.read(0, 10) == b"newer"
    file.release()


def test_last_close_wins_whole(tmp_path: Path, memory: World):
    with_other = Staging(str(tmp_path / "other"), memory.ns, PATIENT)
    one, other = memory.staging.create("/d/f", FILE), with_other.create("/d/f", FILE)
    one.write(0, b"1" * 100)
    other.write(0, b"2" * 50)
    other.publish()
    assert memory.objects() == {"f": b"2" * 50}
    one.publish()
    assert memory.objects() == {"f": b"1" * 100}
    one.release()
    other.release()
    with_other.close()
    assert memory.objects() == {"f": b"1" * 100}


def test_written_to_by_the_kernel_itself(memory: World):
    """Passthrough: no call tells of a write; the file's times do."""
    file = memory.staging.create("/d/f", FILE)
    file.passthrough = True
    for number in range(5):
        os.pwrite(file.fd, bytes([number]) * 10, 0)
        file.publish()
        assert memory.objects() == {"f": bytes([number]) * 10}
    before = memory.store.calls.count("put")
    file.publish()
    file.release()
    assert memory.store.calls.count("put") == before == 5


def test_what_the_kernel_writes_during_a_publish_outlives_a_crash(memory: World):
    """The journal tells of the state that was published, not of the one that the file is in when it is written."""
    file = memory.staging.create("/d/f", FILE)
    file.passthrough = True
    os.pwrite(file.fd, b"sent", 0)
    put = memory.store.inner.put

    def meanwhile(*args: object, **kw: object) -> object:
        info = put(*args, **kw)  # type: ignore[arg-type]
        os.pwrite(file.fd, b"and more", 4)
        return info

    memory.store.inner.put = meanwhile  # type: ignore[method-assign, assignment]
    file.publish()
    assert memory.crash().recover().orphans
    assert [Path(one.file).read_bytes() for one in memory.staging.orphans()] == [b"sentand more"]
    assert memory.objects() == {"f": b"sent"}


def test_writes_during_a_publish_are_not_lost(memory: World):
    """Whatever a publish reads, what is written meanwhile is published by the next."""
    file = memory.staging.create("/d/f", FILE)
    stop = threading.Event()

    def writer() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            file.write(number % 50 * 8, number.to_bytes(8, "little"))

    thread = threading.Thread(target=writer)
    thread.start()
    for _ in range(100):
        file.publish()
    stop.set()
    thread.join()
    local = file.read(0, 1000)
    file.publish()
    file.release()
    assert memory.objects() == {"f": local}
    assert read(memory, "/d/f") == local


def test_a_file_that_stays_open_is_published_now_and_then(tmp_path: Path):
    with world(tmp_path, f"memory://{secrets.token_hex(8)}", options=StagingOptions(period_s=0.1)) as made:
        file = made.staging.create("/d/log", FILE)
        for line in (b"one\n", b"two\n"):
            file.write(file.size, line)
            deadline = time.monotonic() + 10
            while not made.objects().get("log", b"").endswith(line):
                assert time.monotonic() < deadline
                time.sleep(0.01)
        file.release()
        assert made.objects() == {"log": b"one\ntwo\n"}


# large files


def appended(made: World, size: int) -> tuple[bytes, list[str]]:
    """An object of `size` bytes, then a line more; what it holds, and the calls the append took."""
    content = os.urandom(MB) * (size // MB)
    made.write("/d/big", content)
    file = made.staging.open("/d/big", None, truncate=False, attrs=FILE)
    file.write(file.size, b"tail")
    made.store.calls.clear()
    file.publish()
    calls = list(made.store.calls)
    file.release()
    assert made.staging.drain(10)
    assert read(made, "/d/big") == content + b"tail"
    return content + b"tail", calls


def test_an_append_sends_only_what_is_new(s3: World):
    sent: list[int] = []
    appended(s3, 20 * MB)  # the first on a server that is not known shows whether it copies
    inner = s3.store.inner
    original = inner.assemble

    def assemble(key: str, **kw: object) -> object:
        assembly = original(key, **kw)  # type: ignore[arg-type]
        part = assembly.part
        assembly.part = lambda number, at, data: (sent.append(len(data)), part(number, at, data))[1]  # type: ignore[method-assign]
        return assembly

    inner.assemble = assemble  # type: ignore[method-assign]
    if s3.fetcher.cache is not None:
        s3.fetcher.cache.evict()
    file = s3.staging.open("/d/big", None, truncate=False, attrs=FILE)
    assert not file.complete
    before = file.size
    file.write(before, b"more")
    s3.store.calls.clear()
    file.publish()
    assert "get" not in s3.store.calls  # not even fetched
    assert sum(sent) < before // 2
    file.write(before + 4, b"again")
    file.publish()
    assert file.read(before - 4, 100) == b"tailmoreagain"
    file.release()
    assert s3.staging.drain(10)
    whole = s3.objects()["big"]
    assert whole[before - 4 :] == b"tailmoreagain"
    assert len(whole) == before + 9


def test_a_write_into_the_old_part_is_not_taken_for_an_append(s3: World):
    content = os.urandom(MB) * 20
    s3.write("/d/big", content)
    for at in (0, 9 * MB, 19 * MB):
        file = s3.staging.open("/d/big", None, truncate=False, attrs=FILE)
        file.write(at, b"changed")
        content = content[:at] + b"changed" + content[at + 7 :]
        file.write(file.size, b"tail")
        content += b"tail"
        file.publish()
        file.release()
        assert s3.objects()["big"] == content
    file = s3.staging.open("/d/big", None, truncate=False, attrs=FILE)
    file.truncate(17 * MB)
    file.truncate(18 * MB)
    file.write(18 * MB, b"end")
    file.publish()
    file.release()
    assert s3.objects()["big"] == content[: 17 * MB] + bytes(MB) + b"end"


def test_an_append_to_what_another_has_replaced_sends_everything(s3: World):
    content = os.urandom(MB) * 18
    file = s3.staging.create("/d/big", FILE)
    file.write(0, content)
    file.publish()
    s3.store.put("big", b"other")
    file.write(len(content), b"tail")
    file.publish()
    file.release()
    assert s3.objects()["big"] == content + b"tail"


def test_large_objects_are_fetched_as_they_are_touched(any_world: World):
    content = os.urandom(MB) * 20
    any_world.store.put("big", content)
    file = any_world.staging.open("/d/big", None, truncate=False, attrs=FILE)
    assert not file.complete
    assert file.read(5 * MB - 3, 6) == content[5 * MB - 3 : 5 * MB + 3]
    any_world.store.put("big", b"x" * 21 * MB)
    with pytest.raises((ChangedError, NotFoundError)):
        file.read(15 * MB, 10)
    file.release()
    assert any_world.objects()["big"] == b"x" * 21 * MB


def test_what_is_fetched_while_we_replace_the_object_comes_from_the_new_one(memory: World):
    content = os.urandom(MB) * 30
    inner, get = memory.store.inner, memory.store.inner.get
    inner.put("big", content)
    file = memory.staging.open("/d/big", None, truncate=False, attrs=FILE)
    missing = file.missing
    assert missing is not None
    old, asked, one = missing.info, [0], threading.Lock()

    def replaced(*args: Any, **kw: Any) -> Any:
        with one:
            asked[0] += 1
            if asked[0] == 2:
                inner.put("big", content)
                missing.follow(inner.head("big"))
        return get(*args, **kw)

    inner.get = replaced  # type: ignore[method-assign]
    assert file.read(0, len(content)) == content
    assert missing.info.version != old.version
    assert file.complete
    file.release()


# attributes


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_attributes_are_kept_with_the_object(request: pytest.FixtureRequest, kind: str):
    made: World = request.getfixturevalue(kind)
    file = made.staging.create("/d/f", FILE)
    file.write(0, b"1")
    made.staging.set_attributes("/d/f", Attributes(mtime_ns=1_234_567_890_000_000_005))
    assert file.attrs == Attributes(0o100644, 1000, 100, 1_234_567_890_000_000_005)
    file.publish()
    file.release()
    stored = made.store.describe("f").metadata
    assert stored["mode"] == "33188"
    assert from_metadata(stored) == Attributes(0o100644, 1000, 100, 1_234_567_890_000_000_005)
    made.staging.set_attributes("/d/f", Attributes(mode=0o100600, uid=5))
    assert from_metadata(made.store.describe("f").metadata) == Attributes(0o100600, 5, 100, 1_234_567_890_000_000_005)
    assert made.objects() == {"f": b"1"}


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_attributes_set_while_a_closed_file_is_retired_are_kept(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
):
    """What `cp -p` does: close, then utimensat, which may meet the file at the end of its retirement."""
    made: World = request.getfixturevalue(kind)
    file = made.staging.create("/d/f", FILE)
    file.write(0, b"1")
    file.publish()
    inner = StagedFile.set_attributes
    closing = threading.Thread(target=file.release)

    def met(self: StagedFile, attrs: Attributes) -> None:
        closing.start()
        closing.join(0.5)  # to its end, unless it has to wait for us
        inner(self, attrs)

    monkeypatch.setattr(StagedFile, "set_attributes", met)
    made.staging.set_attributes("/d/f", Attributes(mtime_ns=10**18))
    closing.join()
    assert from_metadata(made.store.describe("f").metadata).mtime_ns == 10**18
    assert made.staging.find("/d/f") is None
    assert made.objects() == {"f": b"1"}


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_editing_keeps_what_others_have_put_on_an_object(request: pytest.FixtureRequest, kind: str):
    made: World = request.getfixturevalue(kind)
    made.store.put("f", b"1", metadata={"mode": "33216", "uid": "9", "colour": "blue"})
    for truncate in (False, True):
        file = made.staging.open("/d/f", None, truncate=truncate, attrs=FILE)
        file.write(0, b"22")
        file.publish()
        file.release()
        stored = made.store.describe("f").metadata
        assert (stored["mode"], stored["uid"], stored["colour"]) == ("33216", "9", "blue")
        assert stored["gid"] == "100"


def test_attributes_of_a_file_just_closed_cost_one_copy_each(s3: World):
    """As `rsync` and `pip` set them. The store is not asked what the object has: we have just sent it."""
    s3.write("/d/f", b"1")
    s3.store.calls.clear()
    s3.staging.set_attributes("/d/f", Attributes(mtime_ns=10**18))
    s3.staging.set_attributes("/d/f", Attributes(mode=0o100600))
    s3.staging.set_attributes("/d/f", Attributes(mode=0o100600))
    assert s3.store.calls == ["copy", "copy"]
    assert from_metadata(s3.store.describe("f").metadata) == Attributes(0o100600, 1000, 100, 10**18)
    assert s3.objects() == {"f": b"1"}


def test_attributes_of_an_object_that_others_have_replaced_meanwhile_leave_theirs(s3: World):
    """SeaweedFS, S3 and Ceph look at the version that a copy is to be of."""
    s3.write("/d/f", b"1")
    s3.store.inner.put("f", b"22", metadata={"colour": "blue", "uid": "7"})
    s3.staging.set_attributes("/d/f", Attributes(mode=0o100600))
    stored = s3.store.describe("f").metadata
    assert (stored["colour"], stored["uid"], stored["mode"]) == ("blue", "7", "33152")
    assert s3.objects() == {"f": b"22"}


def test_a_new_name_has_attributes_of_its_own(any_world: World):
    """What is known of an object goes with it, not with its name."""
    any_world.write("/d/a", b"1")
    any_world.write("/d/b", b"2")
    any_world.staging.set_attributes("/d/a", Attributes(mode=0o100600, mtime_ns=10**18))
    any_world.staging.rename("/d/a", "/d/b")
    any_world.staging.set_attributes("/d/b", Attributes(uid=3))
    kept = from_metadata(any_world.store.describe("b").metadata)
    expected = Attributes(0o100600, 3, 100, 10**18)
    assert kept == (expected if any_world.store.capabilities.metadata is not False else Attributes())
    any_world.staging.unlink("/d/b")
    any_world.store.inner.put("b", b"3")
    any_world.staging.set_attributes("/d/b", Attributes(mode=0o100640))
    assert from_metadata(any_world.store.describe("b").metadata).uid is None


def test_attributes_of_a_file_being_written_wait_for_nothing(s3: World):
    file = s3.staging.create("/d/f", FILE)
    s3.store.down = True
    s3.staging.set_attributes("/d/f", Attributes(mode=0o100600), wait=False)
    s3.store.down = False
    file.release()
    with pytest.raises(BlockingIOError):
        s3.staging.set_attributes("/d/f", Attributes(mode=0o100640), wait=False)
    assert from_metadata(s3.store.describe("f").metadata).mode == 0o100600


def test_where_no_metadata_is_kept_attributes_are_forgotten(tmp_path: Path):
    (tmp_path / "data").mkdir()
    with world(tmp_path, f"file://{tmp_path}/data") as made:
        made.write("/d/f", b"1")
        made.staging.set_attributes("/d/f", Attributes(mode=0o100600))
        assert made.objects() == {"f": b"1"}


# names


def test_unlink(any_world: World):
    any_world.write("/d/a/f", b"1")
    any_world.staging.unlink("/d/a/f")
    assert any_world.objects() == {}
    made = any_world.staging.made("/d/a")
    assert made is not None  # the emptied folder stays for this mount
    any_world.staging.rmdir("/d/a")
    assert any_world.staging.made("/d/a") is None


def test_unlinked_while_open(any_world: World):
    any_world.store.put("f", b"old")
    file = any_world.staging.open("/d/f", None, truncate=False, attrs=FILE)
    file.write(0, b"new")
    any_world.staging.unlink("/d/f")
    assert any_world.objects() == {}
    assert any_world.staging.find("/d/f") is None
    file.write(3, b"er")
    assert file.read(0, 9) == b"newer"
    any_world.write("/d/f", b"another")
    file.publish()
    file.release()
    assert any_world.objects() == {"f": b"another"}


def test_a_file_never_published_is_unlinked_without_a_request(memory: World):
    file = memory.staging.create("/d/f", FILE)
    memory.staging.unlink("/d/f")
    file.release()
    assert memory.store.calls == []
    assert memory.objects() == {}


def test_rename_a_file(any_world: World):
    any_world.write("/d/a", b"a")
    any_world.write("/d/b", b"b")
    any_world.staging.rename("/d/a", "/d/b")
    assert any_world.objects() == {"b": b"a"}
    any_world.staging.rename("/d/b", "/d/x/y")
    assert any_world.objects() == {"x/y": b"a"}
    any_world.write("/d/c", b"c")
    with pytest.raises(AlreadyExistsError):
        any_world.staging.rename("/d/c", "/d/x/y", replace=False)
    with pytest.raises(NotFoundError):
        any_world.staging.rename("/d/none", "/d/z")


def test_rename_a_file_that_is_open(any_world: World):
    staging = any_world.staging
    new = staging.create("/d/new", FILE)
    new.write(0, b"n")
    staging.rename("/d/new", "/d/new2")
    assert (new.path, any_world.objects()) == ("/d/new2", {"new2": b"n"})
    new.write(1, b"m")
    staging.rename("/d/new2", "/d/new3")
    assert any_world.objects() == {"new3": b"n"}
    other = staging.create("/d/other", FILE)
    other.write(0, b"other")
    staging.rename("/d/new3", "/d/other")  # over one that is open: its handle goes on, unpublished
    other.publish()
    new.publish()
    new.release()
    other.release()
    assert any_world.objects() == {"other": b"nm"}
    assert staging.below("/d") == []


def test_rename_a_folder(any_world: World):
    for name in ("f", "in/g", "in/deep/h"):
        any_world.write(f"/d/old/{name}", name.encode())
    any_world.write("/d/older", b"stays")
    file = any_world.staging.create("/d/old/in/open", FILE)
    file.write(0, b"open")
    any_world.staging.rename("/d/old", "/d/new")
    assert file.path == "/d/new/in/open"
    file.publish()
    file.release()
    expected = {f"new/{name}": name.encode() for name in ("f", "in/g", "in/deep/h")}
    expected |= {"older": b"stays", "new/in/open": b"open"}
    assert {key: data for key, data in any_world.objects().items() if not key.endswith("/")} == expected
    assert not any_world.staging.hides("/d/old")
    with refused(errno.ENOTEMPTY):
        any_world.write("/d/full/f", b"")
        any_world.staging.rename("/d/new", "/d/full")
    with refused(errno.EINVAL):
        any_world.staging.rename("/d/new", "/d/new/in/itself")


def test_a_folder_rename_that_fails_has_changed_nothing(memory: World):
    for number in range(30):
        memory.write(f"/d/old/{number}", b"x")
    before = memory.objects()
    original = memory.store.inner.copy
    count = 0

    def copy(source: str, target: str, **kw: object) -> None:
        nonlocal count
        count += 1
        if count == 20:
            raise TryAgainError("no", path=source)
        original(source, target)

    memory.store.inner.copy = copy  # type: ignore[method-assign]
    with pytest.raises(TryAgainError):
        memory.staging.rename("/d/old", "/d/new")
    assert memory.objects() == before
    assert not memory.staging.hides("/d/old")
    assert memory.staging.backlog() == []
    memory.staging.rename("/d/old", "/d/new")
    assert set(memory.objects()) == {f"new/{number}" for number in range(30)}


def test_what_another_writes_under_the_old_name_meanwhile_stays(memory: World):
    memory.write("/d/old/a", b"1")
    memory.write("/d/old/b", b"1")
    original, copied = memory.store.inner.copy, threading.Event()

    def copy(source: str, target: str, **kw: object) -> None:
        original(source, target)
        if source == "old/a":
            copied.set()
        else:
            assert copied.wait(20)
            memory.store.inner.put("old/a", b"newer")
            memory.store.inner.put("old/c", b"new")

    memory.store.inner.copy = copy  # type: ignore[method-assign]
    memory.staging.rename("/d/old", "/d/new")
    assert memory.objects() == {"new/a": b"1", "new/b": b"1", "old/a": b"newer", "old/c": b"new"}


def test_while_a_folder_moves_only_one_of_its_names_shows(memory: World):
    for number in range(20):
        memory.write(f"/d/old/{number}", b"x")
    seen: set[tuple[bool, bool]] = set()
    inner = memory.store.inner
    copy, delete = inner.copy, inner.delete

    def look() -> None:
        seen.add((memory.staging.hides("/d/old/1"), memory.staging.hides("/d/new/1")))

    inner.copy = lambda *args, **kw: (look(), copy(*args, **kw), look())[1]  # type: ignore[method-assign]
    inner.delete = lambda keys: (look(), delete(keys), look())[1]  # type: ignore[method-assign]
    memory.staging.rename("/d/old", "/d/new")
    assert seen == {(False, True), (True, False)}


def test_a_rename_is_listed_as_pending_while_it_is_tried_again(memory: World):
    """An empty list says that the old objects are gone."""
    memory.write("/d/old/a", b"1")
    inner, tried, go = memory.store.inner, threading.Event(), threading.Event()
    delete, calls = inner.delete, iter([False])

    def refuse(keys: Any) -> Any:
        if next(calls, True):
            tried.set()
            assert go.wait(20)
            return delete(keys)
        raise TryAgainError("away")

    inner.delete = refuse  # type: ignore[method-assign]
    memory.staging.rename("/d/old", "/d/new")
    assert tried.wait(20)
    assert [one.path for one in memory.staging.backlog()] == ["/d/old"]
    go.set()
    assert memory.staging.drain(20)
    assert (memory.staging.backlog(), memory.objects()) == ([], {"new/a": b"1"})


def test_writers_below_a_moving_folder_wait_for_it(memory: World):
    memory.write("/d/old/a", b"1")
    inner, entered, go = memory.store.inner, threading.Event(), threading.Event()
    copy = inner.copy

    def slow(source: str, target: str, **kw: object) -> None:
        entered.set()
        assert go.wait(20)
        copy(source, target)

    inner.copy = slow  # type: ignore[method-assign]
    file = memory.staging.create("/d/old/open", FILE)
    file.write(0, b"2")
    threads = [
        threading.Thread(target=memory.staging.rename, args=("/d/old", "/d/new"), kwargs={"folder": True}),
        threading.Thread(target=file.publish),
        threading.Thread(target=memory.write, args=("/d/old/late", b"3")),
    ]
    threads[0].start()
    assert entered.wait(20)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    file.release()
    assert memory.objects() == {"new/a": b"1", "new/open": b"2", "old/late": b"3"}


def test_a_create_that_may_not_wait_waits_for_no_rename(memory: World):
    memory.write("/d/old/a", b"1")
    inner, tried = memory.store.inner, []
    copy = inner.copy

    def look(source: str, target: str, **kw: object) -> None:
        with pytest.raises(BlockingIOError):
            memory.staging.create("/d/old/late", FILE, wait=False)
        memory.staging.create("/d/elsewhere", FILE, wait=False).release()
        tried.append(source)
        copy(source, target)

    inner.copy = look  # type: ignore[method-assign]
    memory.staging.rename("/d/old", "/d/new", folder=True)
    assert tried == ["old/a"]
    memory.staging.create("/d/old/late", FILE, wait=False).release()
    assert memory.objects() == {"new/a": b"1", "elsewhere": b"", "old/late": b""}


@pytest.mark.parametrize("name", ["a\\b", "x//y", "x/../y", "./y"])
def test_a_create_that_may_not_wait_asks_no_store_about_its_key(s3: World, name: str):
    asked = s3.store.inner.check_key
    s3.store.inner.check_key = lambda key: pytest.fail(f"asked about {key}")  # type: ignore[method-assign]
    with pytest.raises(BlockingIOError):
        s3.staging.create(f"/d/{name}", FILE, wait=False)
    s3.store.inner.check_key = asked  # type: ignore[method-assign]


def test_local_files_are_spread_over_the_disk(memory: World):
    """ext4 alone knows how; it needs a tenth of the time for a new file then, where many were deleted."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", memory.folder], capture_output=True, text=True, check=True).stdout
    memory.write("/d/f", b"1")  # elsewhere nothing is asked but that files can be made
    if kind.startswith("ext"):
        fd = os.open(memory.folder / "files", os.O_RDONLY)
        flags = bytearray(8)
        fcntl.ioctl(fd, 0x80086601, flags, True)
        os.close(fd)
        assert int.from_bytes(flags[:4], "little") & 0x00020000


def test_two_stores_are_two_file_systems(memory: World):
    memory.ns.attach("/e", f"memory://{secrets.token_hex(8)}")
    memory.write("/d/f", b"1")
    with refused(errno.EXDEV):
        memory.staging.rename("/d/f", "/e/f")
    memory.ns.attach("/d/in/e", f"memory://{secrets.token_hex(8)}")
    memory.write("/d/in/f", b"1")
    for wrong in (lambda: memory.staging.rename("/d/in", "/d/out"), lambda: memory.staging.rmdir("/d/in")):
        with refused(errno.EBUSY):
            wrong()


def test_mkdir_and_rmdir(any_world: World):
    staging = any_world.staging
    staging.mkdir("/d/a", FOLDER)
    staging.mkdir("/d/a/b", FOLDER)
    assert staging.made("/d/a") is not None or any_world.ns.stat("/d/a/").kind == "folder"
    with refused(errno.ENOTEMPTY):
        staging.rmdir("/d/a")
    any_world.write("/d/a/b/f", b"1")
    with refused(errno.ENOTEMPTY):
        staging.rmdir("/d/a/b")
    file = staging.create("/d/a/b/g", FILE)
    staging.unlink("/d/a/b/f")
    with refused(errno.ENOTEMPTY):
        staging.rmdir("/d/a/b")
    staging.unlink("/d/a/b/g")
    file.release()
    staging.rmdir("/d/a/b")
    staging.rmdir("/d/a")
    assert any_world.objects() == {}
    assert staging.below("/d") == staging.below("/d/a") == []


def test_a_folder_lasts_until_it_is_removed(any_world: World):
    any_world.staging.mkdir("/d/a", FOLDER)
    again = any_world.crash()
    again.recover()
    assert again.made("/d/a") is not None or any_world.ns.stat("/d/a/").kind == "folder"
    again.rmdir("/d/a")
    last = any_world.crash()
    last.recover()
    assert last.made("/d/a") is None
    assert any_world.objects() == {}


def test_symlinks(any_world: World):
    any_world.staging.symlink("/d/link", "../some/where ü")
    assert any_world.objects() == {"link.rclonelink": "../some/where ü".encode()}
    any_world.staging.rename(link_path("/d/link"), link_path("/d/link2"), folder=False)
    any_world.staging.unlink(link_path("/d/link2"))
    assert any_world.objects() == {}


def test_a_link_replaced_by_a_file(memory: World):
    memory.staging.symlink("/d/x", "target")
    memory.write("/d/f", b"1")
    memory.staging.rename("/d/f", "/d/x", displaced=link_path("/d/x"))
    assert memory.objects() == {"x": b"1"}


# what is refused, what fails


@pytest.mark.parametrize("whole", [False, True])
def test_read_only_is_refused_before_any_request(tmp_path: Path, whole: bool):
    options = StagingOptions(read_only=whole)
    with world(tmp_path, f"memory://{secrets.token_hex(8)}", options=options, read_only=not whole) as made:
        staging = made.staging
        for wrong in (
            lambda: staging.create("/d/f", FILE),
            lambda: staging.open("/d/f", None, truncate=True, attrs=FILE),
            lambda: staging.unlink("/d/f"),
            lambda: staging.rename("/d/f", "/d/g"),
            lambda: staging.mkdir("/d/f", FOLDER),
            lambda: staging.rmdir("/d/f"),
            lambda: staging.symlink("/d/f", "x"),
            lambda: staging.set_attributes("/d/f", FILE),
        ):
            with pytest.raises(ReadOnlyError):
                wrong()
        assert made.store.calls == []


def test_two_live_mounts_do_not_share_a_folder(memory: World):
    with pytest.raises(InputError):
        Staging(str(memory.folder), memory.ns)
    memory.staging.close()
    Staging(str(memory.folder), memory.ns).close()


def test_a_publish_that_fails_is_kept_listed_and_sent_later(any_world: World):
    any_world.store.down = True
    file = any_world.staging.create("/d/f", FILE)
    file.write(0, b"content")
    for _ in range(2):
        with pytest.raises(TryAgainError):
            file.publish()
    file.release()
    assert any_world.staging.find("/d/f") is file
    waiting = any_world.staging.backlog()
    assert [(one.path, one.bytes) for one in waiting] == [("/d/f", 7)]
    assert "away" in waiting[0].error
    assert not any_world.staging.drain(0.2)
    any_world.store.down = False
    assert any_world.staging.drain(20)
    assert any_world.objects() == {"f": b"content"}
    assert any_world.staging.backlog() == []
    assert any_world.staging.find("/d/f") is None


def test_what_the_store_refuses_for_good_is_kept_and_not_waited_for(memory: World):
    put = memory.store.inner.put

    def picky(key: str, data: object, **kw: object) -> object:
        if key == "bad":
            raise InputError("no such keys here", path=key)
        return put(key, data, **kw)  # type: ignore[arg-type]

    memory.store.inner.put = picky  # type: ignore[method-assign]
    with pytest.raises(InputError):
        memory.write("/d/bad", b"content")
    began = time.monotonic()
    assert not memory.staging.drain(60)
    assert time.monotonic() - began < 20
    assert [one.path for one in memory.staging.backlog()] == ["/d/bad"]
    memory.write("/d/good", b"content")
    assert memory.objects() == {"good": b"content"}
    memory.staging.unlink("/d/bad")
    assert memory.staging.drain(20)


def test_what_failed_can_still_be_edited_renamed_and_unlinked(memory: World):
    memory.store.down = True
    for name in ("a", "b"):
        with pytest.raises(TryAgainError):
            memory.write(f"/d/{name}", name.encode())
    again = memory.staging.open("/d/a", None, truncate=False, attrs=FILE)
    again.write(1, b"+")
    again.release()
    memory.store.down = False
    memory.staging.rename("/d/a", "/d/c")
    memory.staging.unlink("/d/b")
    assert memory.staging.drain(20)
    assert memory.objects() == {"c": b"a+"}


def test_after_a_crash_what_was_promised_is_published(any_world: World):
    any_world.store.down = True
    with pytest.raises(TryAgainError):
        any_world.write("/d/failed", b"promised")
    open_file = any_world.staging.create("/d/open", FILE)
    open_file.write(0, b"never closed")
    again = any_world.crash()
    recovered = again.recover()
    assert recovered.pending == ("/d/failed",)
    assert [Path(kept).read_bytes() for kept in recovered.orphans] == [b"never closed"]
    assert again.drain(20)
    assert any_world.objects() == {"failed": b"promised"}
    last = any_world.crash()
    assert last.recover().pending == ()


def test_at_the_end_what_is_not_published_waits_for_the_next_mount(memory: World):
    file = memory.staging.create("/d/f", FILE)
    file.write(0, b"1")
    memory.store.down = True
    assert not memory.staging.drain(0.1)
    memory.staging.close()
    memory.store.down = False
    memory.staging = Staging(str(memory.folder), memory.ns, PATIENT)
    assert memory.staging.recover().pending == ("/d/f",)
    assert memory.staging.drain(20)
    assert memory.objects() == {"f": b"1"}


def test_a_lazily_opened_file_survives_a_crash(s3: World):
    content = os.urandom(MB) * 20
    s3.store.put("big", content)
    file = s3.staging.open("/d/big", None, truncate=False, attrs=FILE)
    file.write(9 * MB, b"changed")
    file.write(file.size, b"tail")
    s3.store.down = True
    with pytest.raises(TryAgainError):
        file.publish()
    again = s3.crash()
    assert again.recover().pending == ("/d/big",)
    assert again.drain(30)
    assert s3.objects()["big"] == content[: 9 * MB] + b"changed" + content[9 * MB + 7 :] + b"tail"


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`: a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_staging_disk_is_no_room(memory: World):
    memory.store.put("f", b"x" * 200_000)
    file = memory.staging.create("/d/new", FILE)
    with files_up_to(100_000):
        with pytest.raises(NoRoomError):
            file.write(99_000, b"y" * 2000)
        with pytest.raises(NoRoomError):
            file.truncate(200_000)
        with pytest.raises(NoRoomError):
            memory.staging.open("/d/f", None, truncate=False, attrs=FILE)
    file.truncate(0)
    file.write(0, b"fits")
    file.publish()
    file.release()
    assert memory.objects() == {"f": b"x" * 200_000, "new": b"fits"}


# killed at any request


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("folder", [False, True])
def test_a_rename_killed_at_any_request_is_finished_by_the_next_mount(tmp_path: Path, folder: bool, late: bool):
    """Before the first request nothing has happened; after it, the next mount shows and makes the rename whole."""
    killed = 0
    for last in range(60):
        with world(tmp_path / str(last), f"memory://{secrets.token_hex(8)}") as made:
            names = ("a/f", "a/in/g", "a/in/h") if folder else ("a",)
            for name in names:
                made.write(f"/d/{name}", name.encode())
            made.store.put("b", b"replaced") if not folder else None
            before = made.objects()
            made.kill_after(last, late=late)
            try:
                made.staging.rename("/d/a", "/d/b", folder=folder)
                done = True
            except Killed:
                done = False
            again = made.crash()
            recovered = again.recover()
            killed += not done and bool(recovered.renames)
            if recovered.renames:
                assert again.hides("/d/a") != again.hides("/d/b") or not folder
            assert again.drain(20)
            after = {"b" + name[1:]: name.encode() for name in names}
            assert made.objects() == after if done or recovered.renames else made.objects() in (before, after)
            assert not again.hides("/d/a")
            assert not again.hides("/d/b")
        if done:
            break
    else:
        pytest.fail("the rename never came to its end")
    assert killed >= 2  # it was seen to be resumed


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_rename_killed_while_it_is_undone(tmp_path: Path, late: bool):
    resumed = 0
    for last in range(40):
        with world(tmp_path / str(last), f"memory://{secrets.token_hex(8)}") as made:
            for name in "fgh":
                made.write(f"/d/a/{name}", name.encode())
            before, copy = made.objects(), made.store.inner.copy

            def fails(source: str, target: str, copy: object = copy, **kw: object) -> None:
                if source == "a/h":
                    raise TryAgainError("no")
                copy(source, target)  # type: ignore[operator]

            made.store.inner.copy = fails  # type: ignore[method-assign]
            made.kill_after(last, late=late)
            with pytest.raises((Killed, TryAgainError)) as ended:
                made.staging.rename("/d/a", "/d/b", folder=True)
            made.store.inner.copy = copy  # type: ignore[method-assign]
            again = made.crash()
            resumed += bool(again.recover().renames)
            assert again.drain(20)
            moved = {"b" + key[1:]: data for key, data in before.items()}
            assert made.objects() in (before, moved)
            if ended.type is TryAgainError:
                assert made.objects() == before
                break
    assert resumed >= 2


def test_a_refused_folder_rename_is_not_done_later(memory: World):
    for name in ("a/f", "b/g"):
        memory.write(f"/d/{name}", b"1")
    with refused(errno.ENOTEMPTY):
        memory.staging.rename("/d/a", "/d/b", folder=True)
    memory.staging.unlink("/d/b/g")
    assert memory.staging.drain(5)
    assert set(memory.objects()) == {"a/f"}


@pytest.mark.parametrize("how", ["unlink", "rename", "replace", "folder"])
def test_what_is_not_fetched_yet_outlives_the_object(s3: World, how: str):
    content = os.urandom(MB) * 17
    s3.store.put("a/big", content)
    s3.store.put("other", b"1")
    file = s3.staging.open("/d/a/big", None, truncate=False, attrs=FILE)
    assert not file.complete
    if how == "unlink":
        s3.staging.unlink("/d/a/big")
    elif how == "replace":
        s3.staging.rename("/d/other", "/d/a/big", folder=False)
    elif how == "rename":
        s3.staging.rename("/d/a/big", "/d/b", folder=False)
    else:
        s3.staging.rename("/d/a", "/d/b", folder=True)
    assert file.read(0, len(content)) == content
    file.write(5, b"x")
    file.publish()
    file.release()
    expected = content[:5] + b"x" + content[6:]
    held = {key: data for key, data in s3.objects().items() if key.endswith(("big", "b"))}
    assert held == {
        "unlink": {}, "replace": {"a/big": b"1"}, "rename": {"b": expected}, "folder": {"b/big": expected},
    }[how]  # fmt: skip


def test_a_change_whose_publish_failed_is_not_forgotten_by_the_next_append(s3: World):
    content = os.urandom(MB) * 18
    s3.write("/d/big", content)
    file = s3.staging.open("/d/big", None, truncate=False, attrs=FILE)
    file.write(0, b"changed")
    s3.store.down = True
    with pytest.raises(TryAgainError):
        file.publish()
    s3.store.down = False
    file.write(file.size, b"tail")
    file.publish()
    file.release()
    assert s3.objects()["big"] == b"changed" + content[7:] + b"tail"


@pytest.mark.parametrize("folder", [False, True])
def test_an_old_name_whose_deletion_failed_does_not_come_back(memory: World, folder: bool):
    """Not even when what is at the new name has been changed since, and the mount is killed."""
    old, new = ("/d/a/f", "/d/b/f") if folder else ("/d/a", "/d/b")
    memory.write(old, b"1")
    inner, delete = memory.store.inner, memory.store.inner.delete

    def fails(keys: object) -> None:
        raise TryAgainError("no")

    inner.delete = fails  # type: ignore[method-assign]
    memory.staging.rename("/d/a", "/d/b", folder=folder)
    assert memory.staging.hides(old)
    assert [waiting.path for waiting in memory.staging.backlog()] == ["/d/a"]
    with pytest.raises(TryAgainError):  # what is there is needed to tell what was copied
        memory.staging.open(new, None, truncate=True, attrs=FILE)
    inner.delete = delete  # type: ignore[method-assign]
    file = memory.staging.open(new, None, truncate=True, attrs=FILE)
    file.write(0, b"changed")
    file.publish()
    again = memory.crash()
    again.recover()
    assert again.drain(10)
    assert memory.objects() == {new[3:]: b"changed"}
