"""Odd answers mean the same to all who read: one GET that blocks, the mass of them, large reads on threads."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from headrace.base.errors import DeniedError, NotFoundError, UnreachableError
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store import Store, StoreOptions, open_store

from .scripted import Answer, ScriptedServer, ok

Get = Callable[[Store, str], bytes]


@pytest.fixture(params=["alone", "together", "straight"])
def get(request: pytest.FixtureRequest) -> Iterator[Get]:
    settings = Settings(
        cache=replace(CacheSettings(), size=0), fetch=replace(FetchSettings(), deadline=10.0, retries=0, hedge=False)
    )
    with closing(Fetcher.open(settings)) as fetcher:
        [straight] = fetcher.straights(1)
        ways: dict[str, Get] = {
            "alone": lambda store, key: bytes(store.get(key).data),
            "together": lambda store, key: bytes(fetcher.get(Read(store, key)).data),
            "straight": lambda store, key: bytes(straight.get(Read(store, key, start=0, stop=4)).data),
        }
        yield ways[request.param]
        straight.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], tuple[ScriptedServer, Store]]]:
    made: list[tuple[ScriptedServer, Store]] = []

    def begin(answer: Answer) -> tuple[ScriptedServer, Store]:
        server = ScriptedServer(answer)
        made.append((server, open_store(f"http://127.0.0.1:{server.port}", StoreOptions(retries=0))))
        return made[-1]

    yield begin
    for server, store in made:
        store.close()
        server.close()


def first(data: bytes, *, close: bool = False) -> Answer:
    """`data` to the first request, an object of four bytes to the others."""

    def answer(connection: socket.socket, path: str, number: int) -> None:
        connection.sendall(ok(b"body") if number else data)
        if close and not number:
            connection.shutdown(socket.SHUT_WR)

    return answer


MISSING = b"HTTP/1.1 404 Not Found\r\n"
REFUSALS: dict[str, tuple[bytes, bool, int]] = {
    "of a length": (MISSING + b"Content-Length: 4\r\n\r\ngone", False, 1),
    "in chunks": (MISSING + b"Transfer-Encoding: chunked\r\n\r\n4\r\ngone\r\n0\r\n\r\n", False, 1),
    "without a body": (MISSING + b"Content-Length: 0\r\n\r\n", False, 1),
    "until the end": (MISSING + b"\r\ngone", True, 2),
    "cut off": (MISSING + b"Content-Length: 400\r\n\r\ngone", True, 2),
    "longer than anybody reads": (MISSING + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000, False, 2),
    "longer than anybody reads, in chunks": (
        MISSING + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n" + b"1\r\nx\r\n",
        False,
        2,
    ),
    "of HTTP/1.0": (b"HTTP/1.0 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", False, 2),
    "told to close": (MISSING + b"Connection: Close\r\nContent-Length: 4\r\n\r\ngone", False, 2),
}


@pytest.mark.parametrize("shape", REFUSALS)
def test_a_refusal_in_any_shape_is_named_and_the_next_read_is_answered(
    get: Get, serve: Callable[[Answer], tuple[ScriptedServer, Store]], shape: str
) -> None:
    """Over the same connection where nothing of the first answer can be left on it."""
    data, close, connections = REFUSALS[shape]
    server, store = serve(first(data, close=close))
    with pytest.raises(NotFoundError):
        get(store, "a")
    assert get(store, "b") == b"body"
    assert server.connections == connections


def test_headers_in_any_writing(serve: Callable[[Answer], tuple[ScriptedServer, Store]], get: Get) -> None:
    head = b'HTTP/1.1 200 OK\r\nX-Odd: a\r\n\tb\r\ncontent-LENGTH:   4  \r\nETAG: "v1"\r\nEtag: "v2"\r\n\r\n'
    _, store = serve(lambda connection, path, number: connection.sendall(head + b"body"))
    assert get(store, "a") == b"body"
    assert store.get("a").info.etag == "v1"


@pytest.mark.parametrize(("status", "error"), [("403 Forbidden", DeniedError), ("200 OK", UnreachableError)])
def test_an_answer_before_all_of_the_body_was_sent_is_a_refusal_or_nothing(status: str, error: type[Exception]) -> None:
    """The server reads no further and closes; nothing is sent twice."""

    def answer(connection: socket.socket, path: str, number: int) -> None:
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        connection.close()

    server = ScriptedServer(answer)
    options = StoreOptions(
        endpoint=f"http://127.0.0.1:{server.port}", access_key_id="a", secret_access_key="b", retries=0
    )
    with closing(open_store("s3://bucket", options)) as store, pytest.raises(error):
        store.put("k", bytes(6 << 20))
    assert len(server.requests) == 1
    server.close()
