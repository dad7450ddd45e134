"""The S3 door when things go wrong: the store away, bodies torn, clients that go, a cache disk that is full."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import shutil
import signal
import socket
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from headrace.base.ports import reserve_port
from headrace.store import open_store
from headrace.testing.http import FaultServer
from headrace.testing.origins import Upstream
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.servers import EmbeddedS3
from tests.gateway_kit import READER, WRITER, Rig, gateway_over, mount, settings_of, signed
from tests.http_server_kit import until

pytestmark = pytest.mark.server


def upstream(server: EmbeddedS3) -> Upstream:
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    return Upstream(host, int(port))


def door(rig: Rig) -> Any:
    return rig.gateway._server.application  # type: ignore[union-attr]


def ask(rig: Rig, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(rig.url.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, body or None, signed(rig, WRITER, method, path, payload=body))
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


@contextmanager
def behind(seaweedfs: EmbeddedS3, folder: Path, **options: Any) -> Iterator[tuple[Rig, Any]]:
    url = seaweedfs.create_bucket("faults-behind")
    settings = settings_of({"/data": mount(url, seaweedfs.options())}, folder, **options)
    store = open_store(url, seaweedfs.options())
    try:
        with gateway_over(settings, folder) as rig:
            yield rig, store
    finally:
        store.close()


def test_a_store_that_is_away_is_a_503_that_says_when_to_come_again(tmp_path: Path) -> None:
    table = {
        "url": "s3://any", "endpoint": f"http://127.0.0.1:{reserve_port()}", "access_key_id": "x", "retries": 0,
        "secret_access_key": "y", "path_style": True, "allow_http": True, "timeout_s": 1.0, "region": "r",
    }  # fmt: skip
    settings = settings_of({"/data": table}, tmp_path)
    settings = dataclasses.replace(settings, fetch=dataclasses.replace(settings.fetch, deadline=2.0, retries=0))
    with gateway_over(settings, tmp_path) as rig:
        for method, path, body in (("GET", "/data/x", b""), ("PUT", "/data/x", b"x"), ("DELETE", "/data/x", b"")):
            status, headers, text = ask(rig, method, path, body)
            assert (status, headers.get("retry-after")) == (503, "1"), text
            assert b"<Code>ServiceUnavailable</Code>" in text
        assert ask(rig, "HEAD", "/data/x")[::2] == (503, b"")


def test_a_store_that_comes_back_is_asked_again(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    url = seaweedfs.create_bucket("faults-away")
    data = os.urandom(300_000)
    every = frozenset({"get", "head", "list", "put", "copy", "delete"})
    with FaultServer(upstream(seaweedfs)) as between:
        table = mount(url, seaweedfs.options()) | {"endpoint": between.endpoint, "retries": 0, "timeout_s": 1.0}
        settings = settings_of({"/data": table}, tmp_path)
        settings = dataclasses.replace(settings, fetch=dataclasses.replace(settings.fetch, deadline=2.0, retries=0))
        with gateway_over(settings, tmp_path) as rig:
            for number, kind in enumerate((Kind.REFUSE, Kind.SLOW_DOWN, Kind.INTERNAL)):
                path = f"/data/away-{number}"
                assert ask(rig, "PUT", path, data)[0] == 200
                between.plan = Plan([Fault(kind, operations=every)])
                for method in ("GET", "PUT", "DELETE"):
                    status, headers, text = ask(rig, method, path, b"other" if method == "PUT" else b"")
                    assert (status, headers.get("retry-after")) == (503, "1"), (kind, text)
                    assert ET.fromstring(text).findtext("Code") in ("ServiceUnavailable", "SlowDown")
                    assert ET.fromstring(text).findtext("Resource") == path
                assert ask(rig, "HEAD", path)[::2] == (503, b"")
                between.plan = Plan()
                assert ask(rig, "GET", path)[::2] == (200, data)
                assert ask(rig, "PUT", path, b"other")[0] == 200
                assert ask(rig, "GET", path)[::2] == (200, b"other")


def test_what_is_warm_outlives_the_store(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    url = seaweedfs.create_bucket("faults-warm")
    with FaultServer(upstream(seaweedfs)) as between:
        table = mount(url, seaweedfs.options()) | {"endpoint": between.endpoint}
        with gateway_over(settings_of({"/data": table}, tmp_path), tmp_path) as rig:
            rig.client().put_object(Bucket="data", Key="x", Body=b"hello")
            for _ in range(2):
                assert ask(rig, "GET", "/data/x")[2] == b"hello"
            between.plan = Plan([Fault(Kind.REFUSE)])
            assert ask(rig, "GET", "/data/x")[2] == b"hello"


def test_a_torn_body_is_never_taken_for_the_whole(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    url = seaweedfs.create_bucket("faults-torn")
    store = open_store(url, seaweedfs.options())
    data = {f"torn-{number}": os.urandom(size) for number, size in enumerate((50_000, 400_000, 12 << 20))}
    for key, value in data.items():
        store.put(key, value)
    store.close()
    plan = Plan([Fault(Kind.TRUNCATE, rate=0.5, per_key=2)], seed=3)
    with FaultServer(upstream(seaweedfs), plan) as between:
        table = mount(url, seaweedfs.options()) | {"endpoint": between.endpoint}
        with gateway_over(settings_of({"/data": table}, tmp_path), tmp_path) as rig:
            for key, value in data.items():
                for _ in range(2):
                    status, headers, body = ask(rig, "GET", f"/data/{key}")
                    assert (status, int(headers["content-length"])) == (200, len(value))
                    assert body == value
    assert plan.struck(Kind.TRUNCATE)


def test_a_client_that_goes_leaves_nothing_behind(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    with behind(seaweedfs, tmp_path) as (rig, store):
        store.put("long", os.urandom(40 << 20))
        slots = door(rig)._reading._slots
        free = slots._value
        for cold in (True, False):
            with socket.create_connection((rig.gateway.address.host, rig.gateway.address.port)) as client:
                lines = [f"{name}: {value}" for name, value in signed(rig, READER, "GET", "/data/long").items()]
                client.sendall("\r\n".join(["GET /data/long HTTP/1.1", *lines, "", ""]).encode())
                client.recv(1000)
            until(lambda: slots._value == free)
            assert len(ask(rig, "GET", "/data/long")[2]) == 40 << 20, cold
        with socket.create_connection((rig.gateway.address.host, rig.gateway.address.port)) as client:
            lines = [f"{name}: {value}" for name, value in signed(rig, WRITER, "PUT", "/data/half").items()]
            lines += ["Content-Length: 20000000", "", ""]
            client.sendall("\r\n".join(["PUT /data/half HTTP/1.1", *lines]).encode())
            client.sendall(bytes(10_000_000))
        until(lambda: door(rig)._crew is not None and rig.gateway._server.connections == 0)  # type: ignore[union-attr]
        assert ask(rig, "HEAD", "/data/half")[0] == 404
        spool = [one for one in (tmp_path / "spool").rglob("*") if one.is_file()]
        assert [one.name for one in spool] == ["changes"]


@pytest.mark.parametrize("cache", [{"size": 1 << 20}, {"size": 0}, {"min_free": 1 << 60}])
def test_a_cache_that_takes_nothing_costs_no_answer(seaweedfs: EmbeddedS3, tmp_path: Path, cache: dict[str, int]):
    with behind(seaweedfs, tmp_path, **cache) as (rig, store):
        data = {f"full-{number}": os.urandom(size) for number, size in enumerate((10, 2 << 20, 18 << 20))}
        for key, value in data.items():
            store.put(key, value)
            for _ in range(2):
                assert ask(rig, "GET", f"/data/{key}")[2] == value


@pytest.fixture
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 24 MiB, with nothing left on it."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small tmpfs")
    folder = tmp_path_factory.mktemp("headrace-small-disk")
    command = ["mount", "-t", "tmpfs", "-o", f"size={24 << 20},mode=0700", "headrace-test", str(folder)]
    subprocess.run(command, check=True, timeout=30)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, timeout=30)


def fill(folder: Path) -> Path:
    """A file that takes all that is left of its file system."""
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    assert shutil.disk_usage(folder).free == 0
    return folder / "filler"


def test_reads_and_short_writes_go_on_when_the_caches_disk_is_full(
    seaweedfs: EmbeddedS3, tmp_path: Path, small_disk: Path
) -> None:
    url = seaweedfs.create_bucket("faults-behind")
    data = {f"disk-{number}": os.urandom(size) for number, size in enumerate((10, 2 << 20, 18 << 20))}
    store = open_store(url, seaweedfs.options())
    for key, value in data.items():
        store.put(key, value)
    store.close()
    settings = settings_of({"/data": mount(url, seaweedfs.options())}, tmp_path, dir=str(small_disk))
    with gateway_over(settings, tmp_path, spool="", processes=2) as rig:  # all of its files are on that disk
        pids = rig.gateway.pids
        assert ask(rig, "GET", "/data/disk-1")[2] == data["disk-1"]  # kept, and held open
        filler = fill(small_disk)
        for _ in range(3):
            for key, value in data.items():
                assert ask(rig, "GET", f"/data/{key}")[::2] == (200, value)
        for number in range(20):
            assert ask(rig, "PUT", f"/data/short-{number}", b"%d" % number)[0] == 200
            assert ask(rig, "GET", f"/data/short-{number}")[::2] == (200, b"%d" % number)
        filler.unlink()
        assert ask(rig, "GET", "/data/disk-2")[2] == data["disk-2"]
        assert rig.gateway.pids == pids  # none has died of it


def test_what_finds_no_room_on_the_gateways_disk_is_a_503(
    seaweedfs: EmbeddedS3, tmp_path: Path, small_disk: Path
) -> None:
    url = seaweedfs.create_bucket("faults-behind")
    settings = settings_of({"/data": mount(url, seaweedfs.options())}, tmp_path)
    with gateway_over(settings, tmp_path, spool=str(small_disk)) as rig:
        s3, given = rig.client(), {"Bucket": "data", "Key": "no-room"}
        s3.put_object(Bucket="data", Key="source", Body=bytes(12 << 20))
        upload = s3.create_multipart_upload(**given)
        part = given | {"UploadId": upload["UploadId"], "PartNumber": 1}
        filler = fill(small_disk)
        for call, more in (
            (s3.put_object, given | {"Body": bytes(12 << 20)}),
            (s3.create_multipart_upload, given),
            (s3.upload_part, part | {"Body": bytes(1 << 20)}),
            (s3.upload_part_copy, part | {"CopySource": "data/source"}),
        ):
            with pytest.raises(ClientError) as caught:
                call(**more)
            answer = caught.value.response
            assert (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Error"]["Code"]) == (503, "SlowDown"), call
            assert answer["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "1"
        assert ask(rig, "HEAD", "/data/no-room")[0] == 404
        filler.unlink()
        etag = s3.upload_part(**part, Body=bytes(1 << 20))["ETag"]  # what the others took is free again
        whole = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
        s3.complete_multipart_upload(**given, UploadId=upload["UploadId"], MultipartUpload=whole)
        assert ask(rig, "GET", "/data/no-room")[::2] == (200, bytes(1 << 20))


def test_a_process_that_is_killed_while_it_answers_is_started_again(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    url = seaweedfs.create_bucket("faults-behind")
    store, data = open_store(url, seaweedfs.options()), os.urandom(40 << 20)
    store.put("killed", data)
    store.close()
    settings = settings_of({"/data": mount(url, seaweedfs.options())}, tmp_path)
    with gateway_over(settings, tmp_path, processes=2) as rig:
        before = set(rig.gateway.pids)
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)  # so that most of it is still to come
            client.connect((rig.gateway.address.host, rig.gateway.address.port))
            lines = [f"{name}: {value}" for name, value in signed(rig, READER, "GET", "/data/killed").items()]
            client.sendall("\r\n".join(["GET /data/killed HTTP/1.1", *lines, "", ""]).encode())
            head = client.recv(4096)
            assert b"Content-Length: %d\r\n" % len(data) in head, head
            reader = answering(before, client.getsockname()[1])
            os.kill(reader, signal.SIGKILL)
            got = len(head) + len(rest(client))
        assert got < len(data)  # cut, and shorter than it said: no client takes that for the whole
        for _ in range(8):  # each over a connection of its own, so that both answer
            assert ask(rig, "GET", "/data/killed")[::2] == (200, data)
        until(lambda: reader not in rig.gateway.pids)
        assert len(rig.gateway.pids) == 2
        assert set(rig.gateway.pids) & before == before - {reader}
        assert ask(rig, "PUT", "/data/killed", b"short")[0] == 200
        for _ in range(8):
            assert ask(rig, "GET", "/data/killed")[::2] == (200, b"short")


def answering(pids: set[int], port: int) -> int:
    """The process whose connection goes to that port of this machine."""
    found = [pid for pid in pids for one in psutil.Process(pid).net_connections("tcp") if one.raddr and
             one.raddr.port == port and one.status == psutil.CONN_ESTABLISHED]  # fmt: skip
    assert len(found) == 1
    return found[0]


def rest(client: socket.socket) -> bytes:
    """All that still comes, until the end or a reset."""
    got = bytearray()
    client.settimeout(60)
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 20):
            got += piece
    return bytes(got)


def test_a_gateway_that_ends_answers_what_is_under_way(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    with behind(seaweedfs, tmp_path) as (rig, store):
        store.put("long", bytes(30 << 20))
        with socket.create_connection((rig.gateway.address.host, rig.gateway.address.port)) as client:
            lines = [f"{name}: {value}" for name, value in signed(rig, READER, "GET", "/data/long").items()]
            client.sendall("\r\n".join(["GET /data/long HTTP/1.1", *lines, "", ""]).encode())
            got = len(client.recv(1000))
            ending = threading.Thread(target=rig.gateway.close, args=(20,))
            ending.start()
            while piece := client.recv(1 << 20):
                got += len(piece)
            ending.join()
        assert got > 30 << 20


def test_slow_clients_hold_no_more_than_they_may(seaweedfs: EmbeddedS3, tmp_path: Path) -> None:
    url = seaweedfs.create_bucket("faults-behind")
    settings = settings_of({"/data": mount(url, seaweedfs.options())}, tmp_path, size=0)
    settings = dataclasses.replace(settings, fetch=dataclasses.replace(settings.fetch, memory=128 << 20))
    store = open_store(url, seaweedfs.options())
    store.put("long", bytes(40 << 20))
    store.close()
    with gateway_over(settings, tmp_path) as rig:
        slow: list[socket.socket] = []
        for _ in range(4):  # 32 MiB each
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.connect((rig.gateway.address.host, rig.gateway.address.port))
            lines = [f"{name}: {value}" for name, value in signed(rig, READER, "GET", "/data/long").items()]
            client.sendall("\r\n".join(["GET /data/long HTTP/1.1", *lines, "", ""]).encode())
            client.recv(1000)
            slow.append(client)
        status, headers, body = ask(rig, "GET", "/data/long")
        assert (status, headers["retry-after"], b"<Code>SlowDown</Code>" in body) == (503, "1", True)
        assert ask(rig, "HEAD", "/data/long")[0] == 200
        for client in slow:
            client.close()
        assert len(ask(rig, "GET", "/data/long")[2]) == 40 << 20
