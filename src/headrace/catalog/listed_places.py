"""From a place in a store to its mapped objects: list once, keep the index on the node, remember it for the TTL."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import xxhash

from headrace.base.arrow import Batch
from headrace.base.errors import InputError, NotFoundError
from headrace.base.progress import SILENT, Progress
from headrace.base.settings import Settings
from headrace.catalog.index_cache import Shelf
from headrace.catalog.manifest import ManifestWriter, versioned
from headrace.catalog.object_index import Objects, ObjectsWriter, open_objects, publish_objects
from headrace.catalog.prefix_listing import list_objects
from headrace.namespace import Namespace
from headrace.namespace.home import as_prefix, url_of
from headrace.store.protocol import Store

_MOST_FOLDERS = 10_000  # folders of which it is kept when they changed; of more it is not, and they are listed again
_TICK_NS = 20_000_000
"""Nanoseconds, more than a tick of the clock of file times: a folder changed so lately may change again, unseen."""


@dataclass(frozen=True, slots=True)
class Place:
    """A prefix of a store (empty, or ending in ``/``), and the namespace path it was named by, if any."""

    store: Store
    prefix: str
    path: str | None = None

    @property
    def url(self) -> str:
        return url_of(self.store, self.prefix).rstrip("/") if self.prefix else self.store.url


Listing: TypeAlias = Callable[[Place, str, Progress], Iterator[Batch]]
"""How a place is listed: as `list_objects` does, whose `folder` comes second."""


def listed_here(place: Place, folder: str, progress: Progress) -> Iterator[Batch]:
    """Listed by this process."""
    return list_objects(place.store, place.prefix, folder=folder, progress=progress)


def find_place(target: str, namespace: Namespace) -> Place:
    """Where `target`, a path or URL, lies.

    Raises InputError if stores are attached inside it: a list of objects belongs to one store.
    """
    target = namespace.named(target)
    at = namespace.resolve(target)
    if "://" in target:
        return Place(at.store, as_prefix(at.key))
    inside = [m.path for m in namespace.mounts() if m.path.startswith(target.rstrip("/") + "/")]
    if inside:
        raise InputError(
            f"other stores are attached inside it ({', '.join(inside)})", path=target, hint="open each by itself"
        )
    return Place(at.store, as_prefix(at.key), target)


def find_again(path: str | None, url: str, namespace: Namespace) -> Place:
    """Where objects are that were named by `path` and lay at `url`: that path, with its credentials, if it still leads
    there, else the URL. Raises as `find_place`.
    """
    if path is not None:
        try:
            place = find_place(path, namespace)
        except (NotFoundError, InputError):
            place = None
        if place is not None and place.url == url:
            return place
    return find_place(url, namespace)


def list_place(
    place: Place,
    shelf: Shelf,
    progress: Progress = SILENT,
    *,
    manifest: Path | None = None,
    listing: Listing = listed_here,
) -> Objects:
    """List now, and index what is there. `manifest`: write that Parquet file as well.

    Raises:
        NotFoundError: nothing lies there. InputError: a key that is no UTF-8. Any store error.
    """
    with ExitStack() as stack:
        work = stack.enter_context(shelf.workspace())
        folder = work / "objects"
        folder.mkdir()
        index = ObjectsWriter(folder)
        table = stack.enter_context(ManifestWriter(str(manifest))) if manifest else None
        for batch in listing(place, str(work), progress):
            if table is not None:
                table.add(batch)
            index.add(versioned(batch))
        if index.digest.objects == 0:
            where = place.path or place.url
            raise NotFoundError("holds no objects", path=where, hint="check the path with headrace ls")
        return publish_objects(shelf, index)


def recent_objects(place: Place, settings: Settings, progress: Progress = SILENT) -> Objects:
    """The objects as listed by any process of this node within ``cache.ttl``, else listed now (by one process). Of
    local files a listing counts only as long as no folder has changed.
    """
    shelf = Shelf.of(settings)
    name = "listing-" + xxhash.xxh3_128_hexdigest(f"{place.store.identity}\n{place.prefix}".encode())
    with shelf.lock(name):
        note = shelf.recall(name, settings.cache.ttl)
        known = open_objects(shelf, str(note.get("digest"))) if note and _holds(note.get("folders")) else None
        if known is not None:
            return known
        folders = _folders(place)
        objects = list_place(place, shelf, progress)
        shelf.note(name, {"digest": objects.digest, "source": place.url, "folders": folders})
        return objects


def _folders(place: Place) -> dict[str, int] | None:
    """When each folder of local files was last changed, in nanoseconds; None for other stores. A folder that changed
    just now counts as changed again, since the clock of file times may not tell the next change from that one; so do
    too many folders.
    """
    if place.store.local_root is None:
        return None
    newest = time.time_ns() - _TICK_NS
    found: dict[str, int] = {}
    for folder, _, _ in os.walk(os.path.join(place.store.local_root, place.prefix)):
        with suppress(OSError):
            changed = os.stat(folder).st_mtime_ns
            found[folder] = changed if changed < newest else -1
        if len(found) > _MOST_FOLDERS:
            return {folder: -1}
    return found


def _holds(folders: dict[str, int] | None) -> bool:
    """Whether no folder has changed since."""
    try:
        return all(os.stat(folder).st_mtime_ns == changed for folder, changed in (folders or {}).items())
    except OSError:
        return False


def rows_now(
    place: Place, shelf: Shelf, progress: Progress = SILENT, *, listing: Listing = listed_here
) -> Iterator[Batch]:
    """The present objects as `headrace.catalog.manifest.VERSIONED` rows, streamed."""
    with shelf.workspace() as work:
        for batch in listing(place, str(work), progress):
            yield versioned(batch)
