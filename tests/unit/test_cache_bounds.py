"""Limits, eviction, pins, and the count they rest on."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from headrace.cache import Cache
from tests.cache_kit import MB, content, entry_file, fill, named, open_cache

ENTRY = 12_288  # what 5,000 bytes count for: two pages, and one for the label


def age(cache: Cache, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(entry_file(cache, name), (then, then))


def held(cache: Cache) -> int:
    """Bytes of disk that the folder really takes, labels and all."""
    root = Path(cache.settings.dir, "v1")
    return sum(path.stat().st_blocks * 512 for path in (root / "objects").rglob("*") if path.is_file())


def test_the_limit_is_never_overshot(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=50 * ENTRY)
    for number in range(200):
        fill(cache, f"k{number}", 5000)
        assert held(cache) <= cache.settings.size
        assert cache.status().bytes <= cache.settings.size
    status = cache.status()
    assert status.entries > 40, "it evicts what is needed and little more"
    assert status.entries + status.evicted == 200
    assert status.entries == sum(1 for path in (tmp_path / "v1" / "objects").rglob("*") if path.is_file())


def test_what_is_over_the_limit_goes_when_it_is_counted(tmp_path: Path) -> None:
    larger = open_cache(tmp_path, size=50 * ENTRY)
    for number in range(50):
        fill(larger, f"k{number}", 5000)
    smaller = open_cache(tmp_path, size=20 * ENTRY)
    count = smaller.verify().count
    assert count is not None
    assert held(smaller) <= count.bytes <= 20 * ENTRY
    assert count.entries >= 15, "little more than what is needed"


def test_what_fits_exactly_is_never_evicted(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=50 * ENTRY)
    for number in range(50):
        fill(cache, f"k{number}", 5000)
    assert (cache.status().entries, cache.status().evicted) == (50, 0)


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=20 * ENTRY)
    names = [fill(cache, f"k{number}", 5000) for number in range(20)]
    for number, name in enumerate(names):
        age(cache, name, 10_000 - number)
    used = names[0]
    assert cache.read(used) is not None  # the oldest, but used just now
    for number in range(5):
        fill(cache, f"new{number}", 5000)
    left = [name for name in names if cache.path(name)]
    assert 12 <= len(left) <= 15
    assert left == [used, *names[21 - len(left) :]]


def test_a_use_is_noted_once_in_ten_minutes(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name = fill(cache, "k", 5000)
    for seconds, noted in ((590, False), (610, True)):
        for use in (cache.read, cache.path, lambda name: cache.read_range(name, 0, 1)):
            age(cache, name, seconds)
            assert use(name)
            assert (time.time() - entry_file(cache, name).stat().st_mtime < 300) == noted


def test_a_limit_below_the_working_set_is_correct(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=10 * ENTRY)
    chance = random.Random(1)
    hits = 0
    for _ in range(600):
        key = f"k{chance.randrange(40)}"
        name, label = named(cache, key, 5000)
        data = cache.read(name)
        if data is None:
            cache.fill(name, content(key, 5000), label)
        else:
            hits += 1
            assert data == content(key, 5000)
    assert hits > 50
    assert held(cache) <= cache.settings.size


def test_an_object_larger_than_the_cache_flushes_nothing(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=20 * ENTRY)
    small = fill(cache, "small", 5000)
    name, label = named(cache, "large", MB)
    assert not cache.fill(name, content("large", MB), label)
    assert cache.read(small) is not None
    assert cache.status().shed == 1


def test_pinned_names_stay(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=10 * ENTRY)
    names = [fill(cache, f"k{number}", 5000) for number in range(3)]
    later, _ = named(cache, "k500", 5000)
    assert cache.pin([*names, later]) == 4
    for number in range(500, 540):
        fill(cache, f"k{number}", 5000)
    assert all(map(cache.read, [*names, later]))
    assert sorted(cache.pinned()) == sorted([*names, later])
    assert open_cache(tmp_path, size=10 * ENTRY).status().pinned == 4
    assert cache.evict(names).entries == 0
    cache.evict()
    assert cache.status().entries == 4
    cache.pin(names, pinned=False)
    assert cache.evict(names).entries == 3
    assert cache.status().pinned == 1


def test_all_pinned_sheds_at_once(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=5 * ENTRY)
    cache.pin([fill(cache, f"k{number}", 5000) for number in range(5)])
    begun = time.monotonic()
    for number in range(100, 150):
        name, label = named(cache, f"k{number}", 5000)
        assert not cache.fill(name, content(f"k{number}", 5000), label)
    assert time.monotonic() - begun < 5
    assert cache.status().shed == 50
    assert cache.status().entries == 5


def test_room_is_left_on_the_disk(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    full = open_cache(tmp_path / "a", min_free=2 * free)
    name, label = named(full, "k", 5000)
    assert not full.fill(name, content("k", 5000), label)
    assert full.enabled
    assert full.status().shed == 1


def test_evicting_down_to_a_target(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    names = [fill(cache, f"k{number}", 5000) for number in range(20)]
    for number, name in enumerate(names):
        age(cache, name, 100 - number)
    gone = cache.evict(target_bytes=15 * ENTRY)
    assert (gone.entries, gone.bytes) == (5, 5 * ENTRY)
    assert [bool(cache.path(name)) for name in names] == [False] * 5 + [True] * 15
    assert cache.evict(names[7:9]).bytes == 2 * ENTRY
    assert cache.evict(names[7:9]).bytes == 0
    assert cache.evict().entries == 13
    assert (cache.status().entries, cache.status().bytes) == (0, 0)


def test_an_evicted_entry_stays_readable_to_who_reads_it(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name = fill(cache, "k", 5000)
    path = cache.path(name)
    assert path is not None
    with open(path, "rb") as reader:
        cache.evict()
        assert cache.read(name) is None
        assert reader.read() == content("k", 5000)


def test_one_evictor_at_a_time_and_nobody_waits(tmp_path: Path) -> None:
    import fcntl

    cache = open_cache(tmp_path, size=5 * ENTRY)
    for number in range(5):
        fill(cache, f"k{number}", 5000)
    with (tmp_path / "v1" / "evict.lock").open("r+b") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        name, label = named(cache, "late", 5000)
        begun = time.monotonic()
        assert not cache.fill(name, content("late", 5000), label)
        assert time.monotonic() - begun < 1
    assert cache.fill(name, content("late", 5000), label)


def test_a_count_that_drifted_heals(tmp_path: Path) -> None:
    """As after many kills: the count says full, and there is next to nothing to evict."""
    cache = open_cache(tmp_path, size=50 * ENTRY)
    fill(cache, "k", 5000)
    cache._writing.usage.add(49, 49 * ENTRY)  # type: ignore[union-attr]
    fill(cache, "late", 5000)
    for number in range(40):
        fill(cache, f"k{number}", 5000)
    assert cache.status().entries == sum(1 for path in (tmp_path / "v1" / "objects").rglob("*") if path.is_file()) > 30


def many(cache: Cache, prefix: str, count: int) -> None:
    for number in range(count):
        name, label = named(cache, f"{prefix}{number}", 5000)
        assert cache.fill(name, content(f"{prefix}{number}", 5000), label, more=True)


def test_room_reserved_ahead_is_given_back(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    many(cache, "k", 300)
    assert other.status().bytes >= 300 * ENTRY, "reserved before it was used"
    assert other.status().bytes <= 300 * ENTRY + cache.settings.size // 64
    cache.settle()
    assert (other.status().entries, other.status().bytes) == (300, 300 * ENTRY)


def test_room_reserved_ahead_survives_a_recount(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    many(cache, "before", 20)
    assert other.verify().count is not None  # counts anew
    many(cache, "after", 20)
    cache.settle()
    assert other.status().bytes >= 40 * ENTRY, "never too little"
    count = other.verify().count
    assert count is not None
    assert count.bytes == 40 * ENTRY


def test_reserving_ahead_keeps_the_limit(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=50 * ENTRY)
    for number in range(200):
        name, label = named(cache, f"k{number}", 5000)
        cache.fill(name, content(f"k{number}", 5000), label, more=True)
        assert held(cache) <= cache.settings.size
    cache.settle()
    assert cache.status().entries > 40
