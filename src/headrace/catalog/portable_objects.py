"""What a path or a snapshot names, object by object, in a form that another machine can read from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.base.settings import Settings
from headrace.cache.names import digest_of
from headrace.fetch import Read
from headrace.namespace import Entry, Namespace
from headrace.namespace.naming import is_snapshot_text, tell_hidden


class Origin(NamedTuple):
    """Where a snapshot's objects are: the path that it was taken by, if any, and the URL."""

    path: str | None
    url: str


class NamedObject(NamedTuple):
    """An object version. `name`: its key below the origin; without one: its path, or its URL. `size` in bytes."""

    name: str
    size: int | None
    version: str | None


def objects_below(namespace: Namespace, settings: Settings, text: str) -> tuple[Origin | None, Iterator[NamedObject]]:
    """Every object that `text`, a path, a URL, a file here or ``NAME@VERSION``, names, as it is listed now or was
    recorded; in that order, streamed. The origin is that of a snapshot.

    Raises:
        NotFoundError: nothing there. CorruptError: a damaged manifest. Any store error.
    """
    if not is_snapshot_text(text):
        found = namespace.named(text)
        tell_hidden(found)
        return None, map(_named, files(namespace, found))
    from headrace.catalog.snapshot import open_snapshot, snapshot_objects

    snapshot = open_snapshot(text, namespace=namespace, settings=settings)
    batches = snapshot_objects(snapshot, settings).batches()
    rows = (row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True))
    return Origin(snapshot.path, snapshot.source), (NamedObject(*row) for row in rows)


def as_reads(namespace: Namespace, origin: Origin | None, objects: Iterable[NamedObject]) -> Iterator[Read]:
    """A read of each, pinned to its version. Raises what resolving a name raises."""
    return map(_reader(namespace, origin), objects)


def entry_words(namespace: Namespace, origin: Origin | None) -> Callable[[NamedObject], int]:
    """By which word (`headrace.fetch.rendezvous.word_of`) an object falls to one of the nodes that share their caches.

    Raises, when called and in turn, what resolving a name raises.
    """
    reader = _reader(namespace, origin)

    def word(one: NamedObject) -> int:
        read = reader(one)
        return int.from_bytes(digest_of(read.store.identity, read.key, read.version or "")[:8], "big")

    return word


def reads_below(namespace: Namespace, text: str) -> Iterator[Read]:
    """A read for every object that `text` names: see `objects_below`, which says what is raised."""
    yield from as_reads(namespace, *objects_below(namespace, Settings.load(), text))


def files(namespace: Namespace, path: str) -> Iterator[Entry]:
    """The files at or below `path`: one entry for a file. Raises NotFoundError: there is neither file nor folder."""
    entry = namespace.stat(path)
    if entry.kind == "file":
        yield entry
    else:
        yield from namespace.walk(path)


def _named(entry: Entry) -> NamedObject:
    version = entry.etag if entry.etag is not None else f"{entry.size}-{entry.mtime_us}"
    return NamedObject(entry.path, entry.size, version)


def _reader(namespace: Namespace, origin: Origin | None) -> Callable[[NamedObject], Read]:
    if origin is None:

        def resolved(one: NamedObject) -> Read:
            location = namespace.resolve(one.name)
            return Read(location.store, location.key, one.size, one.version)

        return resolved
    from headrace.catalog.listed_places import find_again

    place = find_again(origin.path, origin.url, namespace)
    return lambda one: Read(place.store, place.prefix + one.name, one.size, one.version)
