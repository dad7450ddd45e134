"""What the multiplexed reader does with every way a server can misbehave, on real sockets."""

from __future__ import annotations

import hashlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace

import pytest

from headrace.base.budget import ByteBudget
from headrace.base.errors import (
    ChangedError,
    CorruptError,
    CredentialsError,
    DeadlineError,
    DeniedError,
    HeadraceError,
    InputError,
    InternalError,
    NotFoundError,
    SlowDownError,
    UnreachableError,
)
from headrace.base.metrics import Metrics
from headrace.base.ports import reserve_port
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.fetch.reactor import Reactor
from headrace.store.protocol import RENEWALS, Blob, ObjectInfo

from .scripted import Answer, Start, WireStore, ok, reset

BODY = bytes(range(256)) * 1000


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    with_settings = Fetcher.open(settings())
    yield with_settings
    with_settings.close()


def settings(**fetch: object) -> Settings:
    changed = replace(FetchSettings(), deadline=10.0, **fetch)
    return Settings(cache=replace(CacheSettings(), size=0), fetch=changed)


def first(fault: Answer, then: bytes = ok(BODY)) -> Answer:
    """Do `fault` on the first request, answer the others well."""

    def answer(connection: socket.socket, path: str, number: int) -> None:
        if number == 0:
            fault(connection, path, number)
        else:
            connection.sendall(then)

    return answer


def test_reads_the_body_and_tells_the_version(start: Start, fetcher: Fetcher) -> None:
    _, store = start(lambda c, p, n: c.sendall(ok(BODY, "abc", "Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n")))
    blob = fetcher.get(Read(store, "k"))
    assert bytes(blob.data) == BODY
    assert (blob.info.etag, blob.info.size, blob.info.mtime_us) == ("abc", len(BODY), 1445412480_000000)


@pytest.mark.parametrize("cut", [1, 16, 40, 70, 90])
def test_an_answer_in_any_pieces_is_the_same_answer(start: Start, fetcher: Fetcher, cut: int) -> None:
    def dribble(connection: socket.socket, path: str, number: int) -> None:
        data = ok(BODY[:300])
        for at in range(0, len(data), cut):
            connection.sendall(data[at : at + cut])
            time.sleep(0.0005)

    _, store = start(dribble)
    assert bytes(fetcher.get(Read(store, "k")).data) == BODY[:300]


def test_an_empty_object(start: Start, fetcher: Fetcher) -> None:
    _, store = start(lambda c, p, n: c.sendall(ok(b"")))
    assert len(fetcher.get(Read(store, "k", 0, "v1")).data) == 0


@pytest.mark.parametrize(
    "fault",
    [
        lambda c, p, n: reset(c),
        lambda c, p, n: c.close(),
        lambda c, p, n: (c.sendall(ok(BODY)[:5000]), reset(c)),
        lambda c, p, n: (c.sendall(ok(BODY)[:5000]), c.close()),
        lambda c, p, n: (c.sendall(b"garbage\r\n\r\n"), c.close()),
        lambda c, p, n: c.sendall(b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nbad"),
        lambda c, p, n: c.sendall(b"HTTP/1.1 503 Slow\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nslow\r\n0\r\n\r\n"),
        lambda c, p, n: (c.sendall(b"HTTP/1.1 502 Bad\r\n\r\nno length"), c.close()),
    ],
    ids=["reset", "close", "reset-in-body", "close-in-body", "not-http", "500", "503-chunked", "502-until-close"],
)
def test_a_failure_that_passes_is_retried(start: Start, fetcher: Fetcher, fault: Answer) -> None:
    server, store = start(first(fault))
    assert bytes(fetcher.get(Read(store, "k", len(BODY), "v1")).data) == BODY
    assert len(server.requests) == 2


def test_a_kept_connection_closed_by_the_server_costs_no_retry(start: Start, fetcher: Fetcher) -> None:
    closed = threading.Event()

    def answer(connection: socket.socket, path: str, number: int) -> None:
        connection.sendall(ok(BODY))
        if number == 0:
            connection.close()
            closed.set()

    _, store = start(answer)
    fetcher.get(Read(store, "a"))
    assert closed.wait(5)
    assert bytes(fetcher.get(Read(store, "b")).data) == BODY
    assert fetcher.metrics.get("fetch.retries") == 0


def test_a_version_other_than_the_pinned_one_is_refused(start: Start, fetcher: Fetcher) -> None:
    _, store = start(lambda c, p, n: c.sendall(ok(BODY, "new")))
    with pytest.raises(ChangedError, match="new, expected old"):
        fetcher.get(Read(store, "k", len(BODY), "old"))


def test_missing_is_not_retried(start: Start, fetcher: Fetcher) -> None:
    server, store = start(lambda c, p, n: c.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno"))
    with pytest.raises(NotFoundError) as caught:
        fetcher.get(Read(store, "k"))
    assert caught.value.path == f"{store.url}/k"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("refusals", [1, 2, 3, 4])
def test_a_refusal_asks_for_other_keys_a_few_times(
    start: Start, fetcher: Fetcher, status: int, refusals: int
) -> None:
    """They may be replaced again while the request is on its way; that access is denied may mean that they are old."""
    refused = f"HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n".encode()
    _, store = start(lambda c, _, n: c.sendall(refused if n < refusals else ok(BODY)))
    if refusals <= RENEWALS:
        assert bytes(fetcher.get(Read(store, "k")).data) == BODY
    else:
        with pytest.raises((CredentialsError, DeniedError)):
            fetcher.get(Read(store, "k"))
    assert store.wired.refreshed == min(refusals, RENEWALS)


def test_expired_credentials_are_refreshed_once(start: Start, fetcher: Fetcher) -> None:
    denied = b"HTTP/1.1 403 Expired\r\nContent-Length: 0\r\n\r\n"
    _, store = start(first(lambda c, p, n: c.sendall(denied)))
    assert bytes(fetcher.get(Read(store, "k")).data) == BODY
    assert store.wired.refreshed == 1
    _, always = start(lambda c, p, n: c.sendall(denied))
    with pytest.raises(CredentialsError):
        fetcher.get(Read(always, "k"))


def test_a_503_storm_slows_the_reader_down_and_ends_in_a_named_error(start: Start) -> None:
    server, store = start(lambda c, p, n: c.sendall(b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n"))
    fetcher = Fetcher.open(settings(retries=2))
    results: list[Blob | HeadraceError] = []
    ended = threading.Event()

    def sink(read: Read, result: Blob | HeadraceError) -> None:
        results.append(result)
        if len(results) == 40:
            ended.set()

    fetcher.submit([Read(store, f"k{i}") for i in range(40)], sink)
    assert ended.wait(20)
    levels = fetcher.stats().stores[store.url]
    fetcher.close()
    assert all(isinstance(r, SlowDownError) for r in results)
    assert len(server.requests) == 120
    assert levels["concurrency"] < 16


def test_a_stall_ends_at_the_deadline(start: Start) -> None:
    _, store = start(lambda c, p, n: c.sendall(ok(BODY)[:100]))
    fetcher = Fetcher.open(replace(settings(), fetch=replace(FetchSettings(), deadline=0.5)))
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        fetcher.get(Read(store, "k"))
    assert time.monotonic() - began < 3
    fetcher.close()


def test_corrupted_bodies_are_read_again_or_named(start: Start) -> None:
    md5 = hashlib.md5(BODY).hexdigest()
    bad = ok(BODY[:-1] + b"!", md5)
    _, store = start(first(lambda c, p, n: c.sendall(bad), then=ok(BODY, md5)))
    _, always = start(lambda c, p, n: c.sendall(bad))
    fetcher = Fetcher.open(settings(verify=True))
    assert bytes(fetcher.get(Read(store, "k", len(BODY), md5)).data) == BODY
    with pytest.raises(CorruptError, match="MD5"):
        fetcher.get(Read(always, "k", len(BODY), md5))
    fetcher.close()


def test_a_read_after_the_end_is_told_so(start: Start) -> None:
    _, store = start(lambda c, p, n: c.sendall(ok(BODY)))
    fetcher = Fetcher.open(settings())
    fetcher.get(Read(store, "k"))
    fetcher.close()
    with pytest.raises(InternalError, match="closed"):
        fetcher.get(Read(store, "k"))


def test_a_reactor_that_ends_before_it_is_rung_is_not_rung() -> None:
    class Late(Reactor):
        def _ring(self) -> None:
            self._thread.join()  # it looked up by itself, just as it was told to close
            super()._ring()

    Late(FetchSettings(), ByteBudget(1 << 20), Metrics()).close()


def test_nobody_there(fetcher: Fetcher) -> None:
    quick = Fetcher.open(settings(retries=1))
    with pytest.raises(UnreachableError, match="Connection refused"):
        quick.get(Read(WireStore(reserve_port()), "k"))
    quick.close()


def test_the_same_read_at_the_same_time_is_sent_once(start: Start, fetcher: Fetcher) -> None:
    go = threading.Event()

    def answer(connection: socket.socket, path: str, number: int) -> None:
        go.wait(5)
        connection.sendall(ok(BODY))

    server, store = start(answer)
    results: list[Blob | HeadraceError] = []
    ended = threading.Event()

    def sink(read: Read, result: Blob | HeadraceError) -> None:
        results.append(result)
        if len(results) == 10:
            ended.set()

    for _ in range(10):
        fetcher.submit([Read(store, "k", len(BODY), "v1")], sink)
    until = time.monotonic() + 5
    while fetcher.metrics.get("fetch.deduplicated") < 9 and time.monotonic() < until:
        time.sleep(0.001)
    go.set()
    assert ended.wait(5)
    assert len(server.requests) == 1
    assert all(isinstance(r, Blob) and bytes(r.data) == BODY for r in results)


def test_a_straggler_gets_a_second_request(start: Start, fetcher: Fetcher) -> None:
    release = threading.Event()

    def answer(connection: socket.socket, path: str, number: int) -> None:
        if path == "/slow" and number == slow_number[0]:
            release.wait(8)
        connection.sendall(ok(BODY[:1000]))

    slow_number = [-1]
    server, store = start(answer)
    for i in range(200):
        fetcher.get(Read(store, f"k{i}"))
    slow_number[0] = len(server.requests)
    began = time.monotonic()
    assert len(fetcher.get(Read(store, "slow")).data) == 1000
    assert time.monotonic() - began < 5
    release.set()
    assert fetcher.metrics.get("fetch.hedges_won") == 1


def test_a_hedge_that_is_late_too_gets_another(start: Start, fetcher: Fetcher) -> None:
    release = threading.Event()
    late: set[int] = set()

    def answer(connection: socket.socket, path: str, number: int) -> None:
        if path == "/slow" and number in late:
            release.wait(8)
        connection.sendall(ok(BODY[:1000]))

    server, store = start(answer)
    for i in range(200):
        fetcher.get(Read(store, f"k{i}"))
    late |= {len(server.requests), len(server.requests) + 1}
    began = time.monotonic()
    assert len(fetcher.get(Read(store, "slow")).data) == 1000
    assert time.monotonic() - began < 5
    release.set()
    assert fetcher.metrics.get("fetch.hedges") == 2
    assert fetcher.metrics.get("fetch.hedges_won") == 1
    assert sum(request.startswith("GET /slow") for request in server.requests) == 3, "no more than that"


def test_a_large_object_comes_in_parts_of_one_version(start: Start, fetcher: Fetcher) -> None:
    large = BODY * 120  # 30 MB: four parts

    def answer(connection: socket.socket, path: str, number: int) -> None:
        head = server.requests[number]
        a, _, b = head.split("bytes=")[1].split("\r\n")[0].partition("-")
        part = large[int(a) : int(b) + 1]
        etag = "v1" if path == "/same" or number % 2 else "v2"
        connection.sendall(
            f'HTTP/1.1 206 P\r\nContent-Length: {len(part)}\r\nETag: "{etag}"\r\n'
            f"Content-Range: bytes {a}-{b}/{len(large)}\r\n\r\n".encode()
            + part
        )

    server, store = start(answer)
    assert bytes(fetcher.get(Read(store, "same", len(large))).data) == large
    assert len(server.requests) == 4
    with pytest.raises(ChangedError):
        fetcher.get(Read(store, "mixed", len(large)))


def test_memory_in_flight_stays_within_the_budget(start: Start) -> None:
    size = 100_000
    most = 0

    def answer(connection: socket.socket, path: str, number: int) -> None:
        nonlocal most
        most = max(most, fetcher._direct.in_flight)
        connection.sendall(ok(BODY[:size]))

    _, store = start(answer)
    fetcher = Fetcher.open(settings(memory=5 * size))
    ended = threading.Semaphore(0)
    reads = [Read(store, f"k{i}", size, "v1") for i in range(200)]
    fetcher.submit(reads, lambda r, b: ended.release())
    for _ in reads:
        assert ended.acquire(timeout=10)
    in_flight = fetcher.stats().counters["fetch.bytes_in_flight"]
    fetcher.close()
    assert 0 < most <= 5 * size
    assert in_flight == 0


def test_cancelled_reads_end_and_leave_nothing(start: Start, fetcher: Fetcher) -> None:
    _, store = start(lambda c, p, n: time.sleep(0.2))
    ticket = fetcher.submit([Read(store, f"k{i}", 10_000, "v1") for i in range(100)], lambda r, b: None)
    ticket.cancel()
    deadline = time.monotonic() + 5
    while fetcher.stats().counters["fetch.bytes_in_flight"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fetcher.stats().counters["fetch.bytes_in_flight"] == 0


def test_closing_fails_what_is_under_way_within_two_seconds(start: Start) -> None:
    _, store = start(lambda c, p, n: time.sleep(5))
    fetcher = Fetcher.open(settings())
    results: list[Blob | HeadraceError] = []
    fetcher.submit([Read(store, f"k{i}") for i in range(50)], lambda r, b: results.append(b))
    began = time.monotonic()
    fetcher.close()
    assert time.monotonic() - began < 2
    assert len(results) == 50
    assert all(isinstance(r, HeadraceError) for r in results)


def test_threads_that_begin_together_share_one_reactor(start: Start) -> None:
    _, store = start(lambda connection, path, number: connection.sendall(ok(BODY)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            before = _reactors()
            fetcher, together = Fetcher.open(settings()), threading.Barrier(8)

            def read(fetcher: Fetcher = fetcher, together: threading.Barrier = together) -> None:
                together.wait(60)
                fetcher.get(Read(store, "o"))

            threads = [threading.Thread(target=read) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            fetcher.close()
            assert _reactors() == before  # a second one would never be closed
    finally:
        sys.setswitchinterval(interval)


def test_bulk_reads_use_all_connections_at_once(start: Start) -> None:
    together = threading.Barrier(64)

    def answer(connection: socket.socket, path: str, number: int) -> None:
        if number < 64:
            with suppress(threading.BrokenBarrierError):
                together.wait(9)  # the first is answered when all are asked for; after 10 s they would be asked again
        connection.sendall(ok(path.encode()))

    _, store = start(answer)
    chosen = settings(connections=64, hedge=False)
    fetcher = Fetcher(replace(chosen, fetch=replace(chosen.fetch, deadline=60.0)), None, Metrics(), bulk=True)
    got: dict[str, bytes] = {}
    ended = threading.Semaphore(0)

    def sink(read: Read, result: Blob | HeadraceError) -> None:
        if isinstance(result, Blob):
            got[read.key] = bytes(result.data)
        ended.release()

    keys = [f"{number:03d}" for number in range(500)]
    try:
        fetcher.submit([Read(store, key) for key in keys], sink)
        assert all(ended.acquire(timeout=90) for _ in keys)
    finally:
        fetcher.close()
    assert not together.broken
    assert sorted(got) == keys
    assert all(data.endswith(key.encode()) for key, data in got.items())


def _reactors() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "headrace-fetch"}


class Shorter(WireStore):
    """What the store itself says of an object that has become shorter."""

    def __init__(self, inner: WireStore, body: bytes) -> None:
        super().__init__(0)
        self.url, self.wired, self._body = inner.url, inner.wired, body

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        if start > len(self._body):
            raise InputError("the range starts past the end")
        return Blob(memoryview(self._body)[start:stop], self.head(key))

    def head(self, key: str) -> ObjectInfo:
        return ObjectInfo(key, len(self._body), "v2")


@pytest.mark.parametrize("by", ["submitted", "straight"])
@pytest.mark.parametrize("length", [10, len(BODY)])
def test_a_server_that_looks_at_the_range_before_the_condition_hides_no_change(
    start: Start, fetcher: Fetcher, by: str, length: int
) -> None:
    """The object has become shorter, and perhaps longer again before the store was asked."""
    _, store = start(lambda c, p, n: c.sendall(b"HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n"))
    shorter = Shorter(store, BODY[:length])
    read = Read(shorter, "k", len(BODY), "v1", 1000, 2000)
    (alone,) = fetcher.straights(1)
    with closing(alone), pytest.raises(ChangedError, match="its version is v2, expected v1"):
        (fetcher if by == "submitted" else alone).get(read)
    unknown = Read(shorter, "k", start=1000, stop=2000)
    if length == 10:
        with pytest.raises(InputError, match="past the end"):
            fetcher.get(unknown)
    else:
        assert bytes(fetcher.get(unknown).data) == BODY[1000:2000]
