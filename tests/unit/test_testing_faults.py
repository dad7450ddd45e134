"""The failing store fails as its plan says, and the strategies make what they promise."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings

from headrace.base.errors import (
    ChangedError,
    CredentialsError,
    DeadlineError,
    InputError,
    SlowDownError,
    TryAgainError,
    UnreachableError,
)
from headrace.store import open_store
from headrace.testing.faults import OTHER_ETAG, FaultStore, LatencyStore
from headrace.testing.plan import Fault, Kind, Plan
from headrace.testing.strategies import files, keys, ranges, trees

DATA = bytes(range(200))


@pytest.fixture
def inner(tmp_path):
    store = open_store(f"file://{tmp_path}")
    store.put("a", DATA)
    return store


def failing(inner, *faults, seed=0):
    return FaultStore(inner, Plan(faults, seed=seed))


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (Kind.SLOW_DOWN, SlowDownError),
        (Kind.INTERNAL, TryAgainError),
        (Kind.EXPIRED, CredentialsError),
        (Kind.RESET, UnreachableError),
        (Kind.REFUSE, UnreachableError),
        (Kind.STALL, DeadlineError),
    ],
)
def test_a_struck_read_raises_and_the_next_succeeds(inner, kind, error):
    store = failing(inner, Fault(kind, per_key=1))
    with pytest.raises(error):
        store.get("a")
    assert bytes(store.get("a").data) == DATA
    assert store.plan.struck(kind) == 1


def test_spoilt_bodies(inner):
    store = failing(inner, Fault(Kind.TRUNCATE, count=1))
    blob = store.get("a")
    assert (bytes(blob.data), blob.info.size) == (DATA[:100], len(DATA))
    store = failing(inner, Fault(Kind.CORRUPT, count=1))
    spoilt = bytes(store.get("a").data)
    assert [n for n in range(200) if spoilt[n] != DATA[n]] == [100]


def test_another_version(inner):
    store = failing(inner, Fault(Kind.CHANGED))
    assert store.get("a").info.version == OTHER_ETAG
    with pytest.raises(ChangedError):
        store.get("a", if_match=inner.head("a").version)


def test_only_what_the_fault_names(inner):
    inner.put("b/c.png", b"x")
    store = failing(inner, Fault(Kind.SLOW_DOWN, key="b/*"), Fault(Kind.INTERNAL, operations=frozenset({"head"})))
    assert bytes(store.get("a").data) == DATA
    with pytest.raises(SlowDownError):
        store.get("b/c.png")
    with pytest.raises(TryAgainError):
        store.head("a")


def test_an_answer_lost_after_the_work_was_done(inner):
    everything = frozenset({"put", "delete", "copy", "list"})
    store = failing(inner, Fault(Kind.RESET, operations=everything, per_key=1))
    with pytest.raises(UnreachableError):
        store.put("new", b"kept")
    assert bytes(inner.get("new").data) == b"kept"
    with pytest.raises(UnreachableError):
        store.copy("new", "newer")
    assert bytes(inner.get("newer").data) == b"kept"
    with pytest.raises(UnreachableError):
        store.delete(["new"])
    with pytest.raises(UnreachableError):
        list(store.list())
    assert [info.key for page in store.list() for info in page] == ["a", "newer"]


def test_rate_count_and_after(inner):
    store = failing(inner, Fault(Kind.SLOW_DOWN, after=2, count=3))
    outcomes = []
    for _ in range(7):
        try:
            store.get("a")
            outcomes.append(True)
        except SlowDownError:
            outcomes.append(False)
    assert outcomes == [True, True, False, False, False, True, True]


def test_latency_and_stragglers_and_their_end(inner):
    store = LatencyStore(inner, 0.05, straggler_rate=1.0, straggler_s=0.1)
    began = time.monotonic()
    store.get("a")
    assert 0.15 <= time.monotonic() - began < 1
    store = LatencyStore(inner, 600)
    reading = threading.Thread(target=store.get, args=("a",))
    reading.start()
    store.close()
    reading.join(5)
    assert not reading.is_alive()


def test_a_wrong_plan_is_refused():
    with pytest.raises(InputError):
        Fault(Kind.RESET, rate=2)
    with pytest.raises(InputError):
        Fault(Kind.RESET, delay_s=-1)


@settings(max_examples=50, deadline=None)
@given(keys(), files(), trees(keys()), ranges(10))
def test_strategies_keep_their_promises(key, files, tree, span):
    assert 0 < len(key.encode()) <= 900
    assert not key.startswith("/")
    assert all(not other.startswith(name + "/") for name in files for other in files)
    assert all(not name.startswith("/") for name in tree)
    assert 0 <= span[0] <= 10
    assert span[1] is None or span[1] >= span[0]
