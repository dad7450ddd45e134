"""What the tests of writing share: a namespace over a store that can be away, or kill us at any request."""

from __future__ import annotations

import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.base.errors import UnreachableError
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.mount.write_back.staging import Attributes, Staging, StagingOptions
from headrace.namespace import Namespace
from headrace.store import ForwardingStore, Store, StoreOptions, open_store
from headrace.store.embedded import EmbeddedS3

FILE = Attributes(0o100644, 1000, 100)
FOLDER = Attributes(0o040755, 1000, 100)
PATIENT = StagingOptions(period_s=0, retry_s=0.01, retry_most_s=0.05, settle_s=0.01)


class Killed(BaseException):
    """Stands for kill -9: no handler of the code under test may see an error it knows."""


class Guarded(ForwardingStore):
    """A store that may be away (`down`), and that kills whoever makes request number `last` (after it, if `late`)."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._once = threading.Lock()
        self.down = False
        self.calls: list[str] = []
        self.last: int | None = None
        self.late = False
        self.killed: Callable[[], None] | None = None

    def _meet(self, call: str, work: Any) -> Any:
        if self.down:
            raise UnreachableError("away", path=self.url)
        self.calls.append(call)
        mine = self.last is not None and len(self.calls) > self.last
        if mine and self.late and self.killed is not None:
            work()
        if mine:
            self._kill()
        return work()

    def _kill(self) -> None:
        """Only the first is felt: what the code under test does afterwards, a dead process would not have done."""
        with self._once:
            killed, self.killed = self.killed, None
            if killed is not None:
                killed()
        if threading.current_thread().name == "headrace-staging":  # in the background: a dead one does nothing
            raise UnreachableError("dead", path=self.url)
        raise Killed

    def get(self, key: str, *args: Any, **kw: Any) -> Any:
        return self._meet("get", lambda: self.inner.get(key, *args, **kw))

    def head(self, key: str) -> Any:
        return self._meet("head", lambda: self.inner.head(key))

    def describe(self, key: str) -> Any:
        return self._meet("describe", lambda: self.inner.describe(key))

    def list(self, prefix: str = "", **kw: Any) -> Iterator[Any]:
        yield from self._meet("list", lambda: list(self.inner.list(prefix, **kw)))

    def list_folder(self, prefix: str = "") -> Any:
        return self._meet("list", lambda: self.inner.list_folder(prefix))

    def put(self, key: str, data: Any, **kw: Any) -> Any:
        return self._meet("put", lambda: self.inner.put(key, data, **kw))

    def copy(self, source: str, target: str, **kw: Any) -> Any:
        return self._meet("copy", lambda: self.inner.copy(source, target, **kw))

    def redescribe(self, known: Any, metadata: Any) -> Any:
        return self._meet("copy", lambda: self.inner.redescribe(known, metadata))

    def assemble(self, key: str, **kw: Any) -> Any:
        return self._meet("assemble", lambda: self.inner.assemble(key, **kw))

    def delete(self, keys: Any) -> Any:
        return self._meet("delete", lambda: self.inner.delete(keys))


@dataclasses.dataclass
class World:
    """A namespace with one store at ``/d``, and a staging over it."""

    ns: Namespace
    fetcher: Fetcher
    folder: Path
    staging: Staging
    options: StagingOptions

    @property
    def store(self) -> Guarded:
        store = self.ns.resolve("/d/x").store
        assert isinstance(store, Guarded)
        return store

    def objects(self) -> dict[str, bytes]:
        """What the bucket holds, markers included."""
        inner = self.store.inner
        return {info.key: bytes(inner.get(info.key).data) for page in inner.list() for info in page}

    def write(self, path: str, data: bytes) -> None:
        """Create, write, close."""
        file = self.staging.create(path, FILE)
        try:
            file.write(0, data)
            file.publish()
        finally:
            file.release()

    def kill_after(self, requests: int, *, late: bool = False) -> None:
        """The process dies when it makes the request after so many; `late`: when that one is answered."""
        self.store.calls.clear()
        self.store.last, self.store.late = requests, late
        self.store.killed = self._remains

    def _remains(self) -> Path:
        copy = self.folder.with_name(self.folder.name + "+")
        if not copy.exists():
            shutil.copytree(self.folder, copy)
        return copy

    def crash(self) -> Staging:
        """What a mount finds after the present one was killed: by `kill_after`, else here."""
        copy = self._remains()
        self.store.killed = None
        self.staging.close()
        self.folder = copy
        self.staging = Staging(str(copy), self.ns, self.options)
        self.store.last = None
        self.store.down = False
        return self.staging


def settings_in(folder: Path) -> Settings:
    """A cache of its own that never runs out of room."""
    cache = CacheSettings(dir=str(folder / "cache"), size=1 << 30, min_free=0)
    return dataclasses.replace(Settings(), cache=cache)


@contextmanager
def world(
    folder: Path,
    url: str,
    store: StoreOptions | None = None,
    options: StagingOptions = PATIENT,
    *,
    read_only: bool = False,
) -> Iterator[World]:
    """A fresh world; everything in it is closed at the end."""
    folder.mkdir(exist_ok=True)
    settings = settings_in(folder)
    fetcher = Fetcher.open(settings)
    given = {
        field.name: getattr(store, field.name)
        for field in dataclasses.fields(StoreOptions)
        if store is not None and getattr(store, field.name) != field.default
    }

    def opener(where: str, chosen: StoreOptions | None, settings: Settings) -> Store:
        return Guarded(open_store(where, chosen, settings))

    ns = Namespace(settings, fetcher=lambda: fetcher, opener=opener)
    ns.attach("/d", url, read_only=read_only, **given)
    made = World(ns, fetcher, folder / "staging", Staging(str(folder / "staging"), ns, options), options)
    try:
        yield made
    finally:
        made.staging.close()
        fetcher.close()
        ns.close()


def key_of(length: int) -> str:
    """A key of so many bytes, in parts that any file system takes."""
    return "/".join(["n" * 99] * 20)[: length - 1] + "e"


def bucket_of(server: EmbeddedS3, name: str) -> tuple[str, StoreOptions]:
    """A new bucket's URL and how to reach it."""
    server.create_bucket(name)
    return f"s3://{name}", server.options()
