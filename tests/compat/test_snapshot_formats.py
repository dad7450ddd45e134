"""Snapshots written by earlier versions still open. The fixtures are never regenerated; a new format adds a folder."""

import json
from pathlib import Path

import pytest

from headrace.base.settings import CacheSettings, Settings
from headrace.catalog.snapshot import list_snapshots, open_snapshot, snapshot_objects
from headrace.namespace import Namespace

FIXTURES = Path(__file__).parent


@pytest.mark.parametrize("fixture", ["snapshot-1"])
def test_opens(fixture: str, tmp_path: Path) -> None:
    settings = Settings(home=f"file://{FIXTURES / fixture}", cache=CacheSettings(dir=str(tmp_path)))
    namespace = Namespace.load(settings)
    assert [s.id for s in list_snapshots(namespace=namespace, settings=settings)] == ["old@v1"]
    snapshot = open_snapshot("old", namespace=namespace, settings=settings)
    assert (snapshot.source, snapshot.objects, snapshot.bytes) == ("s3://example-bucket/data", 5, 216_003)
    objects = snapshot_objects(snapshot, settings)
    rows = [tuple(row.values()) for batch in objects.batches() for row in batch.to_pylist()]
    assert rows == [
        ("train/1.image", 108000, "9e107d9d372bb6826bd81d3542a419d6"),
        ("train/1.label", 1, "c4ca4238a0b923820dcc509a6f75849b"),
        ("train/2.image", 108001, "e4d909c290d0fb1ca068ffaddf22cbd0-2"),
        ("train/2.label", 1, "1-1700000000000003"),
        ("日本/ü.tar.gz", 0, "d41d8cd98f00b204e9800998ecf8427e"),
    ]


def test_the_marker_is_plain_json() -> None:
    marker = json.loads((FIXTURES / "snapshot-1/datasets/old/v1/snapshot.json").read_text())
    assert marker["format"] == 1
