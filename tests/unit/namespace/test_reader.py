"""File handles: what they request, how far they read ahead, and what they do when things go wrong."""

from __future__ import annotations

import io
import itertools
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import HeadraceError, TryAgainError
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.fetch import Fetcher
from headrace.fetch.readahead import Cursor, Limits
from headrace.namespace import Namespace
from headrace.store import Blob
from tests.unit.namespace.reference import References, namespace

KIB, MIB = 1024, 1024 * 1024
CONTENT = random.Random(0).randbytes(20 * MIB)


@pytest.fixture
def world() -> Iterator[tuple[Namespace, References]]:
    with namespace(mounts={"/s": "ref://s"}) as (ns, references):
        ns.write("/s/big", CONTENT)
        ns.write("/s/small", CONTENT[: 100 * KIB])
        ns.stat("/s/big")
        ns.stat("/s/small")
        references.requests()
        yield ns, references


@given(
    size=st.integers(0, 400),
    moves=st.lists(st.tuples(st.integers(0, 420), st.integers(1, 80)), max_size=20),
    limits=st.builds(
        Limits, st.integers(1, 20), st.integers(20, 90), st.integers(1, 30), st.integers(0, 30), st.integers(0, 30)
    ),
)
def test_a_plan_is_contiguous_bounded_and_covers(size: int, moves: list[tuple[int, int]], limits: Limits) -> None:
    plan = Cursor(size, limits)
    held = (0, 0)
    for start, count in moves:
        start = min(start, size)
        requests = plan.read(start, count)
        for low, high in requests:
            assert 0 < high - low <= limits.part
            held = (held[0], high) if low == held[1] else (low, high)
        assert plan.high <= max(held[1], start)
        assert plan.low <= start <= plan.high
        if start < size:
            assert plan.high > start
        assert plan.high <= max(start + limits.most, held[1])
        assert plan.high - plan.low <= limits.keep + limits.most + limits.jump + limits.part


def test_a_plan_starts_small_and_doubles() -> None:
    plan = Cursor(1 << 30, Limits())
    sizes: list[int] = []
    windows: list[int] = []
    for position in range(0, 256 * MIB, 64 * KIB):
        sizes.extend(high - low for low, high in plan.read(position, 64 * KIB))
        windows.append(plan.window)
    assert sizes[0] == 128 * KIB
    assert max(sizes) == 8 * MIB
    assert windows == sorted(windows)
    assert windows[-1] == 64 * MIB
    assert all(after in (before, 2 * before) for before, after in itertools.pairwise(windows))
    assert plan.read(1 << 29, 4 * KIB) == [((1 << 29), (1 << 29) + 128 * KIB)]
    plan = Cursor(100, Limits())
    assert plan.read(0, 10) == [(0, 100)]


def test_small_files_cost_one_request(world: tuple[Namespace, References]) -> None:
    ns, references = world
    with ns.open("/s/small") as handle:
        assert handle.read() == CONTENT[: 100 * KIB]
        handle.seek(10)
        assert handle.read(5) == CONTENT[10:15]
    assert references.requests() == [("get", "small")]


def test_a_random_read_does_not_read_ahead(world: tuple[Namespace, References]) -> None:
    ns, references = world
    with ns.open("/s/big") as handle:
        for start in (10 * MIB, 2 * MIB, 17 * MIB):
            handle.seek(start)
            assert handle.read(1000) == CONTENT[start : start + 1000]
        low, high, _ = handle.raw.requested
        assert high - low == 128 * KIB
    assert len(references.requests()) == 3


def test_short_seeks_cost_nothing_more(world: tuple[Namespace, References]) -> None:
    ns, references = world
    with ns.open("/s/big") as handle:
        for _ in range(40):
            handle.read(64 * KIB)
        made = len(references.requests())
        handle.seek(-500 * KIB, io.SEEK_CUR)
        position = handle.tell()
        assert handle.read(100) == CONTENT[position : position + 100]
        handle.seek(700 * KIB, io.SEEK_CUR)
        position = handle.tell()
        assert handle.read(100) == CONTENT[position : position + 100]
        assert len(references.requests()) <= 1
    assert made < 20


@pytest.mark.parametrize("block", [1000, 64 * KIB, 3 * MIB, -1])
def test_sequential_reads(world: tuple[Namespace, References], block: int) -> None:
    ns, _ = world
    with ns.open("/s/big") as handle:
        got = b"".join(iter(lambda: handle.read(block), b""))
    assert got == CONTENT


@given(moves=st.lists(st.tuples(st.integers(0, 300 * KIB), st.integers(-1, 200 * KIB)), max_size=12))
@settings(max_examples=30, deadline=None)
def test_like_a_plain_file(moves: list[tuple[int, int]]) -> None:
    content = CONTENT[: 256 * KIB]
    model = io.BytesIO(content)
    with namespace(mounts={"/s": "ref://s"}) as (ns, _):
        ns.write("/s/k", content)
        with ns.open("/s/k") as handle:
            for position, count in moves:
                assert handle.seek(position) == model.seek(position)
                assert handle.read(count) == model.read(count)
                assert handle.tell() == model.tell()


def test_a_failed_read_can_be_repeated(world: tuple[Namespace, References]) -> None:
    ns, references = world
    store = references.stores["ref://s"]
    get, broken = store.get, threading.Event()

    def failing(*args: object, **kwargs: object) -> Blob:
        if broken.is_set():
            raise TryAgainError("down", path="ref://s/big")
        return get(*args, **kwargs)  # type: ignore[arg-type]

    store.get = failing  # type: ignore[method-assign,assignment]
    with ns.open("/s/big") as handle:
        first = handle.read(100 * KIB)
        broken.set()
        with pytest.raises(TryAgainError):
            handle.read(10 * MIB)
        broken.clear()
        handle.seek(len(first))
        assert first + handle.read() == CONTENT


def test_a_seek_past_a_part_leaves_the_next_one_under_way() -> None:
    settings = Settings(cache=CacheSettings(size=0), fetch=FetchSettings(connections=1))
    references = References()
    with closing(Fetcher.open(settings)) as fetcher:
        ns = Namespace(settings, fetcher=lambda: fetcher, opener=references)
        ns.attach("/s", "ref://s")
        content = CONTENT * 3
        ns.write("/s/big", content)
        store = references.stores["ref://s"]
        get, going_on = store.get, threading.Event()

        def held_up(key: str, start: int = 0, *args: Any, **kwargs: Any) -> Blob:
            assert start < 8 * MIB or going_on.wait(30)
            return get(key, start, *args, **kwargs)

        store.get = held_up  # type: ignore[method-assign]
        with ns.open("/s/big") as handle, ThreadPoolExecutor(1) as beside:
            while handle.raw.requested[1] < len(content):
                handle.read(64 * KIB)
            handle.seek(30 * MIB)
            found = beside.submit(handle.read, 100)
            while handle.raw.requested[0] < 29 * MIB:
                assert not found.done()
            going_on.set()
            assert found.result(30) == content[30 * MIB : 30 * MIB + 100]
        ns.close()


def test_closing_cancels_and_frees(world: tuple[Namespace, References]) -> None:
    ns, _ = world
    handle = ns.open("/s/big")
    handle.read(10)
    handle.close()
    handle.close()
    with pytest.raises(ValueError, match="closed"):
        handle.read(1)


def test_through_the_cache(tmp_path: Path) -> None:
    with namespace(str(tmp_path), mounts={"/s": "ref://s"}) as (ns, references):
        ns.write("/s/big", CONTENT)
        assert ns.open("/s/big").read() == CONTENT
        references.requests()
        assert ns.open("/s/big").read() == CONTENT
        assert bytes(ns.read("/s/big", 5 * MIB, 6 * MIB)) == CONTENT[5 * MIB : 6 * MIB]
        assert [request for request in references.requests() if request[0] == "get"] == []


def test_a_handle_in_a_forked_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE_SIZE", "0")
    ns = Namespace.load()
    ns.attach("/disk", f"file://{tmp_path}")
    ns.write("/disk/big", CONTENT)
    handle = ns.open("/disk/big")
    assert handle.read(1000) == CONTENT[:1000]
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os._exit(0 if handle.read() == CONTENT[1000:] else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert handle.read() == CONTENT[1000:]


def test_text(world: tuple[Namespace, References]) -> None:
    ns, _ = world
    with ns.open("/s/t", "w", encoding="utf-16", newline="\r\n") as handle:
        handle.write("é\nb")
    assert bytes(ns.read("/s/t")).decode("utf-16") == "é\r\nb"
    with ns.open("/s/t", "r", encoding="utf-16") as handle:
        assert list(handle) == ["é\n", "b"]
    for mode in ("a", "r+", "rw", "", "rbt"):
        with pytest.raises(HeadraceError):
            ns.open("/s/t", mode)
