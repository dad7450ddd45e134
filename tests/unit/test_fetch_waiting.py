"""The ways to wait for reads: some together, a stream in its order, a stream as it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.base.errors import DeadlineError, HeadraceError, NotFoundError
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store import Blob, ForwardingStore, Store, open_store

KEYS = [f"{number:02d}" for number in range(12)]


class Gate(ForwardingStore):
    """Each GET waits until `open` is set. It is read through threads, as a store without a wire."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.open = threading.Event()
        self.asked: list[str] = []

    @property
    def local_root(self) -> None:
        return None

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        self.asked.append(key)
        assert self.open.wait(30)
        return self.inner.get(key, start, stop, if_match=if_match)


@pytest.fixture
def store(tmp_path: Path) -> Gate:
    for key in KEYS:
        (tmp_path / key).write_text(key * 3)
    return Gate(open_store(f"file://{tmp_path}"))


@pytest.fixture
def fetcher() -> Iterator[Fetcher]:
    made = Fetcher.open(Settings(cache=replace(CacheSettings(), size=0)))
    yield made
    made.close()


def test_results_lie_in_the_order_of_the_reads_errors_among_them(store: Gate, fetcher: Fetcher) -> None:
    store.open.set()
    results = fetcher.start([Read(store, key, tag="mine") for key in ("03", "none", "01")]).wait()
    assert [type(one) for one in results] == [Blob, NotFoundError, Blob]
    assert [bytes(one.data) for one in results if isinstance(one, Blob)] == [b"030303", b"010101"]
    assert fetcher.start([]).wait() == []


class Stopped(Exception):
    pass


@pytest.mark.parametrize("shared", [False, True])
def test_who_looks_up_from_a_wait_ends_it_and_the_reads_unless_others_wait(
    store: Gate, fetcher: Fetcher, shared: bool
) -> None:
    looked: list[None] = []

    def look() -> None:
        looked.append(None)
        if len(looked) == 3:
            raise Stopped

    pending = fetcher.start([Read(store, "03"), Read(store, "04")])
    with pytest.raises(Stopped):
        pending.wait(look, shared=shared)
    assert pending.ticket is not None
    assert pending.ticket.cancelled is not shared
    assert not pending.here
    store.open.set()
    if shared:
        assert all(isinstance(one, Blob) for one in pending.wait(look))
        assert pending.here
        assert len(looked) == 3


def test_what_came_as_an_error_is_not_here(store: Gate, fetcher: Fetcher) -> None:
    store.open.set()
    pending = fetcher.start([Read(store, "none"), Read(store, "01")])
    assert [type(one) for one in pending.wait()] == [NotFoundError, Blob]
    assert not pending.here


def test_nobody_waits_past_the_deadline(store: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.fetch.pending._GRACE_S", 0.0)
    fetcher = Fetcher.open(Settings(cache=CacheSettings(size=0), fetch=FetchSettings(deadline=0.1)))
    with closing(fetcher):
        for look in (None, lambda: None):
            pending = fetcher.start([Read(store, "03")])
            with pytest.raises(DeadlineError, match=r"03: not read within 0\.1 s \(raise fetch\.deadline"):
                pending.wait(look)
            assert pending.ticket is not None
            assert pending.ticket.cancelled
        store.open.set()


def test_speculation_waits_for_room_that_demand_takes(store: Gate) -> None:
    fetcher = Fetcher.open(Settings(cache=CacheSettings(size=0), fetch=FetchSettings(connections=3, memory=1 << 20)))
    with closing(fetcher):
        first = fetcher.start([Read(store, "02", size=400_000)])
        ahead = fetcher.start([Read(store, "03", size=500_000)], demand=False)  # has three quarters of the memory
        demand = fetcher.start([Read(store, "04", size=500_000)])
        while len(store.asked) < 2:
            assert not first.here
        store.open.set()
        assert [one.blob().info.key for one in (first, ahead, demand)] == ["02", "03", "04"]
    assert sorted(store.asked[:2]) == ["02", "04"]


def test_results_are_looked_at_before_they_are_delivered(store: Gate, fetcher: Fetcher) -> None:
    store.open.set()
    seen: list[str] = []
    pending = fetcher.pending(1, f"{store.url}/03")

    def sink(read: Read, result: Blob | HeadraceError) -> None:
        assert not pending.here
        seen.append(read.key)
        pending.deliver(read, result)

    pending.ticket = fetcher.submit([Read(store, "03", tag=0)], sink)
    assert bytes(pending.blob().data) == b"030303"
    assert seen == ["03"]


def test_a_stream_in_its_order_has_so_many_ahead(store: Gate, fetcher: Fetcher) -> None:
    store.open.set()
    taken: list[str] = []

    def reads() -> Iterator[Read]:
        for key in KEYS:
            taken.append(key)
            yield Read(store, key)

    coming = fetcher.in_order(reads(), ahead=3)
    assert bytes(next(coming).data) == b"000000"
    assert taken == KEYS[:4]
    assert [bytes(blob.data) for blob in coming] == [3 * key.encode() for key in KEYS[1:]]


def test_a_stream_in_its_order_ends_with_the_first_failure_in_that_order(store: Gate, fetcher: Fetcher) -> None:
    store.open.set()
    coming = fetcher.in_order([Read(store, key) for key in ("00", "01", "none", "02")], ahead=3)
    assert [bytes(next(coming).data) for _ in range(2)] == [b"000000", b"010101"]
    with pytest.raises(NotFoundError):
        next(coming)


def test_all_are_read_with_so_many_under_way(store: Gate, fetcher: Fetcher) -> None:
    found: dict[str, Blob | HeadraceError] = {}
    pulled: list[str] = []

    def reads() -> Iterator[Read]:
        for key in [*KEYS, "none"]:
            pulled.append(key)
            assert len(pulled) - len(found) <= 4
            if len(pulled) == 4:  # until now none has been answered
                store.open.set()
            yield Read(store, key)

    fetcher.read_all(reads(), lambda read, result: found.__setitem__(read.key, result), in_flight=4)
    assert sorted(found) == sorted([*KEYS, "none"])
    assert isinstance(found["none"], NotFoundError)


def test_what_interrupts_a_stream_cancels_what_has_not_begun(store: Gate) -> None:
    def reads() -> Iterator[Read]:
        yield from [Read(store, "00"), Read(store, "01")]
        raise KeyboardInterrupt

    one_thread = replace(FetchSettings(), connections=1)
    fetcher = Fetcher.open(Settings(cache=replace(CacheSettings(), size=0), fetch=one_thread))
    with closing(fetcher):
        with pytest.raises(KeyboardInterrupt):
            fetcher.read_all(reads(), lambda read, result: None, in_flight=3)
        store.open.set()
        assert bytes(fetcher.get(Read(store, "02")).data) == b"020202"
    assert set(store.asked) <= {"00", "02"}
