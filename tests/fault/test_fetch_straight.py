"""Reads received on the thread that asks, and every way a server can misbehave, on real sockets."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from headrace.base.errors import (
    ChangedError,
    CredentialsError,
    DeadlineError,
    HeadraceError,
    InternalError,
    NotFoundError,
    SlowDownError,
    TryAgainError,
    UnreachableError,
)
from headrace.base.ports import reserve_port
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.fetch import Fetcher, Read, Straight
from headrace.fetch.straight import Limiter

from .scripted import ScriptedServer, Start, WireStore, ok, reset

BODY = bytes(range(251)) * 1000
PIECE = 32 * 1024


@pytest.fixture
def open_(request: pytest.FixtureRequest) -> Callable[..., tuple[Straight, Fetcher]]:
    def begin(**fetch: object) -> tuple[Straight, Fetcher]:
        settings = Settings(cache=replace(CacheSettings(), size=0), fetch=replace(FetchSettings(), **fetch))
        fetcher = Fetcher.open(settings)
        (straight,) = fetcher.straights(1)
        request.addfinalizer(fetcher.close)
        request.addfinalizer(straight.close)
        return straight, fetcher

    return begin


class Ranges:
    """A server of one object that knows ranges. `fault`: called with (connection, answer, number); True: it did it."""

    def __init__(self, fault: Callable[[socket.socket, bytes, int], bool] = lambda c, a, n: False) -> None:
        self.fault = fault
        self.asked: list[tuple[int, int]] = []
        self.etag = "v1"
        self.server: ScriptedServer | None = None

    def __call__(self, connection: socket.socket, path: str, number: int) -> None:
        assert self.server is not None
        found = re.search(r"bytes=(\d+)-(\d+)", self.server.requests[number])
        assert found is not None
        start, stop = int(found[1]), min(int(found[2]) + 1, len(BODY))
        self.asked.append((start, stop))
        part = BODY[start:stop]
        head = (
            f'HTTP/1.1 206 Partial\r\nContent-Length: {len(part)}\r\nETag: "{self.etag}"\r\n'
            f"Content-Range: bytes {start}-{stop - 1}/{len(BODY)}\r\n\r\n"
        )
        answer = head.encode() + part
        if not self.fault(connection, answer, number):
            connection.sendall(answer)


def ranged(start: Start, ranges: Ranges) -> WireStore:
    server, store = start(ranges)
    ranges.server = server
    return store


def read_on(straight: Straight, store: WireStore, begin: int = 0, until: int = len(BODY)) -> bytes:
    """Piece by piece, as a scan does."""
    got = bytearray()
    for at in range(begin, until, PIECE):
        read = Read(store, "k", None, "v1", at, min(at + PIECE, until))
        got += straight.get(read, len(BODY)).data
    return bytes(got)


@pytest.mark.parametrize(
    "fault",
    [
        lambda c, a, n: reset(c),
        lambda c, a, n: c.close(),
        lambda c, a, n: (c.sendall(a[:5000]), reset(c)),
        lambda c, a, n: (c.sendall(a[:5000]), c.close()),
        lambda c, a, n: (c.sendall(b"garbage\r\n\r\n"), c.close()),
        lambda c, a, n: c.sendall(b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nbad"),
        lambda c, a, n: c.sendall(b"HTTP/1.1 503 Slow\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nslow\r\n0\r\n\r\n"),
        lambda c, a, n: (c.sendall(b"HTTP/1.1 502 Bad\r\n\r\nno length"), c.close()),
        lambda c, a, n: c.sendall(
            b'HTTP/1.1 206 Cut\r\nContent-Length: 3\r\nETag: "v1"\r\nContent-Range: bytes 0-2/251000\r\n\r\ncut'
        ),
    ],
    ids=[
        "reset",
        "close",
        "reset-in-body",
        "close-in-body",
        "not-http",
        "500",
        "503-chunked",
        "502-until-close",
        "short",
    ],
)
def test_a_failure_that_passes_is_retried(start, open_, fault) -> None:
    ranges = Ranges(lambda c, a, n: n == 0 and (fault(c, a, n), True)[1])
    straight, fetcher = open_()
    assert bytes(straight.get(Read(ranged(start, ranges), "k", None, "v1", 0, len(BODY))).data) == BODY
    assert len(ranges.asked) == 2
    assert fetcher.metrics.get("fetch.retries") == 1


def test_what_follows_comes_with_one_request(start, open_) -> None:
    ranges = Ranges()
    straight, fetcher = open_()
    store = ranged(start, ranges)
    assert read_on(straight, store) == BODY
    assert ranges.asked == [(0, len(BODY))]
    assert fetcher.metrics.get("fetch.bytes") == len(BODY)
    assert read_on(straight, store) == BODY  # and the connection is kept
    assert ranges.server is not None
    assert ranges.server.connections == 1


@pytest.mark.parametrize("cut", [300, PIECE + 200, 3 * PIECE + 9])
def test_a_stream_that_breaks_goes_on_where_it_was(start, open_, cut: int) -> None:
    ranges = Ranges(lambda c, a, n: n == 0 and (c.sendall(a[:cut]), reset(c), True)[2])
    straight, _ = open_()
    assert read_on(straight, ranged(start, ranges)) == BODY
    assert len(ranges.asked) == 2
    assert ranges.asked[1][0] % PIECE == 0
    assert ranges.asked[1][0] <= cut


def test_whoever_jumps_gets_what_he_asked_for(start, open_) -> None:
    ranges = Ranges()
    straight, _ = open_()
    store = ranged(start, ranges)
    for begin in (0, 5 * PIECE, PIECE, 100):
        assert read_on(straight, store, begin, begin + 2 * PIECE) == BODY[begin : begin + 2 * PIECE]
    assert [asked[0] for asked in ranges.asked] == [0, 5 * PIECE, PIECE, 100]


def test_what_others_write_meanwhile_is_not_mixed_in(start, open_) -> None:
    def fault(connection: socket.socket, answer: bytes, number: int) -> bool:
        if number == 0:
            connection.sendall(answer[: 2 * PIECE])
            ranges.etag = "v2"
            reset(connection)
        return number == 0

    ranges = Ranges(fault)
    straight, _ = open_()
    with pytest.raises(ChangedError, match="v2, expected v1"):
        read_on(straight, ranged(start, ranges))


def test_a_kept_connection_closed_by_the_server_costs_no_retry(start, open_) -> None:
    closed = threading.Event()

    def fault(connection: socket.socket, answer: bytes, number: int) -> bool:
        if number == 0:
            connection.sendall(answer)
            connection.close()
            closed.set()
        return number == 0

    straight, fetcher = open_()
    store = ranged(start, Ranges(fault))
    first = Read(store, "k", None, "v1", 0, PIECE)
    straight.get(first)
    assert closed.wait(5)
    assert bytes(straight.get(first).data) == BODY[:PIECE]
    assert fetcher.metrics.get("fetch.retries") == 0


def test_a_server_without_ranges(start, open_) -> None:
    _, store = start(lambda c, p, n: c.sendall(ok(BODY)))
    straight, _ = open_()
    assert read_on(straight, store) == BODY


@pytest.mark.parametrize("size", [100, PIECE])
def test_more_than_was_asked_for_is_never_taken_for_what_follows(start, open_, size: int) -> None:
    def fault(connection: socket.socket, answer: bytes, number: int) -> bool:
        begin, _ = ranges.asked[number]
        part = BODY[begin:]
        head = f'HTTP/1.1 206 Partial\r\nContent-Length: {len(part)}\r\nETag: "v1"\r\nContent-Range: bytes '
        connection.sendall(head.encode() + f"{begin}-{len(BODY) - 1}/{len(BODY)}\r\n\r\n".encode() + part)
        return True

    ranges = Ranges(fault)
    straight, _ = open_(retries=1)
    store = ranged(start, ranges)
    for at in (0, size, 2 * size):
        try:
            got = straight.get(Read(store, "k", None, "v1", at, at + size))
        except TryAgainError:
            continue
        assert bytes(got.data) == BODY[at : at + size]


def test_missing_is_not_retried(start, open_) -> None:
    server, store = start(lambda c, p, n: c.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno"))
    straight, fetcher = open_()
    with pytest.raises(NotFoundError) as caught:
        straight.get(Read(store, "k", None, "v1", 0, PIECE))
    assert caught.value.path == f"{store.url}/k"
    assert len(server.requests) == 1
    assert fetcher.metrics.get("fetch.errors") == 1


def test_expired_credentials_are_refreshed_once(start, open_) -> None:
    denied = b"HTTP/1.1 403 Expired\r\nContent-Length: 0\r\n\r\n"
    store = ranged(start, Ranges(lambda c, a, n: n == 0 and (c.sendall(denied), True)[1]))
    straight, _ = open_()
    assert read_on(straight, store) == BODY
    assert store.wired.refreshed == 1
    _, always = start(lambda c, p, n: c.sendall(denied))
    with pytest.raises(CredentialsError):
        straight.get(Read(always, "k", None, "v1", 0, PIECE))


def test_a_503_storm_ends_in_a_named_error(start, open_) -> None:
    server, store = start(lambda c, p, n: c.sendall(b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n"))
    straight, fetcher = open_(retries=2)
    with pytest.raises(SlowDownError):
        straight.get(Read(store, "k", None, "v1", 0, PIECE))
    assert len(server.requests) == 3
    assert fetcher.metrics.get("fetch.slow_downs") == 3


@pytest.mark.parametrize("sent", [0, 100, 5000])
def test_a_stall_ends_at_the_deadline(start, open_, sent: int) -> None:
    store = ranged(start, Ranges(lambda c, a, n: (c.sendall(a[:sent]), True)[1]))
    straight, _ = open_(deadline=0.5)
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        straight.get(Read(store, "k", None, "v1", 0, PIECE))
    assert time.monotonic() - began < 3


def test_bytes_that_drip_end_at_the_deadline_too(start, open_) -> None:
    gone = threading.Event()

    def drip(connection: socket.socket, answer: bytes, number: int) -> bool:
        try:
            for at in range(len(answer)):
                connection.sendall(answer[at : at + 1])
                if gone.wait(0.02):
                    break
        except OSError:
            gone.set()
        return True

    store = ranged(start, Ranges(drip))
    straight, _ = open_(deadline=0.5)
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        straight.get(Read(store, "k", None, "v1", 0, PIECE))
    assert time.monotonic() - began < 5
    assert gone.wait(5), "the connection was not closed"


def test_nobody_there(open_) -> None:
    straight, _ = open_(retries=1)
    with pytest.raises(UnreachableError, match="Connection refused"):
        straight.get(Read(WireStore(reserve_port()), "k", None, "v1", 0, PIECE))


def test_closing_ends_a_read_that_waits(start, open_) -> None:
    asked = threading.Event()
    store = ranged(start, Ranges(lambda c, a, n: (c.sendall(a[:5000]), asked.set(), True)[2]))
    straight, _ = open_()
    failures: list[HeadraceError] = []

    def read() -> None:
        try:
            straight.get(Read(store, "k", None, "v1", 0, PIECE))
        except HeadraceError as error:
            failures.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert asked.wait(5)
    straight.close()
    thread.join(5)
    assert not thread.is_alive()
    assert isinstance(failures[0], UnreachableError | InternalError)
    with pytest.raises(InternalError, match="closed"):
        straight.get(Read(store, "k", None, "v1", 0, PIECE))


def test_closing_at_any_moment_ends_a_read(start, open_) -> None:
    store = ranged(start, Ranges(lambda c, a, n: (c.sendall(a[:5000]), True)[1]))
    for moment in range(200):
        straight, _ = open_()
        ended = threading.Event()

        def read(straight: Straight = straight, ended: threading.Event = ended) -> None:
            with suppress(UnreachableError, InternalError):
                straight.get(Read(store, "k", None, "v1", 0, PIECE))
            ended.set()

        threading.Thread(target=read).start()
        until = time.perf_counter() + moment * 10e-6
        while time.perf_counter() < until:
            pass
        straight.close()
        assert ended.wait(5)


def test_the_limiter_lets_in_as_many_as_it_has_places_for() -> None:
    limiter = Limiter(3)
    for _ in range(3):
        limiter.enter()
    entered = threading.Event()

    def enter() -> None:
        limiter.enter()
        entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    assert not entered.wait(0.1)
    limiter.leave()
    assert entered.wait(5)


def test_the_limiter_has_fewer_places_where_the_store_asks_for_less() -> None:
    limiter = Limiter(4)
    for _ in range(4):
        limiter.enter()
    assert limiter.tell(1 << 20, slow_down=False)
    assert not limiter.tell(0, slow_down=True)
