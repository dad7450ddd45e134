"""Objects whose length no header tells, and answers that are not the object's: real sockets, public doors."""

from __future__ import annotations

import itertools
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import HeadraceError, TryAgainError, UnsupportedError
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.catalog.sample_index import Part
from headrace.fetch import Fetcher, Read
from headrace.loader import Dataset
from headrace.namespace import Namespace
from headrace.store.http1.failures import BrokenResponse
from headrace.store.http1.response import Chunks
from headrace.store.protocol import Store
from tests.standins import MemoryIndex

from .scripted import ScriptedServer, Start, ok

BODY = bytes(range(250)) * 20
STORE = {"http": "http://127.0.0.1:{port}", "s3": "s3://bucket"}
LENGTHLESS = 'HTTP/1.1 200 OK\r\nETag: "v1"\r\nLast-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n'


def chunked(body: bytes, size: int = 1700) -> bytes:
    """With a chunk extension and a trailer, as the standard lets a server send them."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x;a=b\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nX-Sum: 1\r\n\r\n"


def in_chunks(connection: socket.socket, body: bytes) -> None:
    connection.sendall(f"{LENGTHLESS}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked(body))


def until_close(connection: socket.socket, body: bytes) -> None:
    connection.sendall(f"{LENGTHLESS}Connection: close\r\n\r\n".encode() + body)
    connection.shutdown(socket.SHUT_WR)


def after_hints(connection: socket.socket, body: bytes) -> None:
    connection.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok(body))


def dribbled(connection: socket.socket, body: bytes) -> None:
    data = f"{LENGTHLESS}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked(body, 333)
    for at in range(0, len(data), 97):
        connection.sendall(data[at : at + 97])


SHAPES: dict[str, Callable[[socket.socket, bytes], None]] = {
    "chunked": in_chunks, "until close": until_close, "after 103": after_hints, "dribbled": dribbled,
}  # fmt: skip


class Origin:
    """A server that tells no length to HEAD, and sends bodies in one of `SHAPES`; `ranges`: parts too, of an unknown
    whole.
    """

    def __init__(self, shape: str, *, ranges: bool) -> None:
        self._send, self._ranges = SHAPES[shape], ranges
        self.server = ScriptedServer(self._answer)

    def _answer(self, connection: socket.socket, path: str, number: int) -> None:
        head = self.server.requests[number]
        asked = re.search(r"(?i)^range: bytes=(\d+)-(\d*)", head, re.MULTILINE)
        if head.startswith("HEAD"):
            connection.sendall(f"{LENGTHLESS}\r\n".encode())
        elif asked and self._ranges:
            part = BODY[int(asked[1]) : int(asked[2] or len(BODY)) + 1]
            total = f"Content-Range: bytes {asked[1]}-{int(asked[1]) + len(part) - 1}/*\r\n"
            connection.sendall(ok(part, extra=total).replace(b"200 OK", b"206 Partial"))
        else:
            self._send(connection, BODY)


@pytest.fixture(params=["http", "s3"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[int], Namespace]]:
    """Makes a namespace over a server of that port."""
    made: list[Namespace] = []

    def make(port: int) -> Namespace:
        settings = Settings(
            cache=replace(CacheSettings(), dir=str(tmp_path / "cache")), fetch=replace(FetchSettings(), deadline=10.0)
        )
        options = {"endpoint": f"http://127.0.0.1:{port}", "access_key_id": "a", "secret_access_key": "b"}
        space = Namespace(settings)
        space.attach(
            "/d", STORE[request.param].format(port=port), read_only=True, **(options if request.param == "s3" else {})
        )
        made.append(space)
        return space

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("ranges", [False, True], ids=["no ranges", "ranges of an unknown whole"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_unknown_size_is_not_0(space: Callable[[int], Namespace], shape: str, *, ranges: bool) -> None:
    origin = Origin(shape, ranges=ranges)
    try:
        ns = space(origin.server.port)
        assert bytes(ns.read("/d/k")) == BODY
        ns.refresh()
        assert ns.stat("/d/k").size == len(BODY)
        with ns.open("/d/k") as file:
            assert file.read() == BODY
        assert bytes(ns.read("/d/k", start=100, stop=300)) == BODY[100:300]
    finally:
        origin.server.close()


def test_a_body_in_chunks_that_breaks_off_is_no_object(start: Start) -> None:
    def cut(connection: socket.socket, path: str, number: int) -> None:
        connection.sendall(f"{LENGTHLESS}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked(BODY)[:3000])
        connection.close()

    _, store = start(cut)
    with closing(Fetcher.open(settings())) as fetcher, pytest.raises(HeadraceError, match="before its last chunk"):
        fetcher.get(Read(store, "k"))


class OneObject(MemoryIndex):
    """The object ``k`` of a store, as it was listed: `BODY` with the ETag ``v1``; not pinned."""

    def __init__(self, store: Store) -> None:
        super().__init__(1)
        self.store, self.pinned = store, False

    def specs(self, rows: Any) -> list[Any]:
        return [("k", (Part("bin", "k", len(BODY), "v1"),), {})]

    def sizes(self, rows: Any) -> Any:
        return np.full(len(rows), len(BODY))


def settings() -> Settings:
    fetch = replace(FetchSettings(), deadline=5.0, retries=1, hedge=False)
    return Settings(cache=replace(CacheSettings(), size=0), fetch=fetch)


PAGE = b"<html>Please log in</html>"
ETAG = b'ETag: "v1"\r\n'
PACKED = ok(BODY[:500], extra="Content-Encoding: gzip\r\n")
WRONG: dict[str, tuple[bytes, type[HeadraceError]]] = {
    "short": (ok(BODY[:1000]), TryAgainError),
    "empty": (ok(b""), TryAgainError),
    "long": (ok(BODY + b"x"), TryAgainError),
    "packed": (PACKED.replace(ETAG, b'ETag: W/"v1"\r\n'), UnsupportedError),
    "packed, without ETag": (PACKED.replace(ETAG, b""), UnsupportedError),
    "page": (ok(PAGE, extra="Content-Type: text/html\r\n").replace(ETAG, b""), TryAgainError),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_somebody_on_the_way_answers_is_never_a_changed_object(start: Start, name: str) -> None:
    """Of an object that nobody pinned, which is read anew where it has changed."""
    data, kind = WRONG[name]
    _, store = start(lambda connection, path, number: connection.sendall(data))
    with closing(Fetcher.open(settings())) as fetcher:
        with pytest.raises(kind):
            fetcher.get(Read(store, "k", len(BODY), "v1"))
        loader = Dataset.of(OneObject(store)).batch(1).loader(fetcher=fetcher)
        with pytest.raises(kind):
            list(loader)


def test_an_object_that_was_changed_is_read_as_it_is_now(start: Start) -> None:
    _, store = start(lambda connection, path, number: connection.sendall(ok(b"now", "v2")))
    with closing(Fetcher.open(settings())) as fetcher:
        (batch,) = Dataset.of(OneObject(store)).batch(1).loader(fetcher=fetcher)
    assert bytes(batch["bin"][0]) == b"now"


PARTS = st.lists(st.binary(min_size=1, max_size=200), max_size=8)


@given(PARTS, st.lists(st.integers(1, 50), min_size=1), st.booleans())
def test_chunks_in_any_pieces_are_the_same_body(parts: list[bytes], cuts: list[int], trailer: bool) -> None:
    raw = b"".join(b"%X\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n"
    raw += (b"X-Sum: 1\r\n" if trailer else b"") + b"\r\n"
    chunks, at = Chunks(), 0
    for cut in itertools.cycle(cuts):
        assert not chunks.ended
        chunks.take(memoryview(raw)[at : at + cut])
        at += cut
        if at >= len(raw):
            break
    assert (chunks.ended, bytes(chunks.data)) == (True, b"".join(parts))


@pytest.mark.parametrize("raw", [b"x\r\n", b"-1\r\n", b"\r\n", b"2\r\nabc\r\n", b"0x2\r\nab\r\n"])
def test_what_is_no_chunk_is_refused(raw: bytes) -> None:
    with pytest.raises(BrokenResponse):
        Chunks().take(memoryview(raw))
