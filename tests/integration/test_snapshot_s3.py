"""Snapshots over a real S3 server whose order of keys is not S3's."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from headrace.base.errors import AlreadyExistsError, ChangedError
from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.prefix_listing import list_objects
from headrace.catalog.snapshot import take_snapshot
from headrace.catalog.snapshot_diff import change_summary, verify
from headrace.formats.open_options import OpenOptions
from headrace.formats.opening_targets import open_source
from headrace.namespace import Namespace
from headrace.store.embedded import EmbeddedS3

pytestmark = pytest.mark.server
FLAT = [f"flat/{n:05d}.bin" for n in range(2500)]
ODD = ["t/a-b", "t/a/x", "t/a/y/1", "t/a.b", "t/a0", "t/a b/q", "t/a/0-1", "t/a/0/1", "t/z", "t/é/1", "t/日本/2"]
ODD += ["t/+%.png"]


def test_listing_and_snapshot(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    bucket = seaweedfs.create_bucket("snapshots") or "s3://snapshots"
    options = seaweedfs.options()
    settings = Settings(home="/home", cache=CacheSettings(dir=str(tmp_path / "cache"), ttl=0.0))
    namespace = Namespace.load(settings)
    given = {
        "endpoint": options.endpoint,
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "region": options.region or "us-east-1",
    }
    namespace.attach("/data", "s3://snapshots/data", **given)
    namespace.attach("/home", "s3://snapshots/home", **given)
    store = namespace.resolve("/data/x").store
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.put(key, key.encode()), [*FLAT, *ODD]))

    for prefix, keys in (("flat/", FLAT), ("t/", ODD), ("", [*FLAT, *ODD])):
        rows = [k for b in list_objects(store, prefix, folder=str(tmp_path)) for k in b["key"].to_pylist()]
        assert [prefix + key for key in rows] == sorted(keys, key=str.encode), bucket

    context = {"namespace": namespace, "settings": settings}
    made = take_snapshot("/data", "mixed", **context)
    with pytest.raises(AlreadyExistsError):
        take_snapshot("/data", "mixed", "v1", **context)
    index = open_source("mixed@v1", OpenOptions(by="object"), **context)
    specs = index.specs(np.arange(len(index)))
    assert [parts[0].key for _, parts, _ in specs] == sorted([*FLAT, *ODD], key=str.encode)
    part = specs[0][1][0]
    assert bytes(index.store.get(part.key, if_match=part.version).data) == part.key.encode()
    store.put(part.key, b"another")
    with pytest.raises(ChangedError):
        index.store.get(part.key, if_match=part.version)
    store.delete([ODD[0]])
    found = change_summary(verify(made, **context))
    assert sorted((c.kind, c.key) for c in found.first) == sorted([("removed", ODD[0]), ("changed", part.key)])
