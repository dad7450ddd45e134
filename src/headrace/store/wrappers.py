"""Stores around stores. A wrapper that must see each call hides `wire()`, so that readers come through it."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from headrace.base.account import count
from headrace.base.errors import HeadraceError
from headrace.base.metrics import Metrics
from headrace.store.protocol import (
    Assembly,
    Blob,
    Buffer,
    Capabilities,
    Described,
    Folder,
    ObjectInfo,
    Store,
    Unfinished,
    Wire,
)


class ForwardingStore(Store):
    """Passes every call on; subclass it and override what should differ. `wire()` is None."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.url = inner.url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def record(self, seen: Capabilities) -> None:
        self.inner.record(seen)

    @property
    def identity(self) -> str:
        return self.inner.identity

    @property
    def local_root(self) -> str | None:
        return self.inner.local_root

    @property
    def largest(self) -> int:
        return self.inner.largest

    def wire(self) -> Wire | None:
        return None

    def variables(self) -> Mapping[str, str]:
        return self.inner.variables()

    def presigned(self, key: str, seconds: int) -> str:
        return self.inner.presigned(key, seconds)

    def check_key(self, key: str) -> None:
        self.inner.check_key(key)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        return self.inner.get(key, start, stop, if_match=if_match)

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        return self.inner.get_if_changed(key, version)

    def open_file(self, key: str, version: str | None) -> int:
        return self.inner.open_file(key, version)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def describe(self, key: str) -> Described:
        return self.inner.describe(key)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        return self.inner.list(prefix, start_after=start_after)

    def list_folder(self, prefix: str = "") -> Folder:
        return self.inner.list_folder(prefix)

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
        return self.inner.put(key, data, if_match=if_match, create=create, metadata=metadata, headers=headers)

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.inner.copy(source, target, metadata=metadata, headers=headers)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Assembly:
        return self.inner.assemble(key, if_match=if_match, create=create, metadata=metadata, headers=headers)

    def unfinished(self, prefix: str = "") -> Sequence[Unfinished]:
        return self.inner.unfinished(prefix)

    def discard(self, left: Unfinished) -> None:
        self.inner.discard(left)

    def delete(self, keys: Sequence[str]) -> None:
        self.inner.delete(keys)

    def close(self) -> None:
        self.inner.close()


class OnAccount(ForwardingStore):
    """Counts its calls on the account of who makes them (`headrace.base.account`), for a store whose own requests
    nobody sees: a call is one, a listing one for each page. What it tries again is not seen. `wire()` is None.
    """

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        count("get")
        return super().get(key, start, stop, if_match=if_match)

    def head(self, key: str) -> ObjectInfo:
        count("head")
        return super().head(key)

    def describe(self, key: str) -> Described:
        count("head")
        return super().describe(key)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        count("list")
        for number, page in enumerate(super().list(prefix, start_after=start_after)):
            if number:
                count("list")
            yield page

    def list_folder(self, prefix: str = "") -> Folder:
        count("list")
        return super().list_folder(prefix)

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
        count("put")
        return super().put(key, data, if_match=if_match, create=create, metadata=metadata, headers=headers)

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        count("put")
        super().copy(source, target, metadata=metadata, headers=headers)

    def delete(self, keys: Sequence[str]) -> None:
        count("delete", len(keys))
        super().delete(keys)


class _Metered(ForwardingStore):
    def __init__(self, inner: Store, metrics: Metrics) -> None:
        super().__init__(inner)
        self._metrics = metrics

    @property
    def local_root(self) -> str | None:
        return None  # reading the files directly would not be seen

    @contextmanager
    def _count(self, name: str) -> Generator[None]:
        began = time.perf_counter()
        self._metrics.add(f"store.{name}.calls")
        try:
            yield
        except HeadraceError as error:
            self._metrics.add(f"store.{name}.errors")
            self._metrics.add(f"store.error.{error.code}")
            raise
        finally:
            self._metrics.add(f"store.{name}.seconds", time.perf_counter() - began)

    def get(self, key: str, start: int = 0, stop: int | None = None, *, if_match: str | None = None) -> Blob:
        with self._count("get"):
            blob = super().get(key, start, stop, if_match=if_match)
        self._metrics.add("store.get.bytes", len(blob.data))
        return blob

    def get_if_changed(self, key: str, version: str) -> Blob | None:
        with self._count("get"):
            blob = super().get_if_changed(key, version)
        self._metrics.add("store.get.bytes", len(blob.data) if blob is not None else 0)
        return blob

    def head(self, key: str) -> ObjectInfo:
        with self._count("head"):
            return super().head(key)

    def describe(self, key: str) -> Described:
        with self._count("head"):
            return super().describe(key)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        pages = super().list(prefix, start_after=start_after)
        while True:
            with self._count("list"):
                page = next(pages, None)
            if page is None:
                return
            self._metrics.add("store.list.keys", len(page))
            yield page

    def list_folder(self, prefix: str = "") -> Folder:
        with self._count("list"):
            return super().list_folder(prefix)

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
        with self._count("put"):
            info = super().put(key, data, if_match=if_match, create=create, metadata=metadata, headers=headers)
        self._metrics.add("store.put.bytes", info.size)
        return info

    def copy(
        self,
        source: str,
        target: str,
        *,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        with self._count("copy"):
            super().copy(source, target, metadata=metadata, headers=headers)

    def assemble(
        self,
        key: str,
        *,
        if_match: str | None = None,
        create: bool = False,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Assembly:
        inner = super().assemble(key, if_match=if_match, create=create, metadata=metadata, headers=headers)
        return _MeteredAssembly(inner, self._metrics, self._count)

    def delete(self, keys: Sequence[str]) -> None:
        with self._count("delete"):
            super().delete(keys)
        self._metrics.add("store.delete.keys", len(keys))


class _MeteredAssembly(Assembly):
    """Each part counts as a put, a copied one as a copy."""

    def __init__(self, inner: Assembly, metrics: Metrics, count: Callable[[str], AbstractContextManager[None]]) -> None:
        self.key, self.smallest, self.largest, self.most = inner.key, inner.smallest, inner.largest, inner.most
        self._inner = inner
        self._metrics = metrics
        self._count = count

    def part(self, number: int, at: int, data: Buffer) -> None:
        with self._count("put"):
            self._inner.part(number, at, data)
        self._metrics.add("store.put.bytes", memoryview(data).nbytes)

    def copy_part(self, number: int, at: int, source: str, start: int, stop: int, *, if_match: str | None) -> None:
        with self._count("copy"):
            self._inner.copy_part(number, at, source, start, stop, if_match=if_match)

    def complete(self) -> ObjectInfo:
        with self._count("put"):
            return self._inner.complete()

    def abort(self) -> None:
        self._inner.abort()


def metered(store: Store, metrics: Metrics) -> Store:
    """The same store, counting ``store.<call>.calls``, ``.errors``, ``.seconds``, bytes and keys, errors by code.

    It sees every call, so `wire()` and `local_root` are None: for tests and for finding out, not for the fast path.
    """
    return _Metered(store, metrics)
