"""Whole entries: filling, reading, naming, opening, counting."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import DeniedError, InputError, InternalError
from headrace.base.settings import CacheSettings
from headrace.cache import Cache, EntryLabel
from tests.cache_kit import MB, content, entry_file, fill, named, open_cache


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 110_000, 3 * MB])
def test_what_was_filled_is_read(tmp_path: Path, size: int) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "a/b", size)
    assert cache.read(name) is None
    assert cache.path(name) is None
    assert cache.fill(name, content("a/b", size), label)
    assert cache.read(name) == content("a/b", size)
    assert cache.read_range(name, 3, 10) == content("a/b", size)[3:10]
    assert cache.read_range(name, 0, size + 5) == content("a/b", size)
    assert Path(cache.path(name) or "").read_bytes() == content("a/b", size)


def test_what_is_read_belongs_to_the_caller(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name = fill(cache, "k", 100)
    data = cache.read(name)
    assert data is not None
    data[:] = bytes(100)
    assert cache.read(name) == content("k", 100)


def test_another_cache_on_the_folder_sees_the_same(tmp_path: Path) -> None:
    first, second = open_cache(tmp_path), open_cache(tmp_path)
    name = fill(first, "k", 5000)
    assert second.read(name) == content("k", 5000)
    first.close()
    assert open_cache(tmp_path).read(name) == content("k", 5000)
    assert first.read(name) is None, "a closed cache is a miss"


def test_filling_again_keeps_one(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "k", 5000)
    assert [cache.fill(name, content("k", 5000), label) for _ in range(3)] == [True] * 3
    assert cache.status().entries == 1
    assert cache.status().fills == 1


def test_bytes_of_the_wrong_size_are_refused(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "k", 5000)
    with pytest.raises(InternalError, match="4999 bytes offered as an object of 5000"):
        cache.fill(name, bytes(4999), label)
    assert cache.read(name) is None
    assert cache.fill(name, content("k", 5000), label), "the claim was given back"


parts = st.text(st.characters(), max_size=6)


@given(st.tuples(parts, parts, parts, st.integers(0, 2**62)), st.tuples(parts, parts, parts, st.integers(0, 2**62)))
def test_names_tell_versions_apart(one: tuple[str, str, str, int], other: tuple[str, str, str, int]) -> None:
    cache = Cache.open(CacheSettings(size=0))
    assert (cache.name(*one) == cache.name(*other)) == (one == other)


def test_names_do_not_mix_up_neighbouring_parts(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    assert len({cache.name("a", "bc", "d", 1), cache.name("ab", "c", "d", 1), cache.name("a", "b", "cd", 1)}) == 3


def test_folders_are_the_users_own(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "new")
    name = fill(cache, "k", 10)
    assert stat.S_IMODE(os.stat(tmp_path / "new").st_mode) == 0o700
    assert stat.S_IMODE(os.stat(tmp_path / "new" / "v1").st_mode) == 0o700
    assert stat.S_IMODE(entry_file(cache, name).stat().st_mode) == 0o600


def test_an_open_folder_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir(mode=0o777)
    open_cache(tmp_path)
    assert stat.S_IMODE(os.stat(tmp_path / "v1").st_mode) == 0o700


def test_opening_looks_at_no_entry(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    for number in range(50):
        fill(cache, f"k{number}", 10)
    seen: list[str] = []
    active = True

    def watch(event: str, args: tuple[object, ...]) -> None:
        if active and event in ("os.listdir", "os.scandir", "open"):
            seen.append(str(args[0]))

    sys.addaudithook(watch)  # stays for good, hence the flag
    open_cache(tmp_path).status()
    active = False
    assert seen, "the hook works"
    assert not [path for path in seen if "/objects" in path or "/blocks" in path]


def test_size_zero_switches_it_off(tmp_path: Path) -> None:
    cache = open_cache(tmp_path / "c", size=0)
    name, label = named(cache, "k", 10)
    assert not cache.enabled
    assert not cache.fill(name, content("k", 10), label)
    assert (cache.claim(name), cache.read(name), cache.blocks(name, 10, label)) == (None, None, None)
    assert cache.status().reason == "its size is set to 0"
    assert not (tmp_path / "c").exists()


def test_a_folder_that_is_a_file_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="the cache folder cannot be used: File exists"):
        open_cache(tmp_path / "file")
    cache = Cache.open(CacheSettings(dir=str(tmp_path / "file")))
    assert not cache.enabled
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")
def test_another_users_folder_is_not_trusted(tmp_path: Path) -> None:
    open_cache(tmp_path)
    os.chown(tmp_path / "v1", 12345, 12345)
    with pytest.raises(DeniedError, match="belongs to another user"):
        open_cache(tmp_path)


def test_a_torn_entry_is_a_miss_and_goes(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    for cut in (0, 1, 4999, 5001):
        name = fill(cache, "k", 5000)
        os.truncate(entry_file(cache, name), cut)
        assert cache.read(name) is None
        assert not entry_file(cache, name).exists()
        assert cache.status().entries == 0
    name = fill(cache, "k", 5000)
    os.truncate(entry_file(cache, name), 0)
    assert cache.read_range(name, 0, 10) is None
    assert cache.path(name) is None


def test_entries_from_before_the_boot_are_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache(tmp_path)
    good, bad, ranged = (fill(cache, key, 5000) for key in ("good", "bad", "ranged"))
    for name in (bad, ranged):
        with entry_file(cache, name).open("r+b") as file:
            file.write(bytes(4096))  # what a power loss leaves
    assert cache.read(bad) is not None, "without a boot in between, the kernel's word is taken"
    after = max(os.stat(entry_file(cache, name)).st_ctime for name in (good, bad, ranged)) + 0.01
    while time.time() < after + 0.01:  # the kernel's clock for files is coarse
        time.sleep(0.005)
    monkeypatch.setattr("headrace.cache.reading.boot_time", lambda: after)
    booted = open_cache(tmp_path)
    assert booted.read(bad) is None
    assert booted.read_range(ranged, 4500, 4600) is None
    assert booted.read(good) == content("good", 5000)
    assert os.stat(entry_file(cache, good)).st_ctime > after, "it will not be compared again"
    assert booted.status().entries == 1


def test_labels_too_long_for_an_attribute_lie_beside(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    long = "k" * 70_000
    name = fill(cache, long, 5000)
    assert cache.verify().bad == []
    entry_file(cache, name).write_bytes(bytes(5000))
    (bad,) = cache.verify().bad
    assert bad.label == EntryLabel("s3://bucket/prefix", long, "v1", 5000)
    assert not [path for path in (tmp_path / "v1" / "labels").rglob("*") if path.is_file()]


def test_verify_finds_what_is_wrong(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = {what: fill(cache, what, 5000) for what in ("good", "flipped", "short", "unlabelled")}
    flipped = bytearray(content("flipped", 5000))
    flipped[777] ^= 1
    with entry_file(cache, names["flipped"]).open("r+b") as file:
        file.write(flipped)
    os.truncate(entry_file(cache, names["short"]), 1)
    os.removexattr(entry_file(cache, names["unlabelled"]), "user.headrace")
    report = cache.verify()
    assert {bad.name: bad.reason for bad in report.bad} == {
        names["flipped"]: "its bytes do not match their checksum",
        names["short"]: "has 1 bytes, not 5000",
        names["unlabelled"]: "has no readable label",
    }
    assert next(bad.label for bad in report.bad if bad.name == names["flipped"]) == named(cache, "flipped", 5000)[1]
    assert (report.checked, cache.status().entries) == (4, 1)
    assert cache.read(names["good"]) == content("good", 5000)
    assert cache.verify().bad == []


def test_verify_leaves_foreign_files_alone(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    fill(cache, "k", 10)
    notes = tmp_path / "v1" / "objects" / "00" / "notes.txt"
    notes.parent.mkdir(exist_ok=True)
    notes.write_text("mine")
    assert cache.verify().checked == 1
    assert cache.evict().entries == 1
    assert notes.read_text() == "mine"


def test_a_lost_or_torn_count_is_made_anew(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    for number in range(5):
        fill(cache, f"k{number}", 5000)
    before = cache.status()
    cache.close()
    usage = tmp_path / "v1" / "usage"
    for damage in (b"", b"\xff" * 36, usage.read_bytes()[:20]):
        usage.write_bytes(damage)
        again = open_cache(tmp_path)
        assert (again.status().entries, again.status().bytes) == (5, before.bytes)
        again.close()


def test_the_folder_taken_away_is_made_again(tmp_path: Path) -> None:
    import shutil

    cache = open_cache(tmp_path / "c")
    fill(cache, "k", 10)
    shutil.rmtree(tmp_path / "c")
    name, label = named(cache, "k", 10)
    assert cache.read(name) is None
    cache.fill(name, content("k", 10), label)  # kept or not, but no exception
    assert cache.read(name) in (None, content("k", 10))


def test_threads_fill_and_read_at_once(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    wrong: list[object] = []

    def work(seed: int) -> None:
        for number in range(60):
            key = f"k{(number * seed) % 20}"
            name, label = named(cache, key, 20_000)
            data = cache.read(name)
            if data is None:
                cache.fill(name, content(key, 20_000), label)
            elif data != content(key, 20_000):
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert cache.status().entries == 20
    assert cache.verify().bad == []
