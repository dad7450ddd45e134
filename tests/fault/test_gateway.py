"""The S3 door when things go wrong: the store away, bodies torn, clients that go, a cache disk that is full."""

from __future__ import annotations

import dataclasses
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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
