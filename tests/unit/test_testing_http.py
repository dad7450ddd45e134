"""The failing server fails as its plan says, on the wire."""

from __future__ import annotations

import http.client
import socket
import threading
import time

import pytest

from headrace.testing.http import FaultServer
from headrace.testing.origins import Objects, Tree, Upstream, etag_of
from headrace.testing.plan import Fault, Kind, Plan

BODY = bytes(range(256)) * 400
CONTENT = {"bucket/a": BODY, "bucket/empty": b"", "bucket/ä +%": b"odd"}


def fetch(server, path="/bucket/a", method="GET", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


@pytest.fixture(params=["objects", "tree", "proxy"])
def origin(request, tmp_path):
    if request.param == "objects":
        yield Objects(CONTENT)
    elif request.param == "tree":
        for key, data in CONTENT.items():
            (tmp_path / key).parent.mkdir(exist_ok=True)
            (tmp_path / key).write_bytes(data)
        yield Tree(tmp_path)
    else:
        with FaultServer(Objects(CONTENT)) as behind:
            yield Upstream("127.0.0.1", behind.port)


def test_serves_ranges_conditions_and_odd_paths(origin):
    with FaultServer(origin) as server:
        response, data = fetch(server)
        assert (response.status, data) == (200, BODY)
        assert response.getheader("ETag") == f'"{etag_of(BODY)}"'
        for text, expected in [("bytes=3-9", BODY[3:10]), ("bytes=100-", BODY[100:]), ("bytes=-5", BODY[-5:])]:
            response, data = fetch(server, headers={"Range": text})
            assert (response.status, data) == (206, expected)
        assert fetch(server, headers={"Range": f"bytes={len(BODY)}-"})[0].status == 416
        assert fetch(server, headers={"If-Match": '"other"'})[0].status == 412
        assert fetch(server, "/bucket/none")[0].status == 404
        assert fetch(server, "/bucket/empty")[1] == b""
        assert fetch(server, "/bucket/%C3%A4%20%2B%25")[1] == b"odd"
        head, nothing = fetch(server, method="HEAD")
        assert (head.getheader("Content-Length"), nothing) == (str(len(BODY)), b"")


def test_a_tree_serves_nothing_above_itself(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "secret").write_bytes(b"no")
    with FaultServer(Tree(tmp_path / "in")) as server:
        assert fetch(server, "/%2e%2e/secret")[0].status == 404


def test_keeps_a_connection_for_many_requests():
    with FaultServer(Objects(CONTENT)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        for _ in range(20):
            connection.request("GET", "/bucket/a")
            assert connection.getresponse().read() == BODY
        connection.close()
        assert (server.connections, server.plan.requests("get")) == (1, 20)


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [(Kind.SLOW_DOWN, 503, b"SlowDown"), (Kind.INTERNAL, 500, b"InternalError"), (Kind.EXPIRED, 403, b"ExpiredToken")],
)
def test_refusals_strike_as_often_as_planned(kind, status, code):
    with FaultServer(Objects(CONTENT), Plan([Fault(kind, per_key=2)])) as server:
        first, second, third = fetch(server), fetch(server), fetch(server)
    assert [r.status for r, _ in (first, second, third)] == [status, status, 200]
    assert code in first[1]
    assert server.plan.struck(kind) == 2


def test_a_reset_is_a_reset_in_the_middle():
    with FaultServer(Objects(CONTENT), Plan([Fault(Kind.RESET, count=1)])) as server:
        with pytest.raises(ConnectionResetError):
            fetch(server)
        assert fetch(server)[1] == BODY


def test_a_truncated_body_ends_before_its_length():
    with FaultServer(Objects(CONTENT), Plan([Fault(Kind.TRUNCATE, count=1)])) as server:
        with pytest.raises(http.client.IncompleteRead) as caught:
            fetch(server)
        assert caught.value.partial == BODY[: len(BODY) // 2]


def test_a_refused_connection_closes_without_a_word():
    with FaultServer(Objects(CONTENT), Plan([Fault(Kind.REFUSE, count=1)])) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            fetch(server)
        assert fetch(server)[1] == BODY


def test_spoilt_answers_look_well():
    plan = Plan([Fault(Kind.CORRUPT, count=1), Fault(Kind.SHORT, count=1), Fault(Kind.CHANGED, count=1)])
    with FaultServer(Objects(CONTENT), plan) as server:
        data = fetch(server)[1]
        assert len(data) == len(BODY)
        assert sum(a != b for a, b in zip(data, BODY, strict=True)) == 1
        assert fetch(server)[1] == BODY[: len(BODY) // 2]
        response, data = fetch(server)
        assert data == BODY
        assert response.getheader("ETag") != f'"{etag_of(BODY)}"'


def test_latency_and_stall_take_their_time():
    plan = Plan([Fault(Kind.LATENCY, delay_s=0.2), Fault(Kind.STALL, after=1, delay_s=0.3)])
    with FaultServer(Objects(CONTENT), plan) as server:
        began = time.monotonic()
        assert fetch(server)[1] == BODY
        assert 0.2 <= time.monotonic() - began < 2
        began = time.monotonic()
        with pytest.raises(http.client.IncompleteRead):
            fetch(server)
        assert 0.5 <= time.monotonic() - began < 3


def test_closing_ends_a_long_stall_and_every_thread():
    before = threading.active_count()
    server = FaultServer(Objects(CONTENT), Plan([Fault(Kind.STALL, delay_s=600)])).__enter__()
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    sock.sendall(b"GET /bucket/a HTTP/1.1\r\nHost: x\r\n\r\n")
    assert sock.recv(10)
    began = time.monotonic()
    server.close()
    sock.close()
    assert time.monotonic() - began < 2
    assert threading.active_count() == before


def test_the_same_seed_gives_the_same_fates_whatever_the_order():
    keys = [f"k{n}" for n in range(300)]
    faults = [Fault(Kind.RESET, rate=0.3), Fault(Kind.LATENCY, rate=0.5, delay_s=1)]

    def fates(order, seed):
        plan = Plan(faults, seed=seed)
        return {(key, nth): plan.decide("get", key) for nth in range(2) for key in order}

    assert fates(keys, 1) == fates(keys[::-1], 1) != fates(keys, 2)
    struck = sum(fate.fault is not None for fate in fates(keys, 1).values())
    assert 120 <= struck <= 240
