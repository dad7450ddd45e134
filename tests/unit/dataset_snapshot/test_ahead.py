"""A listing begun ahead of need: kept where it is whole, and only there."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headrace.base.errors import TryAgainError
from headrace.base.settings import CacheSettings, Settings
from headrace.dataset import Dataset
from headrace.dataset.ahead import Pages, listed_ahead
from headrace.namespace import Namespace
from headrace.store.protocol import ObjectInfo
from tests.unit.dataset_snapshot.kit import PagedStore

KEYS = [f"c{c}/{n:03d}.png" for c in range(5) for n in range(20)]


class Counting(PagedStore):
    """Counts listings; `gate`: pages after the first wait for it."""

    lists = folders = 0
    gate: threading.Event | None = None

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        self.lists += 1
        for number, page in enumerate(super().list(prefix, start_after=start_after)):
            if number and self.gate is not None:
                assert self.gate.wait(60)
            yield page

    def list_folder(self, prefix: str = ""):
        self.folders += 1
        return super().list_folder(prefix)


def world(tmp_path: Path, keys: list[str]) -> tuple[Counting, Namespace, Settings]:
    store = Counting(keys, continues=None)
    chosen = Settings(cache=CacheSettings(dir=str(tmp_path / "cache"), ttl=600.0))
    return store, Namespace.load(chosen, opener=lambda *_: store), chosen


def opened(namespace: Namespace, chosen: Settings, patch: pytest.MonkeyPatch) -> int:
    patch.setattr(Settings, "load", staticmethod(lambda: chosen))
    return len(Dataset.open("s3://bucket", namespace=namespace))


def test_what_was_listed_ahead_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, namespace, chosen = world(tmp_path, KEYS)
    with listed_ahead("s3://bucket", namespace, chosen):
        pass
    assert (store.lists, store.folders) == (1, 0)
    assert opened(namespace, chosen, monkeypatch) == len(KEYS)
    assert store.lists == 1


def test_a_listing_of_many_pages_goes_folder_by_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"c{c}/{n:03d}.png" for c in range(5) for n in range(60)]
    store, namespace, chosen = world(tmp_path, keys)
    assert opened(namespace, chosen, monkeypatch) == len(keys)
    assert store.folders == 6


def test_a_listing_that_is_stopped_is_not_taken_for_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, namespace, chosen = world(tmp_path, KEYS)
    store.gate = threading.Event()
    with pytest.raises(ZeroDivisionError), listed_ahead("s3://bucket", namespace, chosen):
        raise ZeroDivisionError
    store.gate.set()
    assert opened(namespace, chosen, monkeypatch) == len(KEYS)


def test_pages_that_were_closed_do_not_end(tmp_path: Path) -> None:
    store = Counting(KEYS, continues=None)
    store.gate = threading.Event()
    pages = Pages(store.list())
    assert len(next(pages)) == 10
    pages.close()
    with pytest.raises(TryAgainError):
        next(pages)
    store.gate.set()
