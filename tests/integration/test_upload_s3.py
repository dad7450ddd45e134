"""Uploads to real S3 servers: by parts, by the new bytes only, many at once, and what is left of those that died."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.base.errors import AlreadyExistsError, ChangedError, UnsupportedError
from headrace.base.metrics import Metrics
from headrace.store import Store, metered, open_store
from headrace.store.protocol import StoreOptions
from headrace.upload import Item, Uploader, UploadOptions, clear, is_complete, leftovers, publish, put_many
from tests.children import running

pytestmark = pytest.mark.server
MIB = 1 << 20


@pytest.fixture(scope="module", params=["seaweedfs", "rgw"])
def place(request: pytest.FixtureRequest) -> tuple[str, StoreOptions]:
    server = request.getfixturevalue(request.param)
    return server.create_bucket("uploads"), server.options()


@pytest.fixture
def store(place: tuple[str, StoreOptions]) -> Iterator[Store]:
    opened = open_store(f"{place[0]}/{time.monotonic_ns()}", place[1])
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(random.Random(1).randbytes(23 * MIB + 77))
    os.utime(path, (1e9, 1e9))
    return path


@pytest.fixture
def uploader() -> Iterator[Uploader]:
    with Uploader(UploadOptions(part=5 * MIB, threads=3)) as opened:
        yield opened
        assert opened.held == 0


def test_a_large_file_in_parts(store: Store, uploader: Uploader, file: Path) -> None:
    info = uploader.put_file(store, "big", file, None, {"mode": "33188"})
    data = file.read_bytes()
    assert store.get("big").data == data
    assert (info.size, info.etag) == (len(data), store.head("big").etag)
    digests = [hashlib.md5(data[at : at + 5 * MIB]).digest() for at in range(0, len(data), 5 * MIB)]
    assert info.etag == f"{hashlib.md5(b''.join(digests)).hexdigest()}-5"
    assert store.describe("big").metadata == {"mode": "33188"}
    assert not store.unfinished()


def test_appending_sends_the_new_bytes_only(store: Store, uploader: Uploader, file: Path) -> None:
    """A log that grows by a little each time: what goes over the wire is what was written, not its square."""
    metrics = Metrics()
    seen = metered(store, metrics)
    data = file.read_bytes()
    info = uploader.put_file(seen, "log", file, 6 * MIB, growing=True)
    for size in (6 * MIB + 1, 7 * MIB, 7 * MIB + 100_000, 20 * MIB, len(data)):
        info = uploader.append(seen, "log", info, file, size, {"size": str(size)}, growing=True)
        assert info.size == size
        assert store.get("log").data == data[:size]
    assert store.describe("log").metadata == {"size": str(len(data))}
    assert metrics.snapshot()["store.put.bytes"] == len(data)
    assert not store.unfinished()


def test_an_object_changed_by_another_is_not_appended_to(store: Store, uploader: Uploader, file: Path) -> None:
    base = uploader.put_file(store, "log", file, 6 * MIB)
    other = random.Random(2).randbytes(6 * MIB)
    store.put("log", other)
    with pytest.raises(ChangedError):
        uploader.append(store, "log", base, file)
    store.delete(["log"])
    with pytest.raises(Exception, match=r"no such|changed"):
        uploader.append(store, "log", base, file)
    assert [one for page in store.list() for one in page] == []
    assert not store.unfinished()


def test_a_large_file_only_if_new(store: Store, uploader: Uploader, file: Path) -> None:
    """Where a server ignores conditions on parts it is found out, not trusted."""
    try:
        first = uploader.put_file(store, "big", file, create=True)
    except UnsupportedError:
        assert store.capabilities.conditional_parts is False
        assert [one for page in store.list() for one in page] == []
        return
    with pytest.raises(AlreadyExistsError):
        uploader.put_file(store, "big", file, create=True)
    uploader.put_file(store, "big", file, 22 * MIB, if_match=first.version)
    with pytest.raises(ChangedError):
        uploader.put_file(store, "big", file, if_match=first.version)
    assert store.head("big").size == 22 * MIB
    assert not store.unfinished()


def test_many_small_files(store: Store, uploader: Uploader, tmp_path: Path) -> None:
    items = [Item(f"many/{number:03d}", tmp_path / str(number)) for number in range(150)]
    for item in items:
        Path(item.file).write_bytes(item.key.encode() * 300)
    outcomes = list(put_many(uploader, store, items))
    assert [one for one in outcomes if one.error] == []
    listed = {info.key: info.etag for page in store.list("many/") for info in page}
    assert listed == {item.key: hashlib.md5(Path(item.file).read_bytes()).hexdigest() for item in items}


def test_a_publication(store: Store, uploader: Uploader, file: Path, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"{}")
    made = publish(uploader, store, "ckpt/1", {"model.bin": file, "config.json": small})
    assert is_complete(store, "ckpt/1")
    assert {member.name: member.size for member in made.members} == {
        "config.json": 2,
        "model.bin": file.stat().st_size,
    }


_DOOMED = """
import sys
from headrace.store import open_store
from headrace.store.protocol import StoreOptions
from headrace.upload import Uploader, UploadOptions, publish

class Told:
    def total(self, items, size=None): pass
    def advance(self, items=1, size=0): print("sent", items, size, flush=True)

url, endpoint, key, secret, folder = sys.argv[1:]
options = StoreOptions(endpoint=endpoint, region="us-east-1", access_key_id=key, secret_access_key=secret)
store = open_store(url, options)
slow = Uploader(UploadOptions(part=5 << 20, threads=2, bandwidth=8 << 20))
publish(slow, store, "ckpt/2", {"a-small": folder + "/small", "big": folder + "/file"}, progress=Told())
"""


def test_kill_9_in_the_middle_leaves_no_object(
    store: Store, place: tuple[str, StoreOptions], uploader: Uploader, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "small").write_bytes(b"small")
    options = place[1]
    secrets = [options.endpoint, options.access_key_id, options.secret_access_key]
    command = [sys.executable, "-c", _DOOMED, store.url, *map(str, secrets), str(tmp_path)]
    with running(command, stdout=subprocess.PIPE, text=True) as doomed:
        assert doomed.stdout is not None
        parts = (line for line in doomed.stdout if line.startswith("sent 0"))
        assert next(parts, None), "it ended before a part was sent"
        doomed.send_signal(signal.SIGKILL)
    assert doomed.returncode == -signal.SIGKILL
    assert [one.key for page in store.list() for one in page] in ([], ["ckpt/2/a-small"])
    assert not is_complete(store, "ckpt/2")
    assert leftovers(store, "ckpt/") == [], "it may still be under way"
    left = clear(store, "ckpt/", older_than_s=-60)  # the server's clock may differ
    assert [one.key for one in left] == ["ckpt/2/big"], "nothing was under way at the kill: the test shows nothing"
    assert not store.unfinished()
    made = publish(uploader, store, "ckpt/2", {"a-small": tmp_path / "small", "big": file})
    assert is_complete(store, "ckpt/2")
    assert made.size == file.stat().st_size + 5
