"""Faults on the wire while files are sent to a real S3 server: whole objects, or a named error and none."""

from __future__ import annotations

import dataclasses
import os
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headrace.base.errors import DeniedError, NotFoundError, SlowDownError
from headrace.store import Store, open_store
from headrace.store.embedded import EmbeddedS3
from headrace.testing.http import FaultServer
from headrace.testing.messages import Message, s3_error
from headrace.testing.origins import Session, Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.upload import Item, Uploader, UploadOptions, put_many

pytestmark = pytest.mark.server
MIB = 1 << 20
WRITES = frozenset({"put", "copy"})


@pytest.fixture
def url(seaweedfs: EmbeddedS3) -> str:
    return f"{seaweedfs.create_bucket('upload-faults')}/{time.monotonic_ns()}"


@pytest.fixture
def straight(seaweedfs: EmbeddedS3, url: str) -> Iterator[Store]:
    opened = open_store(url, seaweedfs.options())
    yield opened
    opened.close()


@pytest.fixture
def faults(seaweedfs: EmbeddedS3) -> Iterator[FaultServer]:
    parts = urlsplit(seaweedfs.endpoint)
    with FaultServer(Upstream(parts.hostname or "", parts.port or 0)) as server:
        yield server


@pytest.fixture
def store(seaweedfs: EmbeddedS3, url: str, faults: FaultServer) -> Iterator[Store]:
    opened = open_store(url, dataclasses.replace(seaweedfs.options(), endpoint=faults.endpoint, timeout_s=20.0))
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(random.Random(3).randbytes(21 * MIB))
    os.utime(path, (1e9, 1e9))
    return path


@pytest.fixture
def uploader() -> Iterator[Uploader]:
    with Uploader(UploadOptions(part=5 * MIB, threads=3)) as opened:
        yield opened
        assert opened.held == 0


@pytest.mark.parametrize("kind", [Kind.SLOW_DOWN, Kind.INTERNAL, Kind.RESET, Kind.REFUSE, Kind.TRUNCATE])
def test_a_large_file_arrives_through_faults(
    store: Store, straight: Store, faults: FaultServer, uploader: Uploader, file: Path, kind: Kind
) -> None:
    """Also where an answer is lost after the work was done: a part sent twice, an upload completed twice."""
    # The first one for certain: which requests chance picks depends on the order in which the threads come.
    strikes = [Fault(kind, operations=WRITES, count=1), Fault(kind, operations=WRITES, rate=0.3, count=5)]
    faults.plan = Plan(strikes, seed=11)
    info = uploader.put_file(store, "big", file, 11 * MIB)
    info = uploader.append(store, "big", info, file)
    assert faults.plan.struck(kind)
    assert straight.head("big").etag == info.etag
    assert straight.get("big").data == file.read_bytes()


@dataclasses.dataclass
class Forgetful:
    """An origin that completes an upload, says it has failed, and then knows no such upload, as AWS may in a retry."""

    upstream: Upstream
    completions: int = 0

    def session(self) -> Session:
        return _Forgetting(self, self.upstream.session())


@dataclasses.dataclass
class _Forgetting:
    origin: Forgetful
    behind: Session

    def answer(self, request: Message) -> Message:
        if request.method != "POST" or "uploadId" not in request.query:
            return self.behind.answer(request)
        self.origin.completions += 1
        if self.origin.completions > 1:
            return s3_error(404, "Not Found", "NoSuchUpload")
        assert self.behind.answer(request).status == 200
        return s3_error(500, "Internal Server Error", "InternalError")

    def close(self) -> None:
        self.behind.close()


@pytest.mark.parametrize("create", [False, True])
def test_a_completion_whose_answer_is_lost_is_recognised(
    seaweedfs: EmbeddedS3, straight: Store, uploader: Uploader, file: Path, create: bool
) -> None:
    parts = urlsplit(seaweedfs.endpoint)
    origin = Forgetful(Upstream(parts.hostname or "", parts.port or 0))
    with FaultServer(origin) as faults:
        store = open_store(straight.url, dataclasses.replace(seaweedfs.options(), endpoint=faults.endpoint))
        store.record(dataclasses.replace(store.capabilities, conditional_parts=True))
        info = uploader.put_file(store, "big", file, create=create)
        assert origin.completions == 2
        with pytest.raises(NotFoundError, match="upload is gone"):
            uploader.put_file(store, "other", file, 20 * MIB)  # the first try says no such upload: nothing was done
        store.close()
    assert straight.head("big").etag == info.etag
    assert straight.get("big").data == file.read_bytes()


def test_a_store_that_stays_away_leaves_nothing(
    seaweedfs: EmbeddedS3, url: str, straight: Store, faults: FaultServer, uploader: Uploader, file: Path
) -> None:
    options = dataclasses.replace(seaweedfs.options(), endpoint=faults.endpoint, timeout_s=5.0, retries=1)
    store = open_store(url, options)
    faults.plan = Plan([Fault(Kind.SLOW_DOWN, operations=WRITES, after=3)])
    with pytest.raises(SlowDownError):
        uploader.put_file(store, "big", file)
    assert [one for page in straight.list() for one in page] == []
    assert not straight.unfinished(), "the parts sent before were to be thrown away"
    faults.plan = Plan()
    assert uploader.put_file(store, "big", file).size == file.stat().st_size
    store.close()


def test_many_small_files_through_faults(
    store: Store, straight: Store, faults: FaultServer, uploader: Uploader, tmp_path: Path
) -> None:
    faults.plan = Plan([Fault(kind, operations=WRITES, rate=0.1) for kind in (Kind.RESET, Kind.SLOW_DOWN)], seed=5)
    items = [Item(f"{number:03d}", tmp_path / f"{number:03d}") for number in range(100)]
    for item in items:
        Path(item.file).write_bytes(item.key.encode() * 5000)
    assert [one.error for one in put_many(uploader, store, items) if one.error] == []
    assert faults.plan.struck(Kind.RESET)
    assert faults.plan.struck(Kind.SLOW_DOWN)
    assert all(straight.get(item.key).data == Path(item.file).read_bytes() for item in items)


def test_a_refusal_in_the_middle_of_a_body_is_heard(seaweedfs: EmbeddedS3) -> None:
    """A server may answer before it has read all, and close: what it said counts, not the broken pipe."""
    refusal = s3_error(403, "Forbidden", "AccessDenied")

    def refuse(listener: socket.socket) -> None:
        for _ in range(2):
            link, _ = listener.accept()
            with link:
                link.recv(65536)
                link.sendall(refusal.head() + refusal.body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=refuse, args=(listener,), daemon=True)
        server.start()
        endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}"
        options = dataclasses.replace(seaweedfs.options(), endpoint=endpoint, timeout_s=5.0)
        store = open_store("s3://any-bucket", options)
        with pytest.raises(DeniedError):
            store.put("a", bytes(16 * MIB))
        with pytest.raises(DeniedError):
            store.put("a", b"small")
        server.join(5)
        store.close()
