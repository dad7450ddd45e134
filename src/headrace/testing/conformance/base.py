"""What every part of the suite stands on: the store under test, a folder of its own for each test, two ways to read."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Protocol

import pytest

from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, FetchSettings, Settings
from headrace.fetch import Fetcher, Read
from headrace.store.probe import probe
from headrace.store.protocol import Blob, Capabilities, ObjectInfo, Store

_numbers = itertools.count()


class Reader(Protocol):
    """Reads through one of the two doors: `Store.get`, or a `Fetcher` (which takes `Store.wire` where there is one)."""

    def __call__(
        self, store: Store, key: str, start: int = 0, stop: int | None = None, if_match: str | None = None
    ) -> Blob: ...


class Suite:
    """Base of the parts. A subclass says what its store cannot do; every such claim is tested too."""

    unsupported: ClassVar[frozenset[str]] = frozenset()
    """Kinds of odd keys (see `headrace.testing.conformance.keys.ODD_KEYS`) that must raise UnsupportedError."""
    sorted_listing: ClassVar[bool] = True
    """Whether listings come in UTF-8 byte order of the keys."""
    outside: ClassVar[bool] = True
    """Whether the objects live outside this process, so that a forked child's writes show."""
    keeps_empty_folders: ClassVar[bool] = False
    """Whether `list_folder` may show a folder whose last object was deleted."""
    many: ClassVar[int] = 1050
    """Objects in the tests that need several pages."""

    @pytest.fixture
    def store(self) -> Store:
        """The store under test. Subclasses give it; a fresh or a shared one."""
        raise NotImplementedError("give the subclass a fixture named store")

    @pytest.fixture
    def hasty(self, store: Store) -> Store:
        """The same place, where a subclass can give that: by a store that tries again once. For what must fail."""
        return store

    @pytest.fixture
    def folder(self) -> str:
        """A prefix ending in ``/`` that no other test uses."""
        return f"conformance-{os.getpid()}-{next(_numbers)}/"

    @pytest.fixture
    def capabilities(self, store: Store) -> Capabilities:
        """What the store is *seen* to do."""
        return probe(store)

    @pytest.fixture(params=["get", "fetch"])
    def read(self, request: pytest.FixtureRequest) -> Iterator[Reader]:
        """Both doors, one after the other."""
        yield from _reader(request.param, FetchSettings())

    @pytest.fixture(params=["get", "fetch"])
    def hasty_read(self, request: pytest.FixtureRequest) -> Iterator[Reader]:
        """Both doors; the fetcher tries again once, for a store whose options say the same."""
        yield from _reader(request.param, FetchSettings(retries=1))


def _reader(door: str, settings: FetchSettings) -> Iterator[Reader]:
    if door == "get":
        yield lambda store, key, start=0, stop=None, if_match=None: store.get(key, start, stop, if_match=if_match)
        return
    fetchers = _Fetchers(settings)
    yield lambda store, key, start=0, stop=None, if_match=None: fetchers.mine().get(
        Read(store, key, None, if_match, start, stop)
    )
    fetchers.mine().close()


class _Fetchers:
    """A fetcher without a cache for each process: a forked child opens its own."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = Settings(cache=CacheSettings(size=0), fetch=settings)
        self._by_process: dict[int, Fetcher] = {}
        self._lock = threading.Lock()

    def mine(self) -> Fetcher:
        with self._lock:
            fetcher = self._by_process.get(os.getpid())
            if fetcher is None:
                fetcher = self._by_process[os.getpid()] = Fetcher.open(self._settings, None, Metrics())
            return fetcher


def fill(store: Store, objects: Mapping[str, bytes]) -> dict[str, ObjectInfo]:
    """Put many objects from a few threads; those below another object's key after it, one by one.

    SeaweedFS acknowledges ``a/b`` and ``a/b/c`` written for the first time at the same moment, and may keep only one.
    """
    below = sorted(key for key in objects if _is_below(key, objects))
    apart = [key for key in objects if key not in below]
    with ThreadPoolExecutor(8) as pool:
        done = dict(zip(apart, pool.map(store.put, apart, [objects[key] for key in apart]), strict=True))
    done.update({key: store.put(key, objects[key]) for key in below})
    return {key: done[key] for key in objects}


def _is_below(key: str, keys: Mapping[str, bytes]) -> bool:
    return any(key[:at] in keys for at, letter in enumerate(key) if letter == "/")


def listed(store: Store, prefix: str, *, start_after: str | None = None) -> Sequence[ObjectInfo]:
    """The whole listing."""
    return [info for page in store.list(prefix, start_after=start_after) for info in page]


def listed_keys(store: Store, prefix: str, *, start_after: str | None = None) -> Sequence[str]:
    """The keys of the whole listing."""
    return [info.key for info in listed(store, prefix, start_after=start_after)]


def exists(store: Store, key: str) -> bool:
    """Whether a listing shows this very key."""
    return key in listed_keys(store, key)
