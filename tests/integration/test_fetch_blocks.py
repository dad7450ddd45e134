"""Ranges of large objects through the cache: each block is fetched once, whoever wants it, whatever happens."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.cache import Cache
from headrace.fetch import Fetcher, Read, Ticket
from headrace.gateway.streaming import Pieces
from headrace.namespace.reader import Reader
from headrace.store import open_store
from headrace.store.protocol import Blob, ObjectInfo, Store
from headrace.store.wrappers import ForwardingStore
from headrace.testing.faults import FaultStore
from headrace.testing.plan import Fault, Kind, Plan

BLOCK, SIZE = 64 << 10, 20 * (64 << 10) + 777
BODY = bytes((at * 7 + (at >> 8)) & 0xFF for at in range(SIZE))
PATIENCE_S = 60


class Gated(ForwardingStore):
    """Answers reads once its gate is open, and notes what was asked."""

    def __init__(self) -> None:
        super().__init__(open_store("memory://blocks"))
        self.gate = threading.Event()
        self.asked: list[tuple[int, int]] = []
        self.failing = False
        self.info: ObjectInfo = self.inner.put("large", BODY)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        self.asked.append((start, SIZE if stop is None else stop))
        assert self.gate.wait(PATIENCE_S)
        if self.failing:
            raise NotFoundError("away", path=key)
        return self.inner.get(key, start, stop, if_match=if_match)

    @property
    def bytes_asked(self) -> int:
        return sum(stop - start for start, stop in self.asked)


class Results:
    """What a fetcher's sink was told."""

    def __init__(self) -> None:
        self.found: dict[Any, Blob | HeadraceError] = {}
        self.told = threading.Condition()

    def __call__(self, read: Read, result: Blob | HeadraceError) -> None:
        with self.told:
            assert read.tag not in self.found, "told twice"
            self.found[read.tag] = result
            self.told.notify_all()

    def wait(self, count: int) -> dict[Any, Blob | HeadraceError]:
        with self.told:
            assert self.told.wait_for(lambda: len(self.found) >= count, PATIENCE_S)
        return self.found


def cached(folder: Path, **cache: Any) -> Settings:
    wanted = CacheSettings(dir=str(folder), min_free=0, block=BLOCK, whole=BLOCK)
    return Settings(cache=replace(wanted, **cache))


@pytest.fixture
def store() -> Iterator[Gated]:
    store = Gated()
    yield store
    store.gate.set()


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Fetcher]]:
    made: list[Fetcher] = []

    def another(**cache: Any) -> Fetcher:
        made.append(Fetcher.open(cached(tmp_path / "cache", **cache), None, Metrics()))
        return made[-1]

    yield another
    for fetcher in made:
        fetcher.close()


def reads(store: Gated, spans: Sequence[tuple[int, int]]) -> list[Read]:
    info = store.info
    return [Read(store, info.key, info.size, info.version, a, b, (n, a, b)) for n, (a, b) in enumerate(spans)]


def right(found: dict[Any, Blob | HeadraceError]) -> bool:
    blobs = [(one, BODY[a:b]) for (_, a, b), one in found.items() if isinstance(one, Blob)]
    return len(blobs) == len(found) and all(b"".join([one.data, *one.more]) == body for one, body in blobs)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


SIDE_BY_SIDE = [(at, min(at + 30_011, SIZE)) for at in range(0, SIZE, 30_011)]


def test_samples_side_by_side_fetch_each_block_once(store: Gated, opened: Callable[..., Fetcher]) -> None:
    fetcher, results = opened(), Results()
    wanted = reads(store, [*SIDE_BY_SIDE, *SIDE_BY_SIDE, (0, SIZE), (5, 6)])
    fetcher.submit(wanted, results)
    until(lambda: store.bytes_asked == SIZE)
    store.gate.set()
    assert right(results.wait(len(wanted)))
    assert store.bytes_asked == SIZE
    assert fetcher.settle(PATIENCE_S)
    again = Results()
    fetcher.submit(wanted, again)
    assert right(again.wait(len(wanted)))
    assert store.bytes_asked == SIZE, "all of it was kept"
    assert fetcher.cache is not None
    assert fetcher.cache.verify().bad == []


def test_a_file_a_client_of_the_gateway_and_samples_fetch_each_block_once(
    store: Gated, opened: Callable[..., Fetcher]
) -> None:
    fetcher, results = opened(), Results()

    def file() -> bytes:
        return Reader(lambda: fetcher, store, store.info, lambda: store.info).readall()

    def client() -> bytes:
        return b"".join(Pieces(lambda: fetcher, store, store.info, 0, SIZE, None, lambda: None))

    wanted = reads(store, SIDE_BY_SIDE)
    with ThreadPoolExecutor(2) as threads:
        read = [threads.submit(file), threads.submit(client)]
        try:
            until(lambda: store.bytes_asked > 0)
            fetcher.submit(wanted, results)
            until(lambda: store.bytes_asked >= SIZE)
        finally:
            store.gate.set()
        assert [one.result(PATIENCE_S) == BODY for one in read] == [True, True]
    assert right(results.wait(len(wanted)))
    assert store.bytes_asked == SIZE


def test_bytes_of_several_requests_come_in_pieces_to_who_takes_them(
    store: Gated, opened: Callable[..., Fetcher]
) -> None:
    fetcher, first, joined, apart = opened(), Results(), Results(), Results()
    fetcher.submit(reads(store, [(0, 100)]), first)
    until(lambda: len(store.asked) == 1)
    fetcher.submit(reads(store, [(0, SIZE)]), joined)
    fetcher.submit(reads(store, [(0, SIZE)]), apart, pieces=True)
    until(lambda: store.bytes_asked == SIZE)
    store.gate.set()
    whole, pieces = joined.wait(1)[0, 0, SIZE], apart.wait(1)[0, 0, SIZE]
    assert right(joined.found)
    assert right(apart.found)
    assert isinstance(whole, Blob)
    assert isinstance(pieces, Blob)
    assert not whole.more
    assert list(map(len, (pieces.data, *pieces.more))) == [BLOCK, SIZE - BLOCK]


def test_what_another_process_fetches_is_waited_for(store: Gated, opened: Callable[..., Fetcher]) -> None:
    one, other = opened(), opened()  # with locks of their own: to each other they are processes
    first, second = Results(), Results()
    one.submit(reads(store, SIDE_BY_SIDE[:10]), first)
    until(lambda: len(store.asked) >= 1)
    other.submit(reads(store, SIDE_BY_SIDE), second)
    until(lambda: other.metrics.get("cache.waited") > 0)
    store.gate.set()
    assert right(first.wait(10))
    assert right(second.wait(len(SIDE_BY_SIDE)))
    assert store.bytes_asked == SIZE
    assert one.metrics.get("fetch.bytes") > 0
    assert other.metrics.get("fetch.bytes") > 0


def test_who_goes_away_takes_nothing_from_others(store: Gated, tmp_path: Path) -> None:
    narrow = replace(cached(tmp_path / "cache"), fetch=FetchSettings(connections=1))
    fetcher, results = Fetcher.open(narrow, None, Metrics()), Results()
    fetcher.submit(reads(store, [(0, 100)]), Results())
    until(lambda: len(store.asked) == 1)  # all others wait behind it
    gone = fetcher.submit(reads(store, [(BLOCK + 5, BLOCK + 9)]), Results())
    until(lambda: fetcher.metrics.get("cache.miss") >= 2)
    fetcher.submit(reads(store, [(BLOCK + 7, 3 * BLOCK)]), results)
    until(lambda: fetcher.metrics.get("cache.miss") >= 3)
    gone.cancel()
    store.gate.set()
    assert right(results.wait(1))
    fetcher.close()


def test_what_nobody_wants_any_more_can_be_had_later(store: Gated, opened: Callable[..., Fetcher]) -> None:
    fetcher, results = opened(), Results()
    for _ in range(5):
        fetcher.submit(reads(store, SIDE_BY_SIDE), Results()).cancel()
    fetcher.submit(reads(store, SIDE_BY_SIDE), results)
    store.gate.set()
    assert right(results.wait(len(SIDE_BY_SIDE)))


def test_all_who_wait_are_told_of_a_failure_and_the_next_reads_again(
    store: Gated, opened: Callable[..., Fetcher]
) -> None:
    fetcher, results, later = opened(), Results(), Results()
    fetcher.submit(reads(store, [(0, 10), (5, 3 * BLOCK), (20, 30)]), results)
    until(lambda: store.bytes_asked >= 3 * BLOCK)
    store.failing = True
    store.gate.set()
    assert all(isinstance(one, NotFoundError) for one in results.wait(3).values())
    store.failing = False
    fetcher.submit(reads(store, SIDE_BY_SIDE), later)
    assert right(later.wait(len(SIDE_BY_SIDE)))


def test_a_small_part_does_not_keep_a_block_in_memory(store: Gated, opened: Callable[..., Fetcher]) -> None:
    store.gate.set()
    results = Results()
    opened().submit(reads(store, [(at, at + 40) for at in range(0, SIZE - 40, BLOCK // 3)]), results)
    found = results.wait(len(range(0, SIZE - 40, BLOCK // 3)))
    assert right(found)
    held = [memoryview(one.data.obj).nbytes for one in found.values() if isinstance(one, Blob)]
    assert max(held) < 4096


def test_many_small_parts_together_do_not_either(store: Gated, opened: Callable[..., Fetcher]) -> None:
    fetcher, all_of_it, results = opened(), Results(), Results()
    fetcher.submit(reads(store, [(0, SIZE)]), all_of_it)
    until(lambda: store.bytes_asked == SIZE)  # in one request
    spans = [(at, min(at + BLOCK, SIZE)) for at in range(0, SIZE, BLOCK)]
    fetcher.submit(reads(store, spans), results, pieces=True)
    until(lambda: fetcher.metrics.get("cache.miss") > len(spans))
    store.gate.set()
    found = results.wait(len(spans))
    assert right(found)
    held = [memoryview(one.data.obj).nbytes for one in found.values() if isinstance(one, Blob)]
    assert max(held) <= BLOCK


def test_with_room_for_a_part_of_it_all_of_it_is_read(store: Gated, opened: Callable[..., Fetcher]) -> None:
    store.gate.set()
    fetcher = opened(size=5 * BLOCK)
    for _ in range(3):
        results = Results()
        fetcher.submit(reads(store, [*SIDE_BY_SIDE, (0, SIZE)]), results)
        assert right(results.wait(len(SIDE_BY_SIDE) + 1))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    spans=st.lists(
        st.tuples(st.integers(0, SIZE - 1), st.integers(1, 5 * BLOCK)).map(lambda one: (one[0], min(sum(one), SIZE))),
        min_size=1,
        max_size=40,
    ),
    seed=st.integers(0, 1 << 30),
    rate=st.sampled_from([0.0, 0.1, 0.5]),
    cancelled=st.sets(st.integers(0, 39)),
    pieces=st.booleans(),
)
def test_any_reads_at_once_are_right_or_failed_by_name(
    tmp_path_factory: pytest.TempPathFactory,
    spans: list[tuple[int, int]],
    seed: int,
    rate: float,
    cancelled: set[int],
    pieces: bool,
) -> None:
    inner = open_store("memory://blocks-any")
    info = inner.put("large", BODY)
    plan = Plan([Fault(Kind.RESET, rate=rate, count=8), Fault(Kind.SHORT, rate=rate, count=4)], seed=seed)
    faulty = FaultStore(inner, plan)
    fetcher = Fetcher.open(cached(tmp_path_factory.mktemp("cache")), None, Metrics())
    wanted = [Read(faulty, "large", SIZE, info.version, a, b, (n, a, b)) for n, (a, b) in enumerate(spans)]
    results, tickets = Results(), list[Ticket]()
    for read in wanted:
        tickets.append(fetcher.submit([read], results, pieces=pieces))
        if len(tickets) - 1 in cancelled:
            tickets[-1].cancel()
    alive = [read for place, read in enumerate(wanted) if place not in cancelled]
    with results.told:
        assert results.told.wait_for(lambda: all(read.tag in results.found for read in alive), PATIENCE_S)
    assert right({tag: one for tag, one in results.found.items() if isinstance(one, Blob)})
    if rate == 0:
        assert right({read.tag: results.found[read.tag] for read in alive})
    assert fetcher.settle(PATIENCE_S)
    until(lambda: plan.struck(Kind.RESET) >= 8 or rate == 0 or isinstance(_get(fetcher, wanted[0]), Blob))
    for read in wanted:  # nothing is stuck, nothing wrong was kept
        found = _get(fetcher, read)
        while isinstance(found, HeadraceError):  # the faults that are left
            found = _get(fetcher, read)
        assert bytes(found.data) == BODY[read.start : read.stop]
    assert fetcher.cache is not None
    assert fetcher.cache.verify().bad == []
    fetcher.close()


def _get(fetcher: Fetcher, read: Read) -> Blob | HeadraceError:
    try:
        return fetcher.get(read)
    except HeadraceError as error:
        return error


def bucket(seaweedfs: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A new one, which processes that are started reach, too."""
    seaweedfs.create_bucket(name)
    for variable, value in seaweedfs.variables().items():
        monkeypatch.setenv(variable, value)
    return open_store(f"s3://{name}", seaweedfs.options())


_READER = """
import sys, threading
import numpy as np
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.gateway.streaming import Pieces
from headrace.namespace.reader import Reader
from headrace.store import open_store
folder, url, key, size, version, rank = sys.argv[1:7]
store = open_store(url)
size, rank = int(size), int(rank)
cache = CacheSettings(dir=folder, min_free=0, block=1 << 18, whole=1 << 18)
fetcher = Fetcher.open(Settings(cache=cache), None, Metrics())
want = [(a, min(a + 50_000, size)) for a in range(rank * 50_000, size, 100_000)]
left, wrong, over = [len(want)], [], threading.Event()
lock = threading.Lock()
def sink(read, result):
    with lock:
        words = np.arange(read.start // 8, -(-read.stop // 8), dtype="<u8").tobytes()
        expected = words[read.start % 8 :][: read.stop - read.start]
        if isinstance(result, Exception) or bytes(result.data) != expected:
            wrong.append((read.start, str(result)[:200]))
        left[0] -= 1
        if not left[0]:
            over.set()
fetcher.submit([Read(store, key, size, version, a, b) for a, b in want], sink)
assert over.wait(120)
assert not wrong, wrong[:3]
assert fetcher.settle(60)
fetcher.close()
print(int(fetcher.metrics.get("fetch.bytes")))
"""


@pytest.mark.server
def test_ranks_of_a_node_fetch_each_block_once_together(
    seaweedfs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bucket(seaweedfs, "blocks", monkeypatch)
    body = np.arange((24 << 20) // 8, dtype="<u8").tobytes()
    info = store.put("large", body)
    told = [str(tmp_path / "cache"), "s3://blocks", "large", str(len(body)), str(info.version)]
    command = [sys.executable, "-c", _READER, *told]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True) for rank in range(2)]
    fetched = [int(rank.communicate(timeout=180)[0]) for rank in ranks]
    store.close()
    assert sum(fetched) == len(body)


_ENDS = """
import sys, threading
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Read, default_fetcher
from headrace.gateway.streaming import Pieces
from headrace.namespace.reader import Reader
from headrace.store import open_store
folder, url, key, size, version = sys.argv[1:6]
size = int(size)
fetcher = default_fetcher(Settings(cache=CacheSettings(dir=folder, min_free=0, block=1 << 18, whole=1 << 18)))
here = threading.Semaphore(0)
store = open_store(url)
want = [(a, min(a + 50_000, size)) for a in range(0, size, 50_000)]
fetcher.submit([Read(store, key, size, version, a, b) for a, b in want], lambda read, result: here.release())
for _ in want:
    here.acquire()
"""


@pytest.mark.server
def test_what_a_program_has_read_is_in_the_cache_when_it_has_ended(
    seaweedfs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = bucket(seaweedfs, "ends", monkeypatch)
    info = store.put("large", BODY * 12)
    told = [str(tmp_path / "cache"), "s3://ends", "large", str(info.size), str(info.version)]
    subprocess.run([sys.executable, "-c", _ENDS, *told], check=True, timeout=120)
    cache = Cache.open(CacheSettings(dir=str(tmp_path / "cache"), min_free=0))
    assert cache.holds(cache.name(store.identity, "large", str(info.version), info.size))
    cache.close()
    store.close()
