"""Many entries read together: exactly what reading each gives, with io_uring and without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.base import uring
from headrace.base.settings import CacheSettings
from headrace.cli.checkup.node import check_cache
from tests.cache_kit import MB, content, entry_file, fill, named, open_cache


@pytest.fixture(params=["as the kernel has it", "no io_uring"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "no io_uring":
        monkeypatch.setattr(uring, "mine", lambda: None)


SIZES = [0, 1, 4095, 4096, 4097, 110_000, 2 * MB, 900_000, *range(1000, 150_000, 1013)]


def test_all_are_read_each_its_own(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    keys = [f"k{number}" for number in range(len(SIZES))]
    names = [fill(cache, key, size) for key, size in zip(keys, SIZES, strict=True)]
    for _ in range(3):
        found = cache.read_many(names)
        assert [None if one is None else bytes(one) for one in found] == list(map(content, keys, SIZES))
    status = cache.status()
    assert (status.hits, status.misses) == (3 * len(names), 0)
    assert cache._metrics.get("cache.bytes_read") == 3 * sum(SIZES)
    assert cache.read_many([]) == []


def test_what_is_not_there_is_none_and_counted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(100)]
    absent = [named(cache, f"other{number}", 5000)[0] for number in range(100)]
    mixed = [name for pair in zip(names, absent, strict=True) for name in pair]
    found = cache.read_many(mixed)
    assert found[1::2] == [None] * 100
    assert found[::2] == [content(f"k{number}", 5000) for number in range(100)]
    assert (cache.status().hits, cache.status().misses) == (100, 100)


def test_what_is_read_belongs_to_the_caller(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    data = cache.read_many(names)[1]
    assert data is not None
    data[:] = bytes(5000)
    assert cache.read_many(names) == [content(f"k{number}", 5000) for number in range(3)]


@pytest.mark.parametrize("known", [False, True])
def test_a_damaged_entry_is_a_miss_and_removed(tmp_path: Path, known: bool) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(5)]
    if known:
        assert None not in cache.read_many(names)
    os.truncate(entry_file(cache, names[2]), 4000)
    assert [one is None for one in cache.read_many(names)] == [False, False, True, False, False]
    assert not entry_file(cache, names[2]).exists()
    assert cache._metrics.get("cache.errors") == 1


def test_a_use_is_noted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(4)]
    for name in names:
        os.utime(entry_file(cache, name), (1_000_000, 1_000_000))
    assert None not in cache.read_many(names)
    assert all(entry_file(cache, name).stat().st_mtime > 1_000_000 for name in names)


def test_an_entry_that_cannot_be_read_is_a_mark_against_the_disk(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    entry_file(cache, names[1]).unlink()
    entry_file(cache, names[1]).mkdir()
    for _ in range(5):
        found = cache.read_many(names)
        assert found[1] is None
    assert cache._metrics.get("cache.errors") >= 1


def test_a_closed_cache_is_a_miss(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    cache.close()
    assert cache.read_many(names) == [None] * 3


def test_doctor_says_when_each_is_read_by_itself(tmp_path: Path) -> None:
    found = {one.id: one for one in check_cache(CacheSettings(dir=str(tmp_path), min_free=0))}
    assert ("cache-reads" in found) == (uring.mine() is None)
