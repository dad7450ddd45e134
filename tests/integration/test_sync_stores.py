"""A folder followed into every kind of store: where one cannot append or copy, the objects are the same."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.store import Store, open_store
from headrace.sync import CLASSES, Deletion, FileClass, State, Sync, SyncOptions
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server
MB = 1_000_000
KINDS = ("seaweedfs", "rgw", "azurite", "gcs", "file", "memory")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return open_store(f"file://{tmp_path}/store")
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}")
    server: Any = request.getfixturevalue(request.param)
    return open_store(server.create_bucket(f"sync-{uuid.uuid4().hex[:8]}"), server.options())


def objects(store: Store) -> dict[str, bytes]:
    keys = [info.key for page in store.list("out/") for info in page]
    return {key.removeprefix("out/"): bytes(store.get(key).data) for key in keys}


def sizes(store: Store) -> dict[str, int]:
    return {info.key.removeprefix("out/"): info.size for page in store.list("out/") for info in page}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def follow(store: Store, tmp_path: Path) -> Callable[..., Sync]:
    (tmp_path / "out").mkdir()

    def begin(**options: Any) -> Sync:
        state = State(str(tmp_path / "state"), str(tmp_path / "out"), "s")
        return Sync(str(tmp_path / "out"), store, "out/", state, SyncOptions(**options))

    return begin


def test_the_bucket_ends_as_the_folder_is(store: Store, follow: Callable[..., Sync], tmp_path: Path):
    out = tmp_path / "out"
    quick = tuple(FileClass(c.name, c.patterns, c.at_least, 0.5, c.when_closed, c.growing) for c in CLASSES)
    with follow(classes=quick, delete=Deletion()) as sync:
        (out / "logs").mkdir()
        (out / "checkpoints/1").mkdir(parents=True)
        (out / "checkpoints/1/model.pt").write_bytes(os.urandom(6 * MB))
        (out / "checkpoints/1/COMMITTED").touch()
        (out / "short-lived").write_bytes(b"1")
        with open(out / "logs/train.log", "ab", buffering=0) as log:
            for size in (6 * MB, 12 * MB):  # the second time it has grown
                while log.tell() < size:
                    log.write(os.urandom(500_000))
                    time.sleep(0.02)
                assert wait_for(lambda size=size: sizes(store).get("logs/train.log") == size)
        assert wait_for(lambda: "checkpoints/1/COMMITTED" in objects(store))
        assert wait_for(lambda: "short-lived" in objects(store))
        (out / "short-lived").unlink()
        shutil.move(out / "logs/train.log", out / "logs/train.log.1")
        report = sync.finish(60)
    assert report.left == ()
    (out / "checkpoints/1/COMMITTED").unlink()  # the writer's word; in the store it is the list of objects
    there = objects(store)
    assert b"model.pt" in there.pop("checkpoints/1/COMMITTED")
    assert there == files(out)


def test_any_file_that_grows_is_sent_by_what_is_new(store: Store, follow: Callable[..., Sync], tmp_path: Path):
    """Not only logs: what was sent is then compared whole before only the rest goes."""
    path = tmp_path / "out" / "table.dat"
    with follow() as sync:
        path.write_bytes(os.urandom(8 * MB))
        sync.finish(60)
    with follow() as sync, open(path, "ab") as file:
        file.write(os.urandom(MB))
        file.flush()
        report = sync.finish(60)
    assert objects(store) == files(tmp_path / "out")
    appends = store.url.startswith(("s3:", "file:"))  # the others copy no parts
    assert report.bytes == (MB if appends else 9 * MB)
    with open(path, "r+b") as file:  # the same length and more, but another beginning
        file.write(b"other")
        file.seek(0, os.SEEK_END)
        file.write(b"more")
    with follow() as sync:
        assert sync.finish(60).bytes == 9 * MB + 4
    assert objects(store) == files(tmp_path / "out")


def test_holes_are_zeros(store: Store, follow: Callable[..., Sync], tmp_path: Path):
    with open(tmp_path / "out" / "sparse.dat", "wb") as file:
        file.write(b"begin")
        file.seek(20 * MB)
        file.write(b"end")
    with follow() as sync:
        assert sync.finish(60).left == ()
    assert objects(store) == {"sparse.dat": b"begin" + bytes(20 * MB - 5) + b"end"}


def test_the_folder_itself_may_vanish(store: Store, follow: Callable[..., Sync], tmp_path: Path):
    (tmp_path / "out" / "file").write_bytes(b"1")
    with follow(rescan=0.5) as sync:
        assert wait_for(lambda: "file" in objects(store))
        shutil.rmtree(tmp_path / "out")
        report = sync.finish(10)
    assert report.left == ()
    assert objects(store) == {"file": b"1"}, "what is gone here stays there"
