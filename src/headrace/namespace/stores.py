"""The stores a namespace has opened: each at first use, once, and anew in a forked child."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

from headrace.base.settings import Settings
from headrace.namespace import paths
from headrace.namespace.metadata import Metadata
from headrace.store.protocol import Store, StoreOptions

Opener = Callable[[str, StoreOptions | None, Settings], Store]
"""Opens the store at a URL without a request: `headrace.store.open_store`, or what stands in for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """A store with what is known of its objects."""

    store: Store
    metadata: Metadata


class Stores:
    """Opened stores by root URL and options. Any thread; a forked child starts with none."""

    def __init__(self, settings: Settings, opener: Opener | None = None) -> None:
        self._settings = settings
        self._opener = opener
        self._reset()
        _all.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._opened: dict[tuple[str, StoreOptions | None], Opened] = {}

    def open(self, root: str, options: StoreOptions | None) -> Opened:
        """The store at `root` (as `paths.trim_url` writes it). Makes no request.

        Raises:
            InputError, SettingError, CredentialsError, UnsupportedError: as `headrace.store.open_store`.
        """
        known = self._opened.get((root, options))
        if known is not None:
            return known
        with self._lock:
            known = self._opened.get((root, options))
            if known is None:
                url = root + "/" if root.endswith("://") else root
                store = (self._opener or _open_store)(url, options, self._settings)
                known = self._opened[root, options] = Opened(store, Metadata(self._settings.cache.ttl))
            return known

    def forget(self, root: str, key: str) -> None:
        """An object was written or deleted: whichever opened store also holds it forgets what it knew of it."""
        url = f"{root}/{key}"
        for (other, _), opened in list(self._opened.items()):
            if other == root:
                opened.metadata.forget(key)
            elif paths.is_below(url, other):
                opened.metadata.forget(url[len(other) + 1 :])

    def refresh(self) -> None:
        """Forget what is known of every object."""
        for opened in list(self._opened.values()):
            opened.metadata.clear()

    def close(self) -> None:
        """Release all connections. A later use opens the store again."""
        with self._lock:
            opened, self._opened = self._opened, {}
        for each in opened.values():
            each.store.close()


def _open_store(url: str, options: StoreOptions | None, settings: Settings) -> Store:
    from headrace.store import open_store

    return open_store(url, options, settings)


_all: weakref.WeakSet[Stores] = weakref.WeakSet()


def _after_fork() -> None:
    for stores in list(_all):
        stores._reset()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
