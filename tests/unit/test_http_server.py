"""Requests in, answers out: order, bodies of every kind, what a client may say, and what it is told."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from headrace.base.errors import InternalError
from headrace.http_server import Address, Limits, Response, Server
from tests.http_server_kit import PLAIN, Client, Rig, serving, until


def test_an_answer_has_a_date_and_names_no_program() -> None:
    with serving() as (_, server), Client(server) as client:
        status, headers, body = client.get("/echo")
        assert status == 200
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["date"])
        assert set(headers) == {"date", "content-type", "content-length"}
        assert body == b"GET|/echo|0||host=a"


def test_a_connection_is_kept_until_somebody_ends_it() -> None:
    with serving() as (_, server):
        with Client(server) as client:
            assert [client.get("/echo")[0] for _ in range(3)] == [200] * 3
            _, headers, _ = client.get("/echo", "Connection: close")
            assert headers["connection"] == "close"
            assert client.ended()
        with Client(server) as client:
            client.send(b"GET /echo HTTP/1.0\r\n\r\n")
            assert client.answer()[1]["connection"] == "close"
            assert client.ended()
        with Client(server) as client:
            for _ in range(2):
                client.send(b"GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert client.answer()[1]["connection"] == "keep-alive"


def test_the_last_request_of_a_connection() -> None:
    with serving(limits=Limits(requests=2)) as (_, server), Client(server) as client:
        assert "connection" not in client.get("/echo")[1]
        assert client.get("/echo")[1]["connection"] == "close"
        assert client.ended()


def test_pipelined_requests_are_answered_in_order_whoever_is_ready_first() -> None:
    with serving() as (rig, server), Client(server) as client:
        client.send(b"".join(b"GET /later/%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(4)))
        until(lambda: len(rig.held) == 4)
        for one in reversed(rig.held):
            thread = threading.Thread(target=one.answer, args=(Response(200, PLAIN, one.path.encode()),))
            thread.start()
            thread.join()
        assert [client.answer()[2] for _ in range(4)] == [b"/later/%d" % i for i in range(4)]


def test_what_comes_with_one_look_at_the_sockets_is_handed_over_together() -> None:
    with serving() as (rig, server), Client(server) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
        for _ in range(5):
            client.answer()
        assert rig.batches == [["/echo"] * 5]


def test_more_unanswered_than_the_depth_are_not_read() -> None:
    with serving(limits=Limits(depth=2)) as (rig, server), Client(server) as client:
        for i in range(5):
            client.send(b"GET /later/%d HTTP/1.1\r\nHost: a\r\n\r\n" % i)
            until(lambda: len(rig.held) >= min(i + 1, 2))  # noqa: B023
        assert len(rig.held) == 2
        for i in range(5):
            until(lambda: len(rig.held) > i)  # noqa: B023
            rig.held[i].answer(Response(200, PLAIN, b"%d" % i))
            assert client.answer()[2] == b"%d" % i


def test_bodies_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 20_000)
    with serving(Rig(file=str(tmp_path / "file"))) as (rig, server), Client(server) as client:
        assert client.get("/file")[2] == bytes(range(256)) * 20_000
        assert client.get("/pieces")[2] == b"one,two,three"
        assert client.get("/nothing")[::2] == (204, b"")
        _, headers, body = client.get("/stream/5")
        assert headers["transfer-encoding"] == "chunked"
        assert body == b"x" * 5 * 65536
        _, headers, body = client.get("/stream/5?known")
        assert headers["content-length"] == str(5 * 65536)
        assert body == b"x" * 5 * 65536
        until(lambda: (rig.released, rig.closed) == (1, 2))
        client.send(b"GET /stream/2 HTTP/1.0\r\n\r\n")
        assert client.answer()[2] == b"x" * 2 * 65536


def test_head_has_the_length_and_no_body(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with serving(Rig(file=str(tmp_path / "file"))) as (rig, server), Client(server) as client:
        for path, length in (("/file", "3"), ("/echo", None), ("/stream/1?known", "65536")):
            client.send(f"HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            _, headers, _ = client.answer("HEAD")
            assert headers["content-length"] == (length or headers["content-length"])
        assert client.get("/nothing")[0] == 204
        until(lambda: rig.released == 1)


def test_request_bodies_whole_and_streamed() -> None:
    body = b"0123456789" * 50_000
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:7], body[7:70_000], body[70_000:]))
    with serving() as (_, server), Client(server) as client:
        for path, expected in (("/echo", None), ("/up", b"500000")):
            client.send(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n%s" % (path.encode(), body))
            got = client.answer()[2]
            assert got == expected or got.startswith(b"POST|/echo|500000|" + body)
            client.send(b"PUT %s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" % path.encode())
            client.send(chunks + b"0\r\nTrailer: x\r\n\r\n")
            got = client.answer()[2]
            assert got == expected or got.startswith(b"PUT|/echo|500000|" + body)


@pytest.mark.parametrize("path", ["/echo", "/up"])
def test_a_client_that_waits_for_100_continue(path: str) -> None:
    with serving() as (_, server), Client(server) as client:
        client.send(
            b"PUT %s HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n" % path.encode()
        )
        assert client.answer()[0] == 100
        client.send(b"abc")
        assert client.answer()[0] == 200
        assert client.get("/echo")[0] == 200


def test_a_refusal_at_the_head_needs_no_body() -> None:
    with serving() as (_, server):
        with Client(server) as client:
            client.send(
                b"PUT /refuse HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n"
            )
            status, headers, _ = client.answer()
            assert (status, headers["connection"]) == (403, "close")
        with Client(server) as client:
            client.send(b"PUT /early HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 2_000_000)
            assert client.answer()[::2] == (409, b"enough")
        with Client(server) as client:
            assert client.get("/refuse")[0] == 403
            assert client.get("/echo")[0] == 200


def test_an_application_that_fails_is_a_500() -> None:
    with serving() as (_, server):
        for path in ("/bad", "/bad-head", "/split"):
            with Client(server) as client:
                status, headers, _ = client.get(path)
                assert (status, headers["connection"]) == (500, "close")
                assert "set-cookie" not in headers
                assert client.ended()


@pytest.mark.parametrize("path", ["/longer-file", "/short-stream", "/failing-stream"])
def test_an_answer_that_cannot_be_finished_is_cut(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with serving(Rig(file=str(tmp_path / "file"))) as (_, server), Client(server) as client, pytest.raises(EOFError):
        client.get(path)


def test_an_exchange_is_answered_once() -> None:
    with serving() as (rig, server), Client(server) as client:
        client.send(b"GET /later HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: rig.held)
        rig.held[0].answer(Response(200))
        with pytest.raises(InternalError):
            rig.held[0].answer(Response(200))


def test_paths_and_queries() -> None:
    with serving() as (rig, server), Client(server) as client:
        client.send(b"GET /later/a%20b%2Fc%C3%A9%ff?x=%20&y HTTP/1.1\r\nHost: a\r\nX: 1\r\nx: 2\r\n\r\n")
        client.send(b"GET http://other/later?z HTTP/1.1\r\nHost: a\r\n\r\n")
        until(lambda: len(rig.held) == 2)
        first, second = rig.held
        assert (first.path, first.query) == ("/later/a b/cé\udcff", "x=%20&y")
        assert first.headers.all("X") == ["1", "2"]
        assert first.headers.get("x") == "1"
        assert "y" not in first.headers
        assert (second.path, second.query) == ("/later", "z")
        assert "x=" not in repr(first)


def test_an_offer_of_another_protocol_is_declined() -> None:
    with serving() as (_, server), Client(server) as client:
        head = b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
        client.send((head + b"Content-Length: 3\r\n\r\nabc") * 2)
        for _ in range(2):
            assert client.answer()[2].startswith(b"POST|/echo|3|abc|")


def test_a_unix_socket(tmp_path: Path) -> None:
    import socket

    path = tmp_path / "s"
    with Server(Rig(), Address(unix=str(path))) as server, socket.socket(socket.AF_UNIX) as client:
        assert server.address.url == f"unix:{path}"
        assert path.stat().st_mode & 0o077 == 0
        client.connect(str(path))
        client.sendall(b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
    assert not path.exists()
