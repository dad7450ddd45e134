"""Faults on the wire between a store and a real S3 server: every object arrives whole, or a named error does."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store import open_store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan

pytestmark = pytest.mark.server
CONTENT = {f"{n:03d}": bytes([n]) * (1000 + 37 * n) for n in range(60)}


@pytest.fixture(scope="module")
def versions(seaweedfs):
    store = open_store(seaweedfs.create_bucket("faults"), seaweedfs.options())
    return {key: store.put(key, data) for key, data in CONTENT.items()}


@pytest.fixture
def through(seaweedfs, versions):
    """A failing server in front of SeaweedFS, a store that goes through it, and a fetcher."""
    place = urlsplit(seaweedfs.endpoint)
    with FaultServer(Upstream(place.hostname, place.port)) as server:
        options = dataclasses.replace(seaweedfs.options(), endpoint=server.endpoint, timeout_s=20.0)
        store = open_store("s3://faults", options)
        fetcher = Fetcher.open(dataclasses.replace(Settings(), cache=CacheSettings(size=0)), None, Metrics())
        yield server, store, fetcher
        fetcher.close()
        store.close()


RETRIED = [Kind.SLOW_DOWN, Kind.INTERNAL, Kind.RESET, Kind.REFUSE, Kind.TRUNCATE, Kind.SHORT]


@pytest.mark.parametrize("kind", RETRIED)
def test_every_object_arrives_whole(through, versions, kind):
    server, store, fetcher = through
    server.plan = Plan([Fault(kind, rate=0.4, per_key=1)], seed=3)
    read = {key: Read(store, key, info.size, info.version) for key, info in versions.items()}
    with ThreadPoolExecutor(8) as pool:
        results = {key: bytes(blob.data) for key, blob in zip(read, pool.map(fetcher.get, read.values()), strict=True)}
    assert results == CONTENT
    assert server.plan.struck(kind) > 10


@pytest.mark.parametrize("kind", [Kind.SLOW_DOWN, Kind.RESET, Kind.TRUNCATE])
def test_a_plain_get_survives_too(through, kind):
    server, store, _ = through
    server.plan = Plan([Fault(kind, rate=0.5, per_key=1)], seed=4)
    some = dict(list(CONTENT.items())[:20])
    with ThreadPoolExecutor(8) as pool:
        assert dict(zip(some, (bytes(blob.data) for blob in pool.map(store.get, some)), strict=True)) == some
    assert server.plan.struck(kind) > 4


def test_another_version_is_an_error_by_name(through, versions):
    server, store, fetcher = through
    server.plan = Plan([Fault(Kind.CHANGED)])
    info = versions["007"]
    with pytest.raises(HeadraceError) as caught:
        fetcher.get(Read(store, "007", info.size, info.version))
    assert caught.value.code == "changed"
    assert "007" in str(caught.value)
