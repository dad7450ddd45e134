"""What the node's cache holds of a path or a snapshot: loaded, pinned, evicted, listed again. `hr.load`, `hr.pin`, …"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.cache import Cache, Evicted
from headrace.catalog.listed_places import find_place, recent_objects
from headrace.catalog.portable_objects import reads_below
from headrace.fetch import Fetcher, Warmed, Warmer
from headrace.namespace import Namespace, PathLike, tell_hidden


def load(
    path: PathLike,
    *,
    in_flight: int = 256,
    namespace: Namespace | None = None,
    settings: Settings | None = None,
    progress: Progress = SILENT,
) -> Warmed:
    """``load("imagenet@v3")``: bring every object there into this node's cache, as `headrace load` does.

    What is there already is skipped, so an interrupted load goes on where it stopped; it also goes on after an object
    that cannot be had: `Warmed.check` raises then. One thread; on a cluster: `headrace.cluster.load_on`.

    Args:
        path: a path, a URL, a file of this machine, or a snapshot ``NAME@VERSION``.
        in_flight: objects asked for at once.
        namespace: where paths are resolved; None: that of the settings.
        settings: whose cache; None: `Settings.load`.
        progress: told of objects and bytes.

    Raises:
        NotFoundError: nothing there. UnsupportedError: the cache is off. CorruptError: a damaged manifest. Any store
        error while it is listed.
    """
    found = settings or Settings.load()
    fetcher = Fetcher.open(found)
    try:
        reads = reads_below(namespace or Namespace.load(found), os.fspath(path))
        return Warmer(fetcher, progress, in_flight=in_flight).run(reads)
    finally:
        fetcher.close()


def pin(
    path: PathLike, *, pinned: bool = True, namespace: Namespace | None = None, settings: Settings | None = None
) -> int:
    """Keep what is at or below `path`, or in a snapshot, from being evicted; load it first. Returns how many objects.

    `pinned` False: let it be evicted again. One thread. Raises as `load`; UnsupportedError: the cache is off.
    """
    cache = _open(settings or Settings.load())
    return cache.pin(_names(cache, path, namespace or Namespace.load(settings)), pinned=pinned)


def evict(path: PathLike, *, namespace: Namespace | None = None, settings: Settings | None = None) -> Evicted:
    """Drop what the cache holds of `path`, or of a snapshot; pinned entries stay. One thread. Raises as `pin`."""
    cache = _open(settings or Settings.load())
    return cache.evict(names=_names(cache, path, namespace or Namespace.load(settings)))


def evict_to(target_bytes: int, *, settings: Settings | None = None) -> Evicted:
    """Drop the least recently used entries until so many bytes are held; pinned ones stay. Raises as `pin`."""
    return _open(settings or Settings.load()).evict(target_bytes=target_bytes)


def refresh(
    path: PathLike, *, namespace: Namespace | None = None, settings: Settings | None = None, progress: Progress = SILENT
) -> None:
    """List `path` again, so that data sets on this node see today's objects before ``cache.ttl`` is over. One thread.

    Mounts keep what they know: see `headrace.mount`. `progress`: told of objects. Raises as `load`.
    """
    found = settings or Settings.load()
    space = namespace or Namespace.load(found)
    named = space.named(path)
    tell_hidden(named)
    recent_objects(find_place(named, space), replace(found, cache=replace(found.cache, ttl=0.0)), progress)


def _open(settings: Settings) -> Cache:
    return Cache.open(settings.cache, required=True)


def _names(cache: Cache, path: PathLike, namespace: Namespace) -> Iterator[str]:
    for read in reads_below(namespace, os.fspath(path)):
        if read.version is not None and read.size is not None:
            yield cache.name(read.store.identity, read.key, read.version, read.size)
