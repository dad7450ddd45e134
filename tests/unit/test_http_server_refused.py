"""What is no request, or too much of one: refused by name, the connection ended, and nothing behind it believed."""

from __future__ import annotations

import pytest

from headrace.http_server import Limits
from tests.http_server_kit import Client, Rig, serving

HEAD = b"POST /echo HTTP/1.1\r\nHost: a\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"

REFUSED = {
    "length and coding": (400, HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "coding and length": (400, HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    "two lengths": (400, HEAD + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    "two lengths in one": (400, HEAD + b"Content-Length: 3, 3\r\n\r\nabc"),
    "a signed length": (400, HEAD + b"Content-Length: +3\r\n\r\nabc"),
    "a hexadecimal length": (400, HEAD + b"Content-Length: 0x3\r\n\r\nabc"),
    "an empty length": (400, HEAD + b"Content-Length: \r\n\r\n"),
    "an endless length": (400, HEAD + b"Content-Length: 99999999999999999999\r\n\r\n"),
    "lines without CR": (400, b"GET /echo HTTP/1.1\nHost: a\n\n"),
    "a header without CR": (400, b"GET /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"),
    "an end without CR": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\n\n"),
    "a CR alone": (400, b"GET /echo HTTP/1.1\r\nHost: a\rX: b\r\n\r\n"),
    "a folded header": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n"),
    "a space before the colon": (400, HEAD + b"Content-Length : 3\r\n\r\nabc"),
    "a header without a name": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"),
    "a header without a colon": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"),
    "a zero byte": (400, b"GET /echo HTTP/1.1\r\nHost: a\0b\r\n\r\n"),
    "another coding": (501, HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "the coding twice": (400, HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a coding that is none": (501, HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "a coding after chunked": (400, HEAD + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    "a coding in HTTP/1.0": (400, b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a chunk of 0x3": (400, CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n"),
    "a chunk of -3": (400, CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n"),
    "a chunk size with a space": (400, CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n"),
    "a chunk size without CR": (400, CHUNKED + b"3\nabc\r\n0\r\n\r\n"),
    "a chunk extension without CR": (400, CHUNKED + b"3;a\nabc\r\n0\r\n\r\n"),
    "a chunk longer than told": (400, CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n"),
    "a chunk's end without CR": (400, CHUNKED + b"3\r\nabc\n0\r\n\r\n"),
    "an endless chunk": (400, CHUNKED + b"10000000000000003\r\nabc\r\n0\r\n\r\n"),
    "a length in a trailer": (400, CHUNKED + b"0\r\nContent-Length: 1\r\n\r\n"),
    "no host": (400, b"GET /echo HTTP/1.1\r\n\r\n"),
    "two hosts": (400, b"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "two hosts in HTTP/1.0": (400, b"GET /echo HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
    "no version": (505, b"GET /echo\r\n\r\n"),
    "another version": (400, b"GET /echo HTTP/1.9\r\nHost: a\r\n\r\n"),
    "HTTP/2": (400, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a space in the target": (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "bytes above 127 in the target": (400, b"GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a control byte in the target": (400, b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a method in small letters": (501, b"get /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a method that is none": (501, b"FOO /echo HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a tunnel": (501, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "TLS": (501, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80)),
    "another expectation": (417, b"GET /echo HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_request(name: str) -> None:
    status, data = REFUSED[name]
    with serving() as (rig, server):
        for pieces in ([data + HIDDEN], [data[i : i + 1] for i in range(len(data))]):
            with Client(server) as client:
                try:
                    for piece in pieces:
                        client.send(piece)
                except ConnectionError:
                    pass  # refused before its end
                got, headers, _ = client.answer()
                assert (got, headers["connection"]) == (status, "close")
                assert client.ended()
        assert "/hidden" not in [path for batch in rig.batches for path in batch]


def test_the_good_requests_before_it_are_answered() -> None:
    with serving() as (_, server), Client(server) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n" * 2 + b"nonsense\r\n\r\n" + HIDDEN)
        assert [client.answer()[0] for _ in range(3)] == [200, 200, 501]
        assert client.ended()


def test_what_follows_a_last_request_is_not_looked_at() -> None:
    with serving() as (rig, server), Client(server) as client:
        client.send(b"GET /echo HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n" + HIDDEN * 2)
        assert client.answer()[0] == 200
        assert client.ended()
        assert rig.batches == [["/echo"]]


def test_a_body_hidden_behind_an_offer_of_another_protocol() -> None:
    offer = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
    for framing, body in (
        (b"Content-Length: %d\r\n\r\n" % len(HIDDEN), HIDDEN),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(HIDDEN), HIDDEN)),
    ):
        with serving() as (rig, server), Client(server) as client:
            client.send(HEAD + offer + framing + body)
            assert client.answer()[2].startswith(b"POST|/echo|%d|GET /hidden" % len(HIDDEN))
            assert client.get("/echo")[0] == 200
            assert rig.batches == [["/echo"], ["/echo"]]


LIMITS = Limits(head=2000, headers=10, body=100)
TOO_MUCH = {
    "a long target": (414, b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a long target that never ends": (414, b"GET /" + b"a" * 200_000),
    "a long header": (431, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 3000 + b"\r\n\r\n"),
    "a long header that never ends": (431, b"GET /echo HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 200_000),
    "many headers": (431, b"GET /echo HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 11 + b"\r\n"),
    "headers that are long together": (
        431, b"GET /echo HTTP/1.1\r\nHost: a\r\n" + (b"X: " + b"a" * 500 + b"\r\n") * 5 + b"\r\n"
    ),
    "empty lines that never end": (431, b"\r\n" * 100_000),
    "a long body": (413, HEAD + b"Content-Length: 101\r\n\r\n"),
    "a long body in chunks": (413, CHUNKED + b"40\r\n" + b"a" * 64 + b"\r\n40\r\n" + b"a" * 64 + b"\r\n"),
    "a long chunk extension": (400, CHUNKED + b"1;" + b"a" * 200_000),
    "a long trailer": (400, CHUNKED + b"0\r\nX: " + b"a" * 3000 + b"\r\n\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_MUCH)
@pytest.mark.parametrize("step", [1 << 30, 1000, 7])
def test_too_much_of_a_request(name: str, step: int) -> None:
    status, data = TOO_MUCH[name]
    with serving(limits=LIMITS) as (rig, server), Client(server) as client:
        try:
            for at in range(0, len(data), step):
                client.send(data[at : at + step])
        except ConnectionError:
            pass
        got, headers, _ = client.answer()
        assert (got, headers["connection"]) == (status, "close")
        assert client.ended()
        assert not rig.batches


def test_as_much_as_is_allowed() -> None:
    with serving(limits=LIMITS) as (_, server), Client(server) as client:
        filler = b"X: " + b"a" * 1900 + b"\r\n"
        for step in (1, 50, 5000):
            data = HEAD + filler + b"Content-Length: 100\r\n\r\n" + b"b" * 100
            for at in range(0, len(data), step):
                client.send(data[at : at + step])
            assert client.answer()[0] == 200


def test_the_application_may_allow_less_or_more() -> None:
    for limit, status in ((10, 413), (200, 200)):
        with serving(Rig(limit=limit), limits=LIMITS) as (_, server), Client(server) as client:
            client.send(HEAD + b"Content-Length: 150\r\n\r\n" + b"b" * 150)
            assert client.answer()[0] == status
