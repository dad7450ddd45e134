"""The whole way: SeaweedFS → store → fetch → dataset → loader, by the public face; second epoch from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.base.errors import ArchivedError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.snapshot import take_snapshot
from headrace.fetch import Fetcher
from headrace.loader import Changed
from headrace.store import open_store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan

pytestmark = pytest.mark.server


@pytest.fixture
def namespace(seaweedfs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    bucket = f"loader-{tmp_path.name.replace('_', '-').lower()}"[:40].rstrip("-")
    seaweedfs.create_bucket(bucket)
    store = open_store(f"s3://{bucket}/set", seaweedfs.options())
    for row in range(150):
        store.put(f"{row % 3}/{row:04d}.image", bytes([row]) * (1000 + row))
        store.put(f"{row % 3}/{row:04d}.label", bytes([row]))
    store.close()
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    for name, value in seaweedfs.variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    space = hr.Namespace.load()
    space.attach("/data", f"s3://{bucket}/set", read_only=True)
    return space


def keys(loader: Any) -> list[str]:
    found: list[str] = []
    for batch in loader:
        for key, image, label in zip(batch["__key__"], batch["image"], batch["label"], strict=True):
            row = int(key.split("/")[1])
            assert bytes(image) == bytes([row]) * (1000 + row)
            assert label[0] == row
        found += batch["__key__"]
    return found


def test_two_epochs_the_second_from_the_cache(namespace: Any, tmp_path: Path) -> None:
    settings = Settings(cache=CacheSettings(dir=str(tmp_path / "own-cache"), min_free=0))
    fetcher = Fetcher.open(settings, None, Metrics())
    loader = hr.Dataset.open("/data", namespace=namespace).shuffle(1).batch(16).loader(fetcher=fetcher)
    first = keys(loader)
    assert fetcher.settle()
    second = keys(loader)
    expected = sorted(f"{row % 3}/{row:04d}" for row in range(150))
    assert sorted(first) == sorted(second) == expected
    assert first != second
    assert loader.stats().bytes > 0
    assert loader.stats().cache_hits >= 290, loader.stats().counters
    fetcher.close()


def test_class_folders_resume_and_the_child_process(namespace: Any) -> None:
    ds = hr.Dataset.open("/data", by="class", namespace=namespace).shuffle(2).batch(20)
    loader = ds.loader(where="process")
    epoch = iter(loader)
    seen = [*next(epoch)["__key__"]]
    state = loader.state_dict()
    loader.close()
    again = ds.loader()
    again.load_state_dict(state)
    for batch in again:
        assert batch["class"].tolist() == [int(key.split("/")[0]) for key in batch["__key__"]]
        seen += batch["__key__"]
    assert len(seen) == len(set(seen)) == len(ds)


def test_objects_that_changed_after_the_snapshot_are_named(
    namespace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", f"file://{tmp_path}/home")
    settings = Settings.load()
    location = namespace.resolve("/data/1/0001.image")
    take_snapshot("/data", "set", namespace=namespace, settings=settings)
    held = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "held"), min_free=0)), None, Metrics())
    plain = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path / "plain"), size=0)), None, Metrics())
    ds = hr.Dataset.open("set@v1", namespace=namespace, on_change="report").batch(16)
    filling = ds.loader(fetcher=held)
    for _ in range(10):  # a busy disk may leave some to the next epoch
        keys(filling)
        held.settle(10)
        if filling.stats().cache_hits == 300:
            break
    etag = location.store.head(location.key).etag
    changed = location.store.put(location.key, b"other bytes").etag
    loader = ds.loader(fetcher=plain)
    images = {key: bytes(image) for b in loader for key, image in zip(b["__key__"], b["image"], strict=True)}
    assert (len(images), images["1/0001"]) == (150, b"other bytes")
    assert loader.changed == [Changed(f"{location.store.url}/{location.key}", etag, changed)]
    cached = ds.loader(fetcher=held)  # it still has the version that the snapshot means
    assert len(keys(cached)) == 150
    assert cached.changed == []
    held.close()
    plain.close()


def test_archived_objects_are_left_out_where_some_may_be(
    namespace: Any, seaweedfs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(seaweedfs.endpoint.rpartition(":")[2])
    archived = Plan((Fault(Kind.ARCHIVED, key="*/set/1/0001.image", operations=frozenset({"get"})),))
    with FaultServer(Upstream("127.0.0.1", port), archived) as server:
        space = hr.Namespace.load()
        space.attach("/data", namespace.resolve("/data/x").store.url, read_only=True, endpoint=server.endpoint)
        fetcher = Fetcher(Settings(), None, Metrics())
        dataset = hr.Dataset.open("/data", namespace=space)
        loader = dataset.map(lambda sample: sample, on_error=hr.Skip(max_count=1)).batch(10).loader(fetcher=fetcher)
        assert len(keys(loader)) == 149
        assert [(one.key, one.stage) for one in loader.ledger] == [("1/0001", "fetch")]
        with pytest.raises(ArchivedError) as refused:
            keys(dataset.batch(10).loader(fetcher=fetcher))
        assert all(word in (refused.value.hint or "") for word in ("restore", "Skip"))
        fetcher.close()
