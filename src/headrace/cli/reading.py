"""From what a PATH names to reads of whole objects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError
from headrace.cli.target import is_snapshot, target, walk
from headrace.fetch import Fetcher, Read

if TYPE_CHECKING:
    from headrace.namespace import Namespace
    from headrace.store.protocol import Blob


def reads_below(namespace: Namespace, text: str) -> Iterator[Read]:
    """A read for every object that PATH `text` names, pinned to the version listed; in listing order.

    Raises:
        NotFoundError: nothing there. Any store error.
    """
    if is_snapshot(text):
        from headrace.cli.snapshot_tree import open_objects, reads

        yield from (read for _, read in reads(open_objects(namespace, text)))
        return
    for entry in walk(namespace, target(namespace, text)):
        location = namespace.resolve(entry.path)
        version = entry.etag if entry.etag is not None else f"{entry.size}-{entry.mtime_us}"
        yield Read(location.store, location.key, entry.size, version)


def fetch_all(
    fetcher: Fetcher, reads: Iterable[Read], done: Callable[[Read, Blob | HeadraceError], None], *, in_flight: int
) -> None:
    """Fetch every read with at most `in_flight` under way; `done` is called on a fetch thread as each ends."""
    slots = threading.Semaphore(in_flight)

    def sink(read: Read, result: Blob | HeadraceError) -> None:
        try:
            done(read, result)
        finally:
            slots.release()

    for read in reads:
        slots.acquire()
        fetcher.submit([read], sink)
    for _ in range(in_flight):
        slots.acquire()
