"""Copies of large objects and of trees, between a real S3 server and this machine: whole, of one version, resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest

from headrace.base.errors import ChangedError
from headrace.base.settings import Settings
from headrace.fetch import Fetcher, Read
from headrace.namespace import Namespace
from headrace.store.protocol import Blob
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.children import running
from tests.sync_rig import wait_for

pytestmark = pytest.mark.server
MIB = 1 << 20
LARGE = 41 * MIB + 77
KINDS = ("file", "s3", "other")


class Told:
    """Progress, added up."""

    def __init__(self) -> None:
        self.items = self.size = 0

    def total(self, items: int | None, size: int | None = None) -> None:
        pass

    def advance(self, items: int = 1, size: int = 0) -> None:
        self.items += items
        self.size += size


@pytest.fixture(scope="module")
def data() -> bytes:
    return random.Random(1).randbytes(LARGE)


@pytest.fixture
def ns(seaweedfs: EmbeddedS3, tmp_path: Path) -> Iterator[Namespace]:
    """With a folder and two buckets, and a cache of its own."""
    settings = Settings.load(environ={"HEADRACE_CACHE_DIR": str(tmp_path / "cache"), "HEADRACE_CACHE_SIZE": "1GB"})
    with closing(Fetcher.open(settings)) as fetcher:
        opened = Namespace(settings, fetcher=lambda: fetcher)
        (tmp_path / "file").mkdir()
        opened.attach("/file", f"file://{tmp_path}/file")
        for name in ("s3", "other"):
            bucket = seaweedfs.create_bucket(f"copies-{os.urandom(4).hex()}")
            opened.attach(f"/{name}", bucket, **given(seaweedfs))
        yield opened


def given(server: EmbeddedS3) -> dict[str, str]:
    """Its options, as `attach` takes them."""
    return {name: value for name, value in asdict(server.options()).items() if value and isinstance(value, str)}


def through(server: EmbeddedS3) -> FaultServer:
    """One that passes on what it is asked, and knows what that was."""
    return FaultServer(Upstream("127.0.0.1", int(server.endpoint.rpartition(":")[2])))


def requests(ns: Namespace) -> float:
    return ns.fetcher.stats().counters.get("fetch.requests", 0.0)


@pytest.mark.parametrize("target", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_a_large_object_arrives_whole(ns: Namespace, data: bytes, source: str, target: str) -> None:
    ns.write(f"/{source}/from", data)
    told = Told()
    ns.copy(f"/{source}/from", f"/{target}/to", progress=told)
    assert ns.read(f"/{target}/to") == data
    assert told.items == 1
    assert told.size == (0 if source == target else LARGE), "a store that copies inside itself tells of no bytes"
    assert ns.same(f"/{source}/from", f"/{target}/to")


def test_parts_are_asked_for_and_the_cache_is_left_alone(ns: Namespace, data: bytes) -> None:
    ns.write("/s3/from", data)
    ns.copy("/s3/from", "/file/to")
    assert requests(ns) == 6, "8 MiB each"
    ns.fetcher.settle()
    assert "cache.bytes_filled" not in ns.fetcher.stats().counters


def test_what_the_cache_holds_is_not_asked_for(ns: Namespace, data: bytes) -> None:
    for name, content in (("small", data[:9000]), ("large", data)):
        ns.write(f"/s3/{name}", content)
        ns.stat(f"/s3/{name}")
        ns.read(f"/s3/{name}")
        ns.fetcher.settle()
        before = requests(ns)
        ns.copy(f"/s3/{name}", f"/file/{name}")
        assert requests(ns) == before
        assert ns.read(f"/file/{name}") == content


@pytest.mark.parametrize("seen", ["listed", "walked"])
@pytest.mark.parametrize("size", [0, 1, 9000, LARGE])
def test_an_object_that_changed_since_it_was_listed_is_copied_as_it_is_now(
    ns: Namespace, data: bytes, size: int, seen: str, tmp_path: Path
) -> None:
    ns.write("/s3/x", b"was")
    (entry,) = ns.list("/s3") if seen == "listed" else ns.walk("/s3")
    assert entry.size == 3
    other = Namespace(ns.fetcher.settings, fetcher=lambda: ns.fetcher)
    for mount in ns.mounts():
        other.attach(mount.path, mount.url, **mount.options)
    other.write("/s3/x", data[:size])
    ns.copy("/s3/x" if seen == "listed" else entry, "/file/x")
    assert (tmp_path / "file/x").read_bytes() == data[:size]


def test_a_tree_costs_one_request_a_small_file(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    with through(seaweedfs) as server, closing(Fetcher.open(Settings.load(environ={}))) as fetcher:
        direct = Namespace(fetcher.settings, fetcher=lambda: fetcher)
        bucket = seaweedfs.create_bucket(f"copies-{os.urandom(4).hex()}")
        direct.attach("/s3", bucket, **given(seaweedfs))
        for number in range(20):
            direct.write(f"/s3/{number}", b"x" * number)
        counted = Namespace(fetcher.settings, fetcher=lambda: fetcher)
        counted.attach("/s3", bucket, **given(seaweedfs) | {"endpoint": server.endpoint})
        for entry in counted.walk("/s3"):
            counted.copy(entry, tmp_path / entry.name)
        assert Counter(seen.operation for seen in server.seen) == {"list": 1, "get": 20}
    assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == {str(n): n for n in range(20)}


def test_a_version_that_is_no_more_is_not_copied(ns: Namespace, data: bytes, tmp_path: Path) -> None:
    for content in (data, data[:900]):
        ns.write("/s3/x", content)
        place = ns.resolve("/s3/x")
        info = place.store.head(place.key)
        ns.write("/s3/x", content[::-1])
        with pytest.raises(ChangedError):
            ns.copy_version(Read(place.store, place.key, info.size, info.version), "/file/x")
        assert list((tmp_path / "file").iterdir()) == []


def test_same_looks_at_bytes_where_nothing_else_tells(ns: Namespace, data: bytes) -> None:
    changed = bytearray(data)
    changed[LARGE // 2] ^= 1
    for name, content in (("one", data), ("two", data), ("changed", bytes(changed)), ("short", data[:-1])):
        for kind in ("file", "s3"):
            ns.write(f"/{kind}/{name}", content)
    for left in ("/file", "/s3"):
        for right in ("/file", "/s3"):
            assert ns.same(f"{left}/one", f"{right}/two")
            assert not ns.same(f"{left}/one", f"{right}/changed")
            assert not ns.same(f"{left}/one", f"{right}/short")


def test_a_long_read_takes_one_buffer_and_is_kept(ns: Namespace, data: bytes) -> None:
    """Also the first of an object that nothing is known of; and the second asks for nothing."""
    for read in (lambda: ns.read("/s3/x"), lambda: ns.open("/s3/x").read()):
        ns.write("/s3/x", data)
        ns.stat("/s3/x", refresh=True)
        assert read() == data
        ns.fetcher.settle()
        before = requests(ns)
        assert read() == data
        assert requests(ns) == before
    ns.write("/s3/y", data)
    assert ns.read("/s3/y") == data, "never heard of"
    ns.fetcher.settle()
    before = requests(ns)
    assert ns.read("/s3/y") == data
    assert requests(ns) == before


@pytest.mark.parametrize("size", [0, 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 33 * MIB])
def test_an_unknown_object_of_any_size_is_read(ns: Namespace, data: bytes, size: int) -> None:
    ns.write("/s3/x", data[:size])
    assert ns.read("/s3/x") == data[:size]
    ns.write("/s3/x", data[:size])
    assert ns.read("/s3/x", start=size // 2) == data[size // 2 : size]


def test_a_killed_copy_leaves_no_file_that_looks_whole_and_is_resumed(
    seaweedfs: EmbeddedS3, tmp_path: Path, data: bytes
) -> None:
    bucket = seaweedfs.create_bucket(f"copies-{os.urandom(4).hex()}")
    space = Namespace(Settings())
    space.attach("/s3", bucket, **given(seaweedfs))
    wanted = {f"{number:02}": data[number : number + 300_000] for number in range(24)} | {"large": data}
    for name, content in wanted.items():
        space.write(f"/s3/{name}", content)
    target = tmp_path / "target"
    with through(seaweedfs) as late:
        late.plan = Plan([Fault(Kind.LATENCY, delay_s=0.2)])
        slow = {**os.environ, **seaweedfs.variables(), "AWS_ENDPOINT_URL_S3": late.endpoint, "HEADRACE_CACHE_SIZE": "0"}
        command = [sys.executable, "-m", "headrace.cli", "cp", "-r", "-j", "2", "--resume", bucket, str(target)]
        with running(command, env=slow, stderr=subprocess.DEVNULL) as process:
            assert wait_for(lambda: len(there(target)) >= 4, 60)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        first = there(target)
        assert 4 <= len(first) < len(wanted)
        for name, path in first.items():
            assert path.read_bytes() == wanted[name], "half a file under its name"
        seen = {name: path.stat().st_ino for name, path in first.items()}
        late.plan = Plan()
        subprocess.run(command, env=slow, check=True, capture_output=True, timeout=120)
    assert {name: path.read_bytes() for name, path in there(target).items()} == wanted
    assert {name: there(target)[name].stat().st_ino for name in seen} == seen, "copied again"


def there(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.glob("[!.]*")} if folder.exists() else {}


@pytest.mark.parametrize("option", ["--resume", "--checksum"])
def test_what_is_there_already(seaweedfs: EmbeddedS3, tmp_path: Path, option: str) -> None:
    """Left alone if it is the same, by what the option says; else copied again."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    for name in ("same", "missing", "longer", "newer", "other bytes"):
        (source / name).write_bytes(name.encode() * 3)
        os.utime(source / name, (1e9, 1e9))
        if name != "missing":
            (target / name).write_bytes(name.encode() * 3)
    (target / "longer").write_bytes(b"x" * 100)
    os.utime(target / "newer", (5e8, 5e8))
    (target / "other bytes").write_bytes(b"x" * len("other bytes" * 3))
    before = {path.name: path.stat().st_ino for path in target.iterdir()}
    command = [sys.executable, "-m", "headrace.cli", "cp", "-r", option, str(source), str(target)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    changed = {path.name for path in target.iterdir() if before.get(path.name) != path.stat().st_ino}
    assert changed == {"missing", "longer", "newer" if option == "--resume" else "other bytes"}
    ended = subprocess.run([*command, "--no-clobber"], check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "exclude each other" in ended.stderr


@pytest.mark.parametrize("size", [20 * MIB, LARGE])
def test_an_unknown_object_that_changes_after_its_beginning_is_read_as_it_is_then(
    ns: Namespace, data: bytes, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ns.write("/s3/x", data[:size])
    place, get = ns.resolve("/s3/x"), ns.fetcher.get

    def then_changed(read: Read) -> Blob:
        blob = get(read)
        if read.version is None:
            place.store.put(place.key, data[-9000:])
        return blob

    monkeypatch.setattr(ns.fetcher, "get", then_changed)
    assert ns.read("/s3/x") == data[-9000:]
