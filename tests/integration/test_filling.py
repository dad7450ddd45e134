"""Filling the cache beside reading: whatever is left out of it, every byte arrives, and later epochs keep the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store import open_store
from headrace.store.protocol import ObjectInfo, Store

pytestmark = pytest.mark.server
COUNT, SIZE = 1_200, 9_000


@pytest.fixture(scope="module")
def objects(seaweedfs: Any) -> Iterator[tuple[Store, list[ObjectInfo]]]:
    seaweedfs.create_bucket("filling")
    store = open_store("s3://filling", seaweedfs.options())

    def put(row: int) -> None:
        store.put(f"{row:05d}", row.to_bytes(2, "big") * (SIZE // 2))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, range(COUNT)))
    yield store, [info for page in store.list() for info in page]
    store.close()


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[Fetcher]:
    fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path), min_free=0)), None, Metrics())
    yield fetcher
    fetcher.close()


def read_all(fetcher: Fetcher, store: Store, infos: list[ObjectInfo]) -> int:
    """Reads everything at once, compares it; returns how many came from the cache."""
    before = fetcher.metrics.get("cache.hit")
    left, wrong = [len(infos)], []
    over = threading.Event()

    def sink(read: Read, result: Any) -> None:
        if isinstance(result, Exception) or bytes(result.data) != int(read.key).to_bytes(2, "big") * (SIZE // 2):
            wrong.append(read.key)
        left[0] -= 1
        if not left[0]:
            over.set()

    lock = threading.Lock()

    def locked(read: Read, result: Any) -> None:
        with lock:
            sink(read, result)

    fetcher.submit([Read(store, info.key, info.size, info.version) for info in infos], locked)
    assert over.wait(60)
    assert wrong == []
    assert fetcher.settle(30)
    return int(fetcher.metrics.get("cache.hit") - before)


def test_what_one_epoch_leaves_out_the_next_ones_keep(
    fetcher: Fetcher, objects: tuple[Store, list[ObjectInfo]]
) -> None:
    hits = [read_all(fetcher, *objects) for _ in range(2)]
    for _ in range(20):
        hits.append(read_all(fetcher, *objects))
        if hits[-1] == COUNT:
            break
    assert hits[0] == 0
    assert hits[-1] == COUNT
    assert hits == sorted(hits)
    assert fetcher.metrics.get("cache.fill") == COUNT
    assert fetcher.cache is not None
    assert fetcher.cache.verify().bad == []
    assert fetcher.cache.status().entries == COUNT


def test_who_insists_has_everything_kept_at_once(fetcher: Fetcher, objects: tuple[Store, list[ObjectInfo]]) -> None:
    fetcher.insist()
    assert read_all(fetcher, *objects) == 0
    assert fetcher.metrics.get("cache.fill_shed") == 0
    assert read_all(fetcher, *objects) == COUNT
