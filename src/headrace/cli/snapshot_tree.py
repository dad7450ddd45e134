"""A snapshot's objects as the entries a listing would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.namespace import Entry

if TYPE_CHECKING:
    from headrace.dataset.source import Part, SampleIndex
    from headrace.namespace import Namespace

_AT_ONCE = 4096


def open_objects(namespace: Namespace, name: str) -> SampleIndex:
    """The objects of snapshot ``name@version``, each a sample of its own.

    Raises:
        NotFoundError: no such snapshot. CorruptError: its manifest is damaged.
    """
    from headrace.base.settings import Settings
    from headrace.dataset.source import open_source

    return open_source(name, by="object", namespace=namespace, settings=Settings.load())


def parts(index: SampleIndex) -> Iterator[Part]:
    """Every object of an index, in order, without holding them all."""
    import numpy as np

    for start in range(0, len(index), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(index)), dtype=np.int64)
        for _, objects, _ in index.specs(rows):
            yield from objects


def snapshot_entries(namespace: Namespace, name: str) -> Iterator[Entry]:
    """The files of snapshot ``name@version``."""
    index = open_objects(namespace, name)
    for part in parts(index):
        yield Entry(
            part.key.rpartition("/")[2], f"{index.store.url}/{part.key}", "file", part.size, etag=part.version
        )
