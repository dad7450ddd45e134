"""Many entries read, or filled, together: exactly what doing so with each gives, with io_uring and without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.base.errors import InternalError
from headrace.base.settings import CacheSettings
from headrace.cache import Busy, Cache, Claim, Fill, batch_io
from headrace.cache.batch_io.plain import PlainCalls
from headrace.checkup.node import check_cache
from tests.cache_kit import MB, content, entry_file, fill, named, open_cache, read_many


@pytest.fixture(params=["as the kernel has it", "no io_uring"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no io_uring":
        monkeypatch.setattr(batch_io, "chosen", PlainCalls)


def fill_of(cache: Cache, key: str, size: int, claim: Claim | None = None) -> Fill:
    name, label = named(cache, key, size)
    return Fill(name, memoryview(content(key, size)), label, claim)


def fills_of(cache: Cache, count: int, size: int = 5000) -> list[Fill]:
    return [fill_of(cache, f"k{number}", size) for number in range(count)]


def claimed(cache: Cache, key: str, size: int) -> Claim:
    claim = cache.claim(named(cache, key, size)[0])
    assert isinstance(claim, Claim)
    return claim


SIZES = [0, 1, 4095, 4096, 4097, 110_000, 2 * MB, 900_000, *range(1000, 150_000, 1013)]


def test_all_are_read_each_its_own(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    keys = [f"k{number}" for number in range(len(SIZES))]
    names = [fill(cache, key, size) for key, size in zip(keys, SIZES, strict=True)]
    for _ in range(3):
        found = read_many(cache, names)
        assert [None if one is None else bytes(one) for one in found] == list(map(content, keys, SIZES))
    status = cache.status()
    assert (status.hits, status.misses) == (3 * len(names), 0)
    assert cache._metrics.get("cache.bytes_read") == 3 * sum(SIZES)
    assert read_many(cache, []) == []


def test_what_is_not_there_is_none_and_counted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(100)]
    absent = [named(cache, f"other{number}", 5000)[0] for number in range(100)]
    mixed = [name for pair in zip(names, absent, strict=True) for name in pair]
    found = read_many(cache, mixed)
    assert found[1::2] == [None] * 100
    assert found[::2] == [content(f"k{number}", 5000) for number in range(100)]
    assert (cache.status().hits, cache.status().misses) == (100, 100)


def test_what_is_read_belongs_to_the_caller(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    data = read_many(cache, names)[1]
    assert data is not None
    data[:] = bytes(5000)
    assert read_many(cache, names) == [content(f"k{number}", 5000) for number in range(3)]


@pytest.mark.parametrize("known", [False, True])
def test_a_damaged_entry_is_a_miss_and_removed(tmp_path: Path, known: bool) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(5)]
    if known:
        assert None not in read_many(cache, names)
    os.truncate(entry_file(cache, names[2]), 4000)
    assert [one is None for one in read_many(cache, names)] == [False, False, True, False, False]
    assert not entry_file(cache, names[2]).exists()
    assert cache._metrics.get("cache.errors") == 1


def test_a_use_is_noted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(4)]
    for name in names:
        os.utime(entry_file(cache, name), (1_000_000, 1_000_000))
    assert None not in read_many(cache, names)
    assert all(entry_file(cache, name).stat().st_mtime > 1_000_000 for name in names)


def test_an_entry_that_cannot_be_read_is_a_mark_against_the_disk(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    entry_file(cache, names[1]).unlink()
    entry_file(cache, names[1]).mkdir()
    for _ in range(5):
        found = read_many(cache, names)
        assert found[1] is None
    assert cache._metrics.get("cache.errors") >= 1


def test_a_closed_cache_is_a_miss(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    cache.close()
    assert read_many(cache, names) == [None] * 3


def test_all_are_filled_each_its_own(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    fills = [fill_of(cache, f"k{number}", size) for number, size in enumerate(SIZES)]
    open_before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        cache.fill_many(fills)
        cache.settle()
        assert len(os.listdir("/proc/self/fd")) <= open_before + 1, "its ring"
        assert [cache.read(fill.name) for fill in fills] == [fill.data for fill in fills]
        status = cache.status()
        assert (status.fills, status.entries, status.shed) == (len(fills), len(fills), 0)
        assert cache._metrics.get("cache.bytes_filled") == sum(SIZES)
    held = cache.status().bytes
    report = cache.verify()
    assert (report.checked, report.bad, report.swept) == (len(fills), [], 0)
    assert cache.status().bytes == held, "what was reserved is what they take"
    assert entry_file(cache, fills[5].name).stat().st_mode & 0o777 == 0o600
    cache.fill_many([])


def test_claims_end_with_their_fills(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    keys = [f"k{number}" for number in range(70)]
    claims = [claimed(cache, key, 5000) if number % 2 else None for number, key in enumerate(keys)]
    fills = [fill_of(cache, key, 5000, claim) for key, claim in zip(keys, claims, strict=True)]
    waiting = other.claim(fills[1].name)
    assert isinstance(waiting, Busy)
    assert not waiting.wait(0)
    cache.fill_many(fills)
    assert waiting.wait(0)
    assert [other.read(fill.name) for fill in fills] == [fill.data for fill in fills]
    assert all(isinstance(other.claim(fill.name), Busy) for fill in fills), "they are there"
    other.evict()
    assert all(isinstance(other.claim(fill.name), Claim) for fill in fills), "nobody has them any more"


def test_who_comes_second_with_an_entry_spoils_nothing(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    fills = fills_of(cache, 20)
    other.fill_many(fills[5:10])
    os.truncate(entry_file(cache, fills[7].name), 100)  # a torn one is put right
    cache.fill_many(fills)
    assert [other.read(fill.name) for fill in fills] == [fill.data for fill in fills]
    assert cache.status().fills == 16
    assert cache.verify().bad == []


def test_one_with_bytes_of_another_size_is_refused(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    wrong, *good = fills_of(cache, 30)
    with pytest.raises(InternalError, match="4999 bytes offered as an object of 5000"):
        cache.fill_many([Fill(wrong.name, wrong.data[:-1], wrong.label), *good])
    assert cache.read(wrong.name) is None


def test_the_limit_holds(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=MB)
    for start in range(0, 600, 50):
        cache.fill_many([fill_of(cache, f"k{number}", 10_000) for number in range(start, start + 50)])
        files = [path for path in (tmp_path / "v1" / "objects").rglob("*") if path.is_file()]
        assert sum(path.stat().st_blocks * 512 for path in files) <= MB
    cache.settle()
    assert cache.status().evicted > 300
    assert cache.status().entries > 30
    cache.fill_many([fill_of(cache, f"large{number}", 900_000) for number in range(3)])  # not all together, but one
    assert cache.status().bytes <= MB
    assert cache.verify().bad == []


def test_a_label_too_long_for_an_attribute_lies_beside_its_entry(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    fills = [*fills_of(cache, 20), fill_of(cache, "long/" + "x" * 70_000, 10)]
    cache.fill_many(fills)
    assert [cache.read(fill.name) for fill in fills] == [fill.data for fill in fills]
    assert cache.verify().bad == []
    assert cache.verify().checked == 21


def test_a_few_are_filled_one_by_one(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    fills = fills_of(cache, 3)
    cache.fill_many(fills)
    assert [cache.read(fill.name) for fill in fills] == [fill.data for fill in fills]
    assert cache.status().fills == 3


def test_what_others_cannot_have_is_filled_one_by_one(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    fills = fills_of(cache, 30)
    entry_file(cache, fills[3].name).parent.mkdir(parents=True, exist_ok=True)
    entry_file(cache, fills[3].name).mkdir()  # in the way of one
    cache.fill_many(fills)
    assert [cache.read(fill.name) for fill in fills if fill is not fills[3]] == [
        fill.data for fill in fills if fill is not fills[3]
    ]


def test_a_cache_that_keeps_nothing_takes_them_and_lets_claims_go(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    fills = [fill_of(cache, "k", 5000, claimed(cache, "k", 5000)), *fills_of(cache, 3, 600)]
    cache.close()
    cache.fill_many(fills)
    del fills[0]
    assert other.status().entries <= 1
    assert not isinstance(other.claim(named(other, "k", 5000)[0]), Busy) or other.read(named(other, "k", 5000)[0])


def test_doctor_says_which_way_they_are_read(tmp_path: Path) -> None:
    found = {one.id: one for one in check_cache(CacheSettings(dir=str(tmp_path), min_free=0))}["cache-reads"]
    way = batch_io.chosen().name
    assert way in found.text
    assert found.status == ("ok" if way == batch_io.IO_URING else "note")
    assert (found.advice is None) == (way == batch_io.IO_URING)
