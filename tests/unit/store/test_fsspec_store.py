"""Stores through fsspec: keys are exact names, also where the file system's own `mv` takes names for patterns."""

from __future__ import annotations

from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from headrace.store import Store, open_store


class Plain(MemoryFileSystem):
    """A file system that inherits whatever it need not have of its own."""

    protocol = "plain"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]


@pytest.fixture
def store() -> Store:
    fsspec.register_implementation("plain", Plain, clobber=True)
    Plain.store.clear()
    Plain.pseudo_dirs[:] = [""]
    return open_store("plain://root")


@pytest.mark.parametrize("key", ["lr=[0.1]/a", "run[1].pt", "what?", "all*", "[!a]/**/b"])
def test_names_are_no_patterns(store: Store, key: str):
    for other in ("lr=0/a", "run1.pt", "whats", "allies", "b/x/b"):
        store.put(other, other.encode())
    for data in (b"1", b"22"):
        assert store.put(key, data).size == len(data)
        assert bytes(store.get(key).data) == data
    store.copy(key, f"{key}-copy")
    store.delete([key])
    left = {info.key for page in store.list() for info in page}
    assert left == {"lr=0/a", "run1.pt", "whats", "allies", "b/x/b", f"{key}-copy"}


class Silent(Plain):
    """Tells no sizes, as file systems over web servers may."""

    protocol = "silent"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return {**super().info(path, **kwargs), "size": None}

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        return [{**one, "size": None} for one in super().ls(path, detail=True, **kwargs)]


def test_an_unknown_size_is_not_0():
    fsspec.register_implementation("silent", Silent, clobber=True)
    silent = open_store("silent://root")
    silent.put("d/full", b"12345")
    silent.put("d/empty", b"")
    sizes = {"d/full": 5, "d/empty": 0}
    assert {key: silent.head(key).size for key in sizes} == sizes
    assert {info.key: info.size for page in silent.list() for info in page} == sizes
    assert {info.key: info.size for info in silent.list_folder("d/").objects} == sizes
    assert bytes(silent.get("d/full").data) == b"12345"
