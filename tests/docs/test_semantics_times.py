"""docs/semantics.md on times that no store tells: such files, and folders, are as old as the view of them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from headrace.mount.mount_options import MountOptions
from headrace.mount.names.listing_pages import ListingPage
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.stat_attributes import StatAttributes
from headrace.namespace.filesystem import HeadraceFileSystem
from headrace.store.protocol import ObjectInfo
from tests.unit.namespace.reference import namespace


def test_n5_the_time_of_a_folder() -> None:
    before = time.time()
    with namespace(mounts={"/data": "ref://times"}) as (ns, references):
        fs = HeadraceFileSystem.over(ns)
        fs.pipe({"/data/folder/known": b"1", "/data/folder/unknown": b"1"})
        store = references.stores["ref://times"]
        data, info = store.objects["folder/unknown"]
        store.objects["folder/unknown"] = data, info._replace(mtime_us=0, etag=None)
        told = {one["name"]: one for one in [fs.info("/"), *fs.ls("/"), *fs.ls("/data"), *fs.ls("/data/folder")]}
        since = [told[name]["mtime"] for name in ("/", "/data", "/data/folder", "/data/folder/unknown")]
        assert len(set(since)) == 1, "one time for all of them"
        assert before <= since[0] <= time.time()
        assert told["/data/folder/known"]["mtime"] == store.objects["folder/known"][1].mtime_us / 1e6
        assert all(one["created"] == one["mtime"] for one in told.values())
        assert fs.modified("/data") > datetime.now(UTC) - timedelta(minutes=5)
        assert fs.checksum("/data/folder/unknown") == "1-0", "the same in every process"


def test_x8_a_file_without_a_time() -> None:
    table = NodeTable("/")
    page = ListingPage("", ["folder/"], [ObjectInfo("known", 1, "etag", 7_000_000), ObjectInfo("unknown", 1)])
    table.enrol(page, table.root)
    shown = StatAttributes(table, MountOptions())
    by_name = {table.get(number).name: number for number in (table.show(table.root, page, index) for index in range(3))}
    times = {name: shown.of(table.get(number)).mtime_ns for name, number in by_name.items()}
    assert times == {b"folder": table.born_ns, b"known": 7_000_000_000, b"unknown": table.born_ns}
    assert shown.listed(page, 2, 1).mtime_ns == table.born_ns
