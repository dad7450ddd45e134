"""However requests are cut into pieces, the same exchanges come of them; no bytes end the server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.http_server import Limits, Response, Server
from tests.http_server_kit import PLAIN, Client, Rig, serving, until

NAMES = st.sampled_from(["X-One", "x-two", "Accept", "X_3"])
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=30)
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
TARGETS = st.sampled_from(["/echo", "/echo?a=b", "/echo/%20/", "/echo//x", "/e"])


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Rig, Server]]:
    with serving(limits=Limits(depth=8)) as pair:
        yield pair


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A request as bytes, and what `/echo` tells of it."""
    target, headers, body = draw(TARGETS), draw(HEADERS), draw(st.binary(max_size=200))
    how = draw(st.sampled_from(["none", "length", "chunks", "offer"]))
    headers = [("Host", "a"), *headers]
    data = body
    if how == "none":
        body = data = b""
    elif how == "chunks":
        headers.append(("Transfer-Encoding", "chunked"))
        cuts = sorted(draw(st.lists(st.integers(0, len(body)), max_size=3)))
        parts = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
        data = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in parts if part) + b"0\r\n\r\n"
    else:
        headers.append(("Content-Length", str(len(body))))
        if how == "offer":
            headers += [("Connection", "upgrade"), ("Upgrade", "h2c")]
    lines = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "", ""]
    told = [b"POST", target.encode(), b"%d" % len(body), body]
    told += [f"{name.lower()}={value}".encode() for name, value in headers]
    return "\r\n".join(lines).encode() + data, b"|".join(told)


@settings(max_examples=60)
@given(st.lists(requests(), min_size=1, max_size=5), st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_pieces_do_not_matter(served: tuple[Rig, Server], asked: list[tuple[bytes, bytes]], sizes: list[int]) -> None:
    data = b"".join(request for request, _ in asked)
    with Client(served[1]) as client:
        at, turn = 0, 0
        while at < len(data):
            size = sizes[turn % len(sizes)]
            client.send(data[at : at + size])
            at, turn = at + size, turn + 1
        for _, told in asked:
            assert client.answer()[::2] == (200, told)


@settings(max_examples=25)
@given(st.permutations(range(6)))
def test_answers_come_in_the_order_of_the_requests(served: tuple[Rig, Server], order: list[int]) -> None:
    rig, server = served
    rig.held.clear()
    with Client(server) as client:
        client.send(b"".join(b"GET /later/%d HTTP/1.1\r\nHost: a\r\n\r\n" % i for i in range(6)))
        until(lambda: len(rig.held) == 6)
        held = list(rig.held)

        def answer(some: list[int]) -> None:
            for index in some:
                held[index].answer(Response(200, PLAIN, held[index].path.encode()))

        threads = [threading.Thread(target=answer, args=(order[i::2],)) for i in range(2)]
        for thread in threads:
            thread.start()
        assert [client.answer()[2] for _ in range(6)] == [b"/later/%d" % i for i in range(6)]
        for thread in threads:
            thread.join()


PARTS = st.sampled_from([
    b"GET ", b"POST ", b"/echo", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n", b"\r", b"Host: a\r\n", b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Connection: Upgrade\r\n", b"Upgrade: x\r\n",
    b"Expect: 100-continue\r\n", b": ", b"0", b"5", b"3\r\nabc\r\n", b"0\r\n\r\n", b"\0", b"\xff", b" ", b"\t", b";",
    b"POST /up HTTP/1.1\r\nHost: a\r\n", b"GET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
])  # fmt: skip


@settings(max_examples=150)
@given(st.lists(st.one_of(PARTS, st.binary(max_size=10)), max_size=25), st.integers(1, 100))
def test_no_bytes_end_the_server(served: tuple[Rig, Server], parts: list[bytes], step: int) -> None:
    data = b"".join(parts)
    server = served[1]
    with Client(server) as client:
        try:
            for at in range(0, len(data), step):
                client.send(data[at : at + step])
        except ConnectionError:
            pass
    with Client(server) as client:
        assert client.get("/echo")[0] == 200
    until(lambda: server.connections == 0)
