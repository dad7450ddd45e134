"""What these tests share: a namespace over real stores in a folder of the test's own, and a paging store to list."""

from __future__ import annotations

import dataclasses
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.base.settings import CacheSettings, Settings
from headrace.namespace import Namespace
from headrace.store.protocol import Blob, Buffer, Capabilities, Folder, ObjectInfo, Store


class World:
    """A data store at /data, a home, settings, all in one temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "data"
        self.home = root / "home"
        for folder in (self.data, self.home):
            folder.mkdir()
        self.settings = Settings(home=f"file://{self.home}", cache=CacheSettings(dir=str(root / "cache"), ttl=0.0))
        self.namespace = Namespace.load(self.settings)
        self.namespace.attach("/data", f"file://{self.data}")

    def write(self, tree: Mapping[str, bytes]) -> None:
        for key, value in tree.items():
            path = self.data / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(value)

    def elsewhere(self) -> World:
        """The same stores seen from another node: nothing cached."""
        other = object.__new__(World)
        other.__dict__.update(self.__dict__)
        cache = dataclasses.replace(self.settings.cache, dir=str(self.root / f"cache-{threading.get_native_id()}-b"))
        other.settings = dataclasses.replace(self.settings, cache=cache)
        return other

    @property
    def context(self) -> dict[str, Any]:
        return {"namespace": self.namespace, "settings": self.settings}


def in_bytes(key: str) -> Any:
    return key.encode()


def by_folder(key: str) -> Any:
    """The order of a server that keeps a tree: a folder's content comes where the folder's name does."""
    return tuple(part.encode() for part in key.split("/"))


class PagedStore(Store):
    """Keys in memory, listed page by page in the order of `order`; `continues` is what it says of ``start_after``."""

    def __init__(
        self,
        keys: Sequence[str],
        *,
        page: int = 10,
        order: Callable[[str], Any] = in_bytes,
        continues: bool | None = True,
        url: str = "s3://bucket",
    ) -> None:
        self.url = url
        self.order = order
        self.keys = sorted(keys, key=order)
        self.ranks = [order(key) for key in self.keys]
        self.page = page
        self.requests = 0
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        self._continues = continues

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(start_after=self._continues)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        at = 0 if start_after is None else bisect_right(self.ranks, self.order(start_after))
        found = [k for k in self.keys[at:] if k.startswith(prefix) and (start_after is None or k > start_after)]
        for start in range(0, len(found), self.page):
            with self._lock:
                self.requests += 1
                self._now += 1
                self.most_at_once = max(self.most_at_once, self._now)
            yield [info(key) for key in found[start : start + self.page]]
            with self._lock:
                self._now -= 1

    def list_folder(self, prefix: str = "") -> Folder:
        self.requests += 1
        below = [key for key in self.keys if key.startswith(prefix)]
        folders = {prefix + key[len(prefix) :].split("/")[0] + "/" for key in below if "/" in key[len(prefix) :]}
        return Folder(tuple(folders), tuple(info(key) for key in below if "/" not in key[len(prefix) :]))

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        raise NotImplementedError

    def head(self, key: str) -> ObjectInfo:
        raise NotImplementedError

    def put(
        self,
        key: str,
        data: Buffer,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectInfo:
        raise NotImplementedError

    def copy(self, source: str, target: str) -> None:
        raise NotImplementedError

    def delete(self, keys: Sequence[str]) -> None:
        raise NotImplementedError


def info(key: str) -> ObjectInfo:
    return ObjectInfo(key, len(key), f"etag-{key}", 1_000_000 + len(key))
