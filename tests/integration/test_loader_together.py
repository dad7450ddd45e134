"""Single objects that the cache holds, read group by group: the same samples as always, whatever is in the cache."""

from __future__ import annotations

import io
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.base.errors import BadSampleError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.cache import Cache
from headrace.fetch import Fetcher
from headrace.loader import Skip
from headrace.pack.examples import RecordWriter
from headrace.store import open_store
from headrace.store.protocol import Store

COUNT = 700
_stores = itertools.count()


def body(row: int) -> bytes:
    return row.to_bytes(4, "little") * (200 + row)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "node"))
    monkeypatch.chdir(tmp_path)
    store = open_store(f"memory://together-{next(_stores)}")
    for row in range(COUNT):
        store.put(f"{row % 3}/{row:04d}.image", body(row))
        store.put(f"{row % 3}/{row:04d}.label", b"%d" % row)
    yield store
    store.close()


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[Fetcher]:
    settings = Settings(cache=CacheSettings(dir=str(tmp_path / "own"), min_free=0))
    fetcher = Fetcher.open(settings, None, Metrics())
    yield fetcher
    fetcher.close()


def rows_of(loader: Any, image: str = "image", label: str = "label") -> list[int]:
    """Rows in order; each sample's bytes are its own."""
    found: list[int] = []
    for batch in loader:
        for key, data, text in zip(batch["__key__"], batch[image], batch[label], strict=True):
            row = int(key.split("/")[1])
            assert bytes(text) == b"%d" % row
            assert bytes(data) == body(row)
            found.append(row)
    return found


def entries(fetcher: Fetcher, store: Store, prefix: str = "") -> list[str]:
    assert fetcher.cache is not None
    infos = [info for page in store.list(prefix) for info in page]
    return [fetcher.cache.name(store.identity, one.key, one.version or "", one.size) for one in infos]


@pytest.mark.parametrize("gone", ["nothing", "every tenth", "the second half", "all"])
@pytest.mark.parametrize("decode", [False, True])
def test_whatever_is_in_the_cache_an_epoch_is_the_same(store: Store, fetcher: Fetcher, gone: str, decode: bool) -> None:
    ds = hr.Dataset.open(store.url).shuffle(3)
    ds = ds.map(lambda sample: {**sample, "label": bytes(sample["label"])}, threads=3) if decode else ds
    loader = ds.batch(32).loader(fetcher=fetcher)
    rows_of(loader)
    assert fetcher.settle()
    cache = fetcher.cache
    assert isinstance(cache, Cache)
    names = entries(fetcher, store)
    evicted = {"nothing": [], "every tenth": names[::10], "the second half": names[COUNT:], "all": names}[gone]
    assert cache.evict(evicted).entries == len(evicted)
    assert sorted(rows_of(loader)) == list(range(COUNT))
    figures = loader.stats()
    assert figures.cache_hits == 2 * COUNT - len(evicted)
    assert figures.bytes == sum(len(body(row)) + len(b"%d" % row) for row in range(COUNT))
    again = ds.batch(32).loader(fetcher=fetcher)
    again.load_state_dict(loader.state_dict())
    alone = Fetcher.open(Settings(cache=CacheSettings(size=0)), None, Metrics())
    other = ds.batch(32).loader(fetcher=alone)
    other.load_state_dict(loader.state_dict())
    assert rows_of(again) == rows_of(other), "the order does not depend on the cache"
    alone.close()


@pytest.mark.parametrize("by", ["object", "stem", "class", "folder"])
def test_samples_are_what_they_are_without_a_cache(store: Store, fetcher: Fetcher, by: str) -> None:
    for odd in ("1/0004.extra", "2/9999", "0/.hidden", "1/.hidden.x"):
        store.put(odd, odd.encode())
    alone = Fetcher.open(Settings(cache=CacheSettings(size=0)), None, Metrics())
    ds = hr.Dataset.open(store.url, by=by).batch(50)
    expected = [repr_of(batch) for batch in ds.loader(fetcher=alone)]
    cached = ds.loader(fetcher=fetcher)
    assert [repr_of(batch) for batch in cached] == expected
    assert fetcher.settle()
    assert [repr_of(batch) for batch in cached] == expected
    assert cached.stats().cache_hits == 2 * COUNT + 4
    alone.close()


def repr_of(batch: Any) -> dict[str, list[Any]]:
    """Values that compare, names in order."""
    return {
        name: [bytes(one) if isinstance(one, memoryview) else one for one in (getattr(v, "tolist", lambda v=v: v)())]
        for name, v in batch.items()
    }


def test_resume_in_the_middle_of_a_group(store: Store, fetcher: Fetcher) -> None:
    ds = hr.Dataset.open(store.url).shuffle(5).batch(9)
    rows_of(ds.loader(fetcher=fetcher))
    assert fetcher.settle()
    loader = ds.loader(fetcher=fetcher)
    epoch = iter(loader)
    seen = [row for _ in range(11) for row in rows_of([next(epoch)])]
    state = loader.state_dict()
    loader.close()
    again = ds.loader(fetcher=fetcher)
    again.load_state_dict(state)
    assert sorted(seen + rows_of(again)) == list(range(COUNT))


def test_an_object_replaced_and_no_longer_in_the_cache_is_read_as_it_is_now(store: Store, fetcher: Fetcher) -> None:
    loader = hr.Dataset.open(store.url, on_change="report").batch(32).loader(fetcher=fetcher)
    rows_of(loader)
    assert fetcher.settle()
    key = "1/0040.label"
    name = next(one for one in entries(fetcher, store, key))
    assert fetcher.cache is not None
    fetcher.cache.evict([name])
    store.put(key, b"new")
    batches = list(loader)
    labels = {one: bytes(two) for batch in batches for one, two in zip(batch["__key__"], batch["label"], strict=True)}
    assert labels["1/0040"] == b"new"
    assert labels["2/0041"] == b"41"
    assert [one.url for one in loader.changed] == [f"{store.url}/{key}"]


def test_bad_samples_of_a_group_are_named_and_the_others_stay(store: Store, fetcher: Fetcher) -> None:
    def picky(sample: dict[str, Any]) -> dict[str, Any]:
        if int(bytes(sample["label"])) % 100 == 7:
            raise ValueError("picky")
        return sample

    ds = hr.Dataset.open(store.url)
    rows_of(hr.Dataset.open(store.url).batch(16).loader(fetcher=fetcher))
    assert fetcher.settle()
    loader = ds.map(picky, on_error=Skip(max_count=10)).batch(16).loader(fetcher=fetcher)
    assert sorted(rows_of(loader)) == [row for row in range(COUNT) if row % 100 != 7]
    assert sorted(one.key[-2:] for one in loader.ledger) == ["07"] * 7
    with pytest.raises(BadSampleError, match="picky"):
        rows_of(ds.map(picky).batch(16).loader(fetcher=fetcher))


def test_an_abandoned_epoch_leaves_no_thread(store: Store, fetcher: Fetcher) -> None:
    ds = hr.Dataset.open(store.url).repeat().batch(16)
    for _ in range(5):
        loader = ds.loader(fetcher=fetcher)
        epoch = iter(loader)
        for _ in range(30):
            next(epoch)
        loader.close()
        left = [one.name for one in threading.enumerate() if one.name.startswith("headrace-loader")]
        assert not left


RECORDS = 600


@pytest.fixture
def shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Six shards of a hundred records, each of which tells who it is."""
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "node"))
    monkeypatch.chdir(tmp_path)
    store = open_store(f"memory://together-{next(_stores)}")
    for shard in range(6):
        file = io.BytesIO()
        writer = RecordWriter(file)
        for row in range(100 * shard, 100 * shard + 100):
            writer.add(record(row))
        store.put(f"{shard}.tfrecord", file.getvalue())
    yield store
    store.close()


def record(row: int) -> bytes:
    return b"%05d" % row * (600 + row)


def records_of(loader: Any) -> list[int]:
    found: list[int] = []
    for batch in loader:
        for data in batch["data"]:
            row = int(bytes(data[:5]))
            assert data == record(row)
            found.append(row)
    return found


@pytest.mark.parametrize("order", ["sequential", "blocked", "global"])
@pytest.mark.parametrize("gone", [0, 1, 6])
def test_records_of_shards_that_the_cache_holds(
    shards: Store, fetcher: Fetcher, tmp_path: Path, order: str, gone: int
) -> None:
    ds = hr.Dataset.open(shards.url)
    ds = ds if order == "sequential" else ds.shuffle(3, block="64kB" if order == "blocked" else None)
    assert sorted(records_of(ds.batch(32).loader(fetcher=fetcher))) == list(range(RECORDS))
    assert fetcher.settle()
    again = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "own"), min_free=0)), None, Metrics())
    assert again.cache is not None
    assert again.cache.evict(entries(again, shards)[:gone]).entries == gone
    loader = ds.batch(32).loader(fetcher=again)
    got = records_of(loader)
    assert sorted(got) == list(range(RECORDS))
    if order == "sequential":
        assert got == list(range(RECORDS))
    if not gone:
        assert again.metrics.get("fetch.requests") == 0
        assert again.metrics.get("cache.bytes_read") >= sum(len(record(row)) for row in range(RECORDS))
    again.close()
