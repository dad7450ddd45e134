"""Large objects, block by block."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headrace.base.errors import InputError
from headrace.cache import BlockEntry, Cache
from tests.cache_kit import content, entry_file, named, open_cache

BLOCK = 4096
SIZE = 10 * BLOCK + 100
BYTES = content("big", SIZE)


def entry_of(cache: Cache) -> BlockEntry:
    name, label = named(cache, "big", SIZE)
    entry = cache.blocks(name, SIZE, label)
    assert entry is not None
    return entry


def put(entry: BlockEntry, *indices: int) -> None:
    for index in indices:
        assert entry.write(index * BLOCK, BYTES[index * BLOCK : (index + 1) * BLOCK])


def test_missing_runs_are_whole_blocks(tmp_path: Path) -> None:
    with entry_of(open_cache(tmp_path)) as entry:
        assert entry.missing() == [(0, SIZE)]
        put(entry, 0, 3, 4)
        assert entry.missing() == [(BLOCK, 3 * BLOCK), (5 * BLOCK, SIZE)]
        assert entry.missing(3 * BLOCK, 5 * BLOCK) == []
        assert entry.missing(3 * BLOCK + 1, 5 * BLOCK + 1) == [(5 * BLOCK, 6 * BLOCK)]
        assert entry.missing(SIZE - 1) == [(10 * BLOCK, SIZE)]
        assert entry.missing(7, 7) == entry.missing(SIZE, SIZE + 9) == []


def test_only_what_is_there_is_read(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, _ = named(cache, "big", SIZE)
    with entry_of(cache) as entry:
        put(entry, 2, 3, 10)
        assert entry.read(2 * BLOCK + 5, 4 * BLOCK) == BYTES[2 * BLOCK + 5 : 4 * BLOCK]
        assert entry.read(2 * BLOCK, 4 * BLOCK + 1) is None
        assert entry.read(10 * BLOCK) == BYTES[10 * BLOCK :]
        assert entry.read() is None
        assert cache.read_range(name, 2 * BLOCK, 3 * BLOCK) == BYTES[2 * BLOCK : 3 * BLOCK]
        assert cache.read_range(name, 0, BLOCK) is None
        assert cache.read(name) is None
        assert cache.path(name) is None


def test_complete_it_is_a_whole_entry(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "big", SIZE)
    with entry_of(cache) as entry, entry_of(open_cache(tmp_path)) as other:
        for start, stop in entry.missing():
            assert not entry.complete
            assert entry.write(start, BYTES[start:stop])
        assert entry.complete
        assert entry.missing() == other.missing() == []
        assert cache.read(name) == entry.read() == other.read() == BYTES
    with entry_of(cache) as again:
        assert again.complete
        assert again.read(5, 50) == BYTES[5:50]
        assert again.write(0, BYTES[:BLOCK]), "nothing to do"
    assert cache.verify().bad == []
    assert list((tmp_path / "v1" / "blocks").rglob("data")) == []
    status = cache.status()
    assert (status.entries, status.bytes) == (1, 11 * BLOCK + 4096)
    assert cache.fill(name, BYTES, label), "already there"
    assert cache.evict().bytes == status.bytes


def test_writes_must_be_whole_blocks(tmp_path: Path) -> None:
    with entry_of(open_cache(tmp_path)) as entry:
        for start, data in ((1, BYTES[1 : BLOCK + 1]), (0, BYTES[: BLOCK - 1]), (10 * BLOCK, bytes(BLOCK))):
            with pytest.raises(InputError, match="not whole blocks"):
                entry.write(start, data)


def test_a_wrong_size_is_refused(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    name, label = named(cache, "big", SIZE)
    with pytest.raises(InputError, match="cannot have this name"):
        cache.blocks(name, SIZE + 1, label)


def test_blocks_survive_a_restart_with_another_block_size(tmp_path: Path) -> None:
    with entry_of(open_cache(tmp_path)) as entry:
        put(entry, 1, 5)
    with entry_of(open_cache(tmp_path, block=2 * BLOCK)) as entry:
        assert entry.block == BLOCK
        assert entry.read(5 * BLOCK, 6 * BLOCK) == BYTES[5 * BLOCK : 6 * BLOCK]


def test_blocks_from_before_the_boot_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with entry_of(open_cache(tmp_path)) as entry:
        put(entry, 1, 5)
    (data,) = (tmp_path / "v1" / "blocks").rglob("data")
    with data.open("r+b") as file:
        file.seek(5 * BLOCK)
        file.write(bytes(BLOCK))
    monkeypatch.setattr("headrace.cache.blocks.boot_id", lambda: "another-boot")
    with entry_of(open_cache(tmp_path)) as entry:
        assert entry.missing(0, 6 * BLOCK) == [(0, BLOCK), (2 * BLOCK, 6 * BLOCK)]
        put(entry, 5)
        assert entry.read(5 * BLOCK, 6 * BLOCK) == BYTES[5 * BLOCK : 6 * BLOCK]


@pytest.mark.parametrize("damage", ["map", "data"])
def test_a_torn_entry_starts_anew(tmp_path: Path, damage: str) -> None:
    cache = open_cache(tmp_path)
    with entry_of(cache) as entry:
        put(entry, 1, 5)
    (path,) = (tmp_path / "v1" / "blocks").rglob(damage)
    os.truncate(path, 10)
    with entry_of(cache) as entry:
        assert entry.missing() == [(0, SIZE)]


def test_in_use_it_is_not_evicted(tmp_path: Path) -> None:
    cache, other = open_cache(tmp_path), open_cache(tmp_path)
    entry = entry_of(cache)
    put(entry, 0)
    assert other.evict().entries == 0
    entry.close()
    assert other.evict().entries == 1
    assert (cache.status().entries, cache.status().bytes) == (0, 0)
    assert not any(path.is_file() for path in (tmp_path / "v1" / "blocks").rglob("*"))


def test_it_gives_way_to_the_limit(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, size=6 * BLOCK)
    with entry_of(cache) as entry:
        kept = [entry.write(index * BLOCK, BYTES[index * BLOCK : (index + 1) * BLOCK]) for index in range(10)]
        assert kept == [True] * 4 + [False] * 6
        assert cache.status().bytes <= 6 * BLOCK
        assert entry.read(0, 4 * BLOCK) == BYTES[: 4 * BLOCK]


def test_many_writers_of_one_object(tmp_path: Path) -> None:
    caches = [open_cache(tmp_path) for _ in range(4)]
    wrong: list[str] = []

    def work(cache: Cache, first: int) -> None:
        with entry_of(cache) as entry:
            for index in (number % 11 for number in range(first, first + 11)):
                data = entry.read(index * BLOCK, (index + 1) * BLOCK)
                if data is None:
                    put(entry, index)
                elif data != BYTES[index * BLOCK : (index + 1) * BLOCK]:
                    wrong.append(f"block {index}")
            if entry.read() != BYTES:
                wrong.append("the whole")

    threads = [threading.Thread(target=work, args=(cache, 3 * turn)) for turn, cache in enumerate(caches)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    name, _ = named(caches[0], "big", SIZE)
    assert not wrong
    assert caches[0].read(name) == BYTES
    assert caches[0].verify().bad == []
    assert entry_file(caches[0], name).stat().st_size == SIZE


def test_status_counts_partial_entries_the_same_counted_anew(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    with entry_of(cache) as entry:
        put(entry, 0, 1, 2)
    counted = cache.status()
    report = cache.verify()
    assert report.count is not None
    assert (report.count.entries, report.count.bytes) == (counted.entries, counted.bytes) == (1, 5 * BLOCK)
    assert report.partial == 1
