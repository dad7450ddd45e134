"""The ways to wait for reads: some together, a stream in its order, a stream as it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.base.errors import HeadraceError, NotFoundError
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
