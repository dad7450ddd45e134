"""A snapshot's objects as the entries a listing would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.fetch import Read
from headrace.namespace import Entry
from headrace.namespace.home import url_of

if TYPE_CHECKING:
    from headrace.catalog.sample_index import SampleIndex
    from headrace.namespace import Namespace

_AT_ONCE = 4096  # objects looked at together


def open_objects(namespace: Namespace, name: str) -> SampleIndex:
    """The objects of snapshot ``name@version``, each a sample of its own.

    Raises:
        NotFoundError: no such snapshot. CorruptError: its manifest is damaged.
    """
    from headrace.base.progress import SILENT
    from headrace.base.settings import Settings
    from headrace.catalog.index_cache import Shelf
    from headrace.catalog.object_samples import ObjectSamples
    from headrace.catalog.sample_grouping import open_groups
    from headrace.catalog.snapshot import open_snapshot, snapshot_objects, snapshot_place

    settings = Settings.load()
    snapshot = open_snapshot(name, namespace=namespace, settings=settings)
    objects = snapshot_objects(snapshot, settings, SILENT)
    place, groups = snapshot_place(snapshot, namespace), open_groups(Shelf.of(settings), objects, "object")
    fingerprint = f"object-{objects.digest[:32]}"
    return ObjectSamples(
        place.store, place.prefix, objects, groups, fingerprint=fingerprint, pinned=True, reports=False
    )


def reads(index: SampleIndex) -> Iterator[tuple[str, Read]]:
    """(key below the snapshot's source, read of the recorded version) of every object, in order, one by one."""
    import numpy as np

    for start in range(0, len(index), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(index)), dtype=np.int64)
        for key, (part,), _ in index.specs(rows):
            yield key, Read(index.store, part.key, part.size, part.version)


def snapshot_entries(namespace: Namespace, name: str) -> Iterator[Entry]:
    """The files of snapshot ``name@version``."""
    index = open_objects(namespace, name)
    for key, read in reads(index):
        yield Entry(key.rpartition("/")[2], url_of(read.store, read.key), "file", read.size or 0, etag=read.version)
