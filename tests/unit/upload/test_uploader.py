"""Files into stores of this process and of this disk: whole or not at all, never torn, in bounded memory."""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    HeadraceError,
    InputError,
    NotFoundError,
    TryAgainError,
    UnsupportedError,
)
from headrace.store import Assembly, Buffer, Capabilities, ForwardingStore, ObjectInfo, Store, open_store
from headrace.upload import Item, TornError, Uploader, UploadOptions, put_many
from headrace.upload.source import Source

MIB = 1 << 20


@pytest.fixture
def uploader():
    with Uploader(UploadOptions(part=MIB, threads=3, memory=2 * MIB)) as opened:
        yield opened
        assert opened.held == 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Ten parts and a bit, written long ago."""
    path = tmp_path / "file"
    path.write_bytes(random.Random(0).randbytes(10 * MIB + 12345))
    age(path)
    return path


def age(path: Path) -> None:
    os.utime(path, (time.time() - 60, time.time() - 60))


class Meddler(ForwardingStore):
    """Does something, once or each time, just before part number `at` (0: a whole put) is sent."""

    def __init__(self, inner: Store, at: int, meddle) -> None:
        super().__init__(inner)
        self.at = at
        self.meddle = meddle
        self.most_in_flight = self.in_flight = self.begun = 0
        self.lock = threading.Lock()

    def put(self, key: str, data: Buffer, **more) -> ObjectInfo:
        if self.at == 0:
            self.meddle()
        return super().put(key, data, **more)

    def assemble(self, key: str, **more) -> Assembly:
        self.begun += 1
        return _Meddling(super().assemble(key, **more), self)


class _Meddling(Assembly):
    def __init__(self, inner: Assembly, store: Meddler) -> None:
        self.key, self.inner, self.store = inner.key, inner, store
        self.smallest, self.largest, self.most = inner.smallest, inner.largest, inner.most

    def part(self, number: int, at: int, data: Buffer) -> None:
        with self.store.lock:
            self.store.in_flight += len(data)
            self.store.most_in_flight = max(self.store.most_in_flight, self.store.in_flight)
        try:
            if number == self.store.at:
                self.store.meddle()
            self.inner.part(number, at, data)
        finally:
            with self.store.lock:
                self.store.in_flight -= len(data)

    def copy_part(self, number: int, at: int, source: str, start: int, stop: int, *, if_match: str | None) -> None:
        self.inner.copy_part(number, at, source, start, stop, if_match=if_match)

    def complete(self) -> ObjectInfo:
        return self.inner.complete()

    def abort(self) -> None:
        self.inner.abort()


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB, None])
def test_a_file_arrives(store: Store, uploader: Uploader, file: Path, size: int | None) -> None:
    expected = file.read_bytes()[:size]
    for given in (file, str(file), os.open(file, os.O_RDONLY)):
        info = uploader.put_file(store, "a/b", given, size)
        assert (info.key, info.size, info.version) == ("a/b", len(expected), store.head("a/b").version)
        assert bytes(store.get("a/b").data) == expected
        store.delete(["a/b"])
        if isinstance(given, int):
            assert os.lseek(given, 0, os.SEEK_CUR) == 0  # neither moved nor closed
            os.close(given)


def test_memory_is_bounded(store: Store, uploader: Uploader, file: Path) -> None:
    watched = Meddler(store, -1, None)
    uploader.put_file(watched, "a", file)
    assert 0 < watched.most_in_flight <= uploader.options.memory


def test_conditions_and_what_is_not_there(store: Store, uploader: Uploader, file: Path, tmp_path: Path) -> None:
    for size in (10, None):
        first = uploader.put_file(store, f"{size}", file, size, create=True)
        with pytest.raises(AlreadyExistsError):
            uploader.put_file(store, f"{size}", file, size, create=True)
        uploader.put_file(store, f"{size}", file, 2 * MIB, if_match=first.version)
        with pytest.raises(ChangedError):
            uploader.put_file(store, f"{size}", file, size, if_match=first.version)
        assert store.head(f"{size}").size == 2 * MIB
    with pytest.raises(NotFoundError):
        uploader.put_file(store, "a", tmp_path / "none")
    with pytest.raises(InputError):
        uploader.put_file(store, "a", tmp_path)
    with pytest.raises(ChangedError, match="holds"):
        uploader.put_file(store, "a", file, 1 << 40)


def test_metadata_goes_with_it(uploader: Uploader, file: Path) -> None:
    store = open_store("memory://metadata")
    for size in (5, 3 * MIB):
        uploader.put_file(store, "a", file, size, {"mode": "33188"})
        assert store.describe("a").metadata == {"mode": "33188"}
    base = store.head("a")
    uploader.append(store, "a", base, file, None, {"mode": "33261"})
    assert store.describe("a").metadata == {"mode": "33261"}


# Files that change while they are read


@pytest.mark.parametrize(("at", "size"), [(0, 1000), (3, None)])
def test_a_file_that_changes_once_is_sent_as_it_is_then(
    store: Store, uploader: Uploader, file: Path, at: int, size: int | None
) -> None:
    """Parts were read already: the object must hold none of them beside newer ones."""
    new = random.Random(9).randbytes(file.stat().st_size if size is None else size)
    if size is not None:
        file.write_bytes(file.read_bytes()[:size])
        age(file)
    rewritten = iter([lambda: file.write_bytes(new)])
    watched = Meddler(store, at, lambda: next(rewritten, lambda: None)())
    uploader.put_file(watched, "a", file)
    sent = bytes(store.get("a").data)
    assert sent == new if at else len(sent) == len(new)  # a whole put had read all before: the state before is right


def test_a_file_that_never_stops_changing_is_given_up(store: Store, uploader: Uploader, file: Path) -> None:
    def touch() -> None:
        with open(file, "r+b") as writer:
            writer.write(b"x")
        os.utime(file, ns=(0, random.randrange(1 << 60)))

    store.put("a", b"as it was")
    watched = Meddler(store, 2, touch)
    with pytest.raises(TornError):
        uploader.put_file(watched, "a", file)
    assert watched.begun == uploader.options.tries
    assert bytes(store.get("a").data) == b"as it was"
    assert not store.unfinished()


def test_a_file_cut_short_meanwhile(store: Store, uploader: Uploader, file: Path) -> None:
    watched = Meddler(store, 1, lambda: os.truncate(file, 4 * MIB))
    try:
        uploader.put_file(watched, "a", file)
    except ChangedError:
        assert [one for page in store.list() for one in page] == []
    else:
        assert store.head("a").size == 4 * MIB
    with pytest.raises(ChangedError):
        uploader.put_file(store, "b", file, 5 * MIB)


def test_a_fresh_small_file_is_read_twice(store: Store, uploader: Uploader, tmp_path: Path) -> None:
    """Written in this tick of the kernel's clock: neither size nor time would tell of another write in it."""
    path = tmp_path / "fresh"
    stop = threading.Event()

    def rewrite() -> None:
        descriptor = os.open(path, os.O_RDWR)
        number = 0
        while not stop.is_set():
            number = (number + 1) % 256
            os.pwrite(descriptor, bytes([number]), 0)
            os.pwrite(descriptor, bytes([number]), 899_999)
        os.close(descriptor)

    def head_and_tail_agree() -> bool:
        """As they did at every moment of the file: the tail is as new as the head, or one behind."""
        data = store.get("a").data
        return len(data) == 900_000 and (data[0] - data[-1]) % 256 in (0, 1)

    path.write_bytes(bytes(900_000))
    writer = threading.Thread(target=rewrite)
    writer.start()
    try:
        for _ in range(100):
            try:
                uploader.put_file(store, "a", path)
            except ChangedError:
                continue
            assert head_and_tail_agree()
    finally:
        stop.set()
        writer.join()
    uploader.put_file(store, "a", path)
    assert head_and_tail_agree()


def test_a_growing_file_may_grow(store: Store, uploader: Uploader, file: Path) -> None:
    def grow() -> None:
        with open(file, "ab") as writer:
            writer.write(b"more")

    before = file.read_bytes()
    watched = Meddler(store, 2, grow)
    info = uploader.put_file(watched, "log", file, growing=True)
    assert watched.begun == 1
    assert bytes(store.get("log").data) == before
    cut = Meddler(store, 2, lambda: os.truncate(file, 3 * MIB))
    with pytest.raises(ChangedError):
        uploader.put_file(cut, "log", file, len(before), growing=True)
    assert store.head("log").size == info.size


# Appending


def test_appending_on_a_disk_copies_what_is_there(tmp_path: Path, uploader: Uploader, file: Path) -> None:
    store = open_store(f"file://{tmp_path}/store")
    sent = Counted(store)
    base = uploader.put_file(sent, "log", file, 6 * MIB)
    sent.sent = 0
    data = file.read_bytes()
    info = uploader.append(sent, "log", base, file)
    assert bytes(store.get("log").data) == data
    assert sent.sent == len(data) - 6 * MIB
    assert uploader.append(sent, "log", info, file) == info  # nothing new
    with pytest.raises(ChangedError):
        uploader.append(sent, "log", base, file)
    os.truncate(file, MIB)
    with pytest.raises(ChangedError, match="shorter"):
        uploader.append(sent, "log", info, file)
    assert bytes(store.get("log").data) == data


def test_appending_to_a_small_or_uncopyable_object_sends_it_whole(
    store: Store, uploader: Uploader, file: Path
) -> None:
    data = file.read_bytes()
    base = uploader.put_file(store, "log", file, 1000)
    base = uploader.append(store, "log", base, file, 2000)
    assert bytes(store.get("log").data) == data[:2000]
    store.put("log", b"another's")
    with pytest.raises(ChangedError):
        uploader.append(store, "log", base, file, 3000)
    with pytest.raises(ChangedError):
        uploader.append(store, "log", base, file)
    assert bytes(store.get("log").data) == b"another's"


class Counted(ForwardingStore):
    """Counts the bytes sent."""

    sent = 0

    def put(self, key: str, data: Buffer, **more) -> ObjectInfo:
        self.sent += len(data)
        return super().put(key, data, **more)

    def assemble(self, key: str, **more) -> Assembly:
        return _Counting(super().assemble(key, **more), self)


class _Counting(_Meddling):
    def part(self, number: int, at: int, data: Buffer) -> None:
        with _counting:
            self.store.sent += len(data)
        self.inner.part(number, at, data)


_counting = threading.Lock()


def test_a_store_found_unable_to_copy_parts_is_remembered(tmp_path: Path, uploader: Uploader, file: Path) -> None:
    class Unable(Counted):
        seen = Capabilities(parts=True)

        @property
        def capabilities(self):
            return self.seen

        def record(self, seen):
            self.seen = seen

        def assemble(self, key, **more):
            return _Unable(super(Counted, self).assemble(key, **more), self)

    class _Unable(_Counting):
        def copy_part(self, *_, **__) -> None:
            raise UnsupportedError("not here")

    store = Unable(open_store(f"file://{tmp_path}/store"))
    base = uploader.put_file(store, "log", file, 6 * MIB)
    uploader.append(store, "log", base, file)
    assert store.capabilities.copied_parts is False
    assert bytes(store.get("log").data) == file.read_bytes()


# Ends before the end


def test_cancelling_leaves_nothing(store: Store, uploader: Uploader, file: Path) -> None:
    cancel = threading.Event()
    watched = Meddler(store, 4, cancel.set)
    with pytest.raises(TryAgainError, match="stopped"):
        uploader.put_file(watched, "a", file, cancel=cancel)
    with pytest.raises(TryAgainError):
        uploader.put_file(store, "a", file, 10, cancel=cancel)
    assert [one for page in store.list() for one in page] == []
    assert not store.unfinished()


def test_one_part_that_fails_ends_all(store: Store, uploader: Uploader, file: Path) -> None:
    def fail() -> None:
        raise TryAgainError("no luck")

    for error in (fail, lambda: 1 / 0):
        with pytest.raises(HeadraceError, match=r"luck|ZeroDivision"):
            uploader.put_file(Meddler(store, 5, error), "a", file)
        assert [one for page in store.list() for one in page] == []
        assert not store.unfinished()
    assert uploader.put_file(store, "a", file).size == file.stat().st_size


def test_bandwidth_is_bounded(store: Store, file: Path) -> None:
    with Uploader(UploadOptions(part=MIB, bandwidth=20 * MIB)) as slow:
        began = time.monotonic()
        slow.put_file(store, "a", file)
        assert 0.35 < time.monotonic() - began < 5
    with pytest.raises(InputError):
        UploadOptions(bandwidth=0)


# Many


def test_many_files_each_with_its_outcome(store: Store, uploader: Uploader, tmp_path: Path) -> None:
    items = [Item(f"many/{number:03d}", tmp_path / f"{number:03d}") for number in range(120)]
    for item in items:
        Path(item.file).write_bytes(item.key.encode() * 50)
    Path(items[7].file).unlink()
    progress = Progress()
    outcomes = list(put_many(uploader, store, items, progress=progress))
    assert {one.item for one in outcomes} == set(items)
    assert [one.item for one in outcomes if one.error] == [items[7]]
    assert isinstance(next(one.error for one in outcomes if one.error), NotFoundError)
    listed = {info.key: info for page in store.list("many/") for info in page}
    assert {one.item.key: one.info.version for one in outcomes if one.info} == {
        key: info.version for key, info in listed.items()
    }
    assert (progress.items, progress.size) == (119, 119 * 8 * 50)
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-upload-many"]


def test_many_files_can_be_left_early(store: Store, uploader: Uploader, file: Path) -> None:
    read: list[int] = []

    def endless():
        while True:
            read.append(1)
            yield Item(f"{len(read)}", file)

    outcomes = put_many(uploader, store, endless())
    next(outcomes)
    outcomes.close()
    assert len(read) < 20
    assert not [thread for thread in threading.enumerate() if thread.name == "headrace-upload-many"]

    def broken():
        yield Item("x", file)
        raise LookupError("the list of files broke off")

    with pytest.raises(LookupError):
        list(put_many(uploader, store, broken()))


class Progress:
    def __init__(self) -> None:
        self.items = self.size = 0
        self.lock = threading.Lock()

    def total(self, items, size=None) -> None: ...

    def advance(self, items: int = 1, size: int = 0) -> None:
        with self.lock:
            self.items += items
            self.size += size


def test_a_change_that_no_time_tells_is_seen_in_a_fresh_file(tmp_path: Path) -> None:
    """On kernels whose file times tick, two writes in one tick leave the same time."""
    path = tmp_path / "fresh"

    class Overtaken(Source):
        def read(self, at: int, view: memoryview) -> None:
            super().read(at, view)
            os.pwrite(self.descriptor, b"NEW", 0)
            os.utime(self.descriptor, ns=(self._stamp.mtime_ns, self._stamp.mtime_ns))

    for age_s, seen in ((0, True), (1, False)):
        path.write_bytes(b"old bytes")
        moment = time.time_ns() - age_s * 10**9
        os.utime(path, ns=(moment, moment))
        with path.open("r+b") as opened:
            source = Overtaken(opened.fileno(), None, growing=False, name=str(path))
            if seen:
                with pytest.raises(TornError):
                    source.read_whole(memoryview(bytearray(9)))
            else:
                source.read_whole(memoryview(bytearray(9)))  # an old file is read once: its time would tell
