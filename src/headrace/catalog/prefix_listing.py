"""Listing a prefix in parallel, as Arrow record batches in UTF-8 byte order of keys.

A store that continues a listing after any key is split by bisection of its key space (`headrace.catalog.bisection`).
One that cannot is walked folder by folder (`Store.list_folder`), several ahead. Local folders are listed in one stream.

Not every S3 server orders keys as S3 does. SeaweedFS orders them folder by folder (``a/x`` before ``a-b``) and
continues after a key in *that* order, so a range cut at ``a/5`` in byte order would lose ``a-b``, silently. The two
orders agree on keys and cuts without ``/``. So an S3 server not known to keep the order (`Capabilities.start_after`
None) is bisected only while every key seen, the one beyond each cut included, lies directly in the folder; the first
that does not sends the whole listing to the walk, before any row was given out.

Where the first page shows deeper keys already, the listing goes on as it began for as many pages as the walk has
workers, and is put in order here: a walk asks for each folder by itself, and what takes no more pages than that is had
sooner, and for far fewer requests, in one stream.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice

from headrace.base.arrow import Batch
from headrace.base.progress import SILENT, Progress
from headrace.catalog.bisection import NotFlatError, bisected
from headrace.catalog.external_sort import sort_batches
from headrace.catalog.manifest import page_batch
from headrace.store.protocol import Folder, ObjectInfo, Store

WORKERS = 16
"""LISTs under way: they wait for the store, not for a core."""
_BATCH_ROWS = 1 << 14  # rows handed on at a time


def list_objects(
    store: Store,
    prefix: str = "",
    *,
    folder: str,
    workers: int = WORKERS,
    progress: Progress = SILENT,
    begun: Iterator[Sequence[ObjectInfo]] | None = None,
) -> Iterator[Batch]:
    """Every object whose key starts with `prefix`, columns as `headrace.catalog.manifest.MANIFEST_SCHEMA`.

    ``key`` is what follows `prefix`. Closing the iterator stops the workers.

    Up to `workers` requests are under way; rows wait for their turn in `folder`, where nothing is left. `progress` is
    told of objects and bytes as they are found. `begun`: ``store.list(prefix)`` from its first page on, where somebody
    has asked for it already; used where the listing begins as one stream.

    Raises:
        InputError: a key that is no valid UTF-8. UnsupportedError: the store breaks its order. Any store error.
    """
    progress.total(None)
    continues = store.capabilities.start_after
    if store.local_root is not None:
        return sort_batches(_batches(store.list(prefix), prefix, progress), "key", folder=folder)
    if continues:
        return bisected(store, prefix, folder, workers, progress, trusted=True)
    if continues is None and store.url.startswith("s3:"):
        pages = iter(store.list(prefix)) if begun is None else begun
        return _tried(store, prefix, pages, folder, workers, progress)
    return _batches(_walk(store, prefix, workers), prefix, progress)


def _tried(
    store: Store,
    prefix: str,
    pages: Iterator[Sequence[ObjectInfo]],
    folder: str,
    workers: int,
    progress: Progress,
) -> Iterator[Batch]:
    first = next(pages, ())
    if any("/" in info.key[len(prefix) :] for info in first):
        short = _short(first, pages, workers)
        yield from _batches(_walk(store, prefix, workers) if short is None else [short], prefix, progress)
        return
    try:
        yield from bisected(store, prefix, folder, workers, progress, trusted=False, begun=chain([first], pages))
    except NotFlatError:
        yield from _batches(_walk(store, prefix, workers), prefix, progress)


def _short(
    first: Sequence[ObjectInfo], pages: Iterator[Sequence[ObjectInfo]], most: int
) -> Sequence[ObjectInfo] | None:
    """What these pages hold, in order of keys; None where they are more than `most`."""
    found = [first, *islice(pages, most)]
    if len(found) > most:
        return None
    return sorted(chain.from_iterable(found), key=lambda info: info.key)


def _batches(pages: Iterable[Sequence[ObjectInfo]], prefix: str, progress: Progress) -> Iterator[Batch]:
    held: list[ObjectInfo] = []
    for page in pages:
        progress.advance(len(page), sum(o.size for o in page))
        held.extend(page)
        while len(held) >= _BATCH_ROWS:
            yield page_batch(held[:_BATCH_ROWS], prefix)
            held = held[_BATCH_ROWS:]
    if held:
        yield page_batch(held, prefix)


def _walk(store: Store, prefix: str, workers: int) -> Iterator[Sequence[ObjectInfo]]:
    """Depth first in byte order, with up to `workers` folders of each level asked for ahead."""
    root = prefix[: prefix.rfind("/") + 1]
    with ThreadPoolExecutor(workers, thread_name_prefix="headrace-list") as pool:
        try:
            yield from _below(store, pool, pool.submit(store.list_folder, root), prefix, workers)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _below(
    store: Store, pool: ThreadPoolExecutor, answer: Future[Folder], prefix: str, ahead: int
) -> Iterator[Sequence[ObjectInfo]]:
    level = answer.result()
    folders = deque(sorted(f for f in level.folders if f.startswith(prefix) or prefix.startswith(f)))
    waiting: deque[tuple[str, Future[Folder]]] = deque()
    objects = sorted((o for o in level.objects if o.key.startswith(prefix)), key=lambda o: o.key)
    keys = [o.key for o in objects]
    done = 0
    while folders or waiting:
        while folders and len(waiting) < ahead:
            name = folders.popleft()
            waiting.append((name, pool.submit(store.list_folder, name)))
        name, inner = waiting.popleft()
        before = bisect_right(keys, name, lo=done)
        if before > done:
            yield objects[done:before]
            done = before
        # A key that ends in "/" may be told both here and inside its folder.
        known = objects[before - 1].key if before and keys[before - 1] == name else None
        for page in _below(store, pool, inner, prefix, ahead):
            rest = [o for o in page if o.key != known] if known is not None else page
            if rest:
                yield rest
    if objects[done:]:
        yield objects[done:]
