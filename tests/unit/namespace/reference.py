"""A store whose keys are literal, as in S3's data model, held in a dict; it remembers every request made of it."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from headrace.base.errors import AlreadyExistsError, ChangedError, InputError, NotFoundError
from headrace.base.metrics import Metrics
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.namespace import Namespace
from headrace.store import Assembly, Blob, Buffer, Capabilities, Folder, ObjectInfo, Store, StoreOptions, open_store
from headrace.store.backends.spool import SpoolAssembly

_PAGE = 100


class ReferenceStore(Store):
    """``ref://name``: shared by name within one `References`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self.requests: list[tuple[str, str]] = []
        self._clock = itertools.count(1_700_000_000_000_000, 1_000_000)
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(has_etag=True, create_only_put=True, conditional_put=True)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        self.requests.append(("get", key))
        data, info = self._object(key)
        if if_match is not None and info.etag != if_match:
            raise ChangedError("changed", path=f"{self.url}/{key}")
        if start > len(data):
            raise InputError("start is past the end", path=f"{self.url}/{key}")
        return Blob(memoryview(data)[start:stop], info)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Assembly:
        given = {"if_match": if_match, "create": create, "metadata": metadata, "headers": headers}
        return SpoolAssembly.before_put(self, key, lambda data: self.put(key, bytes(data), **given))

    def head(self, key: str) -> ObjectInfo:
        self.requests.append(("head", key))
        return self._object(key)[1]

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        keys = sorted(k for k in self.objects if k.startswith(prefix) and (start_after is None or k > start_after))
        for begin in range(0, max(len(keys), 1), _PAGE):
            self.requests.append(("list", prefix))
            yield [self.objects[k][1] for k in keys[begin : begin + _PAGE] if k in self.objects]

    def list_folder(self, prefix: str = "") -> Folder:
        self.requests.append(("list_folder", prefix))
        folders: set[str] = set()
        found: list[ObjectInfo] = []
        for key in sorted(k for k in self.objects if k.startswith(prefix)):
            name, slash, _ = key[len(prefix) :].partition("/")
            if slash:
                folders.add(prefix + name + "/")
            else:
                found.append(self.objects[key][1])
        return Folder(tuple(sorted(folders)), tuple(found))

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
        self.requests.append(("put", key))
        with self._lock:
            present = self.objects.get(key)
            if create and present is not None:
                raise AlreadyExistsError("exists", path=f"{self.url}/{key}")
            if if_match is not None and (present is None or present[1].etag != if_match):
                raise ChangedError("changed", path=f"{self.url}/{key}")
            content = bytes(data)
            when = next(self._clock)
            etag = hashlib.sha256(content + str(when).encode()).hexdigest()[:16]
            self.objects[key] = (content, ObjectInfo(key, len(content), etag, when))
            return self.objects[key][1]

    def copy(self, source: str, target: str) -> None:
        self.requests.append(("copy", target))
        self.put(target, self._object(source)[0])

    def delete(self, keys: Sequence[str]) -> None:
        self.requests.extend(("delete", key) for key in keys)
        for key in keys:
            self.objects.pop(key, None)

    def _object(self, key: str) -> tuple[bytes, ObjectInfo]:
        if key not in self.objects:
            raise NotFoundError("no such object", path=f"{self.url}/{key}")
        return self.objects[key]


class References:
    """Opens ``ref://`` URLs as reference stores, all others for real."""

    def __init__(self) -> None:
        self.stores: dict[str, ReferenceStore] = {}

    def __call__(self, url: str, options: StoreOptions | None, settings: Settings) -> Store:
        if not url.startswith("ref://"):
            return open_store(url, options, settings)
        return self.stores.setdefault(url, ReferenceStore(url))

    def requests(self) -> list[tuple[str, str]]:
        """All requests so far, forgotten."""
        made = [request for store in self.stores.values() for request in store.requests]
        for store in self.stores.values():
            store.requests.clear()
        return made


@contextmanager
def namespace(
    cache_dir: str | None = None, *, ttl: float = 60.0, mounts: Mapping[str, str] | None = None
) -> Iterator[tuple[Namespace, References]]:
    """A namespace with a fetcher of its own; no cache unless `cache_dir` is given."""
    cache = CacheSettings(dir=cache_dir or "", size=10**9 if cache_dir else 0, min_free=0, ttl=ttl)
    settings = Settings(cache=cache)
    fetcher = Fetcher.open(settings, None, Metrics())
    references = References()
    tree = Namespace(settings, fetcher=lambda: fetcher, opener=references)
    for path, url in (mounts or {}).items():
        tree.attach(path, url)
    try:
        yield tree, references
    finally:
        tree.close()
        fetcher.close()
