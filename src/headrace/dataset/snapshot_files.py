"""A snapshot's objects as the entries a listing would give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.fetch import Read
from headrace.namespace import Entry
from headrace.namespace.home import url_of

if TYPE_CHECKING:
    from headrace.dataset.source import SampleIndex
    from headrace.namespace import Namespace

_AT_ONCE = 4096


def open_objects(namespace: Namespace, name: str) -> SampleIndex:
    """The objects of snapshot ``name@version``, each a sample of its own.

    Raises:
        NotFoundError: no such snapshot. CorruptError: its manifest is damaged.
    """
    from headrace.base.settings import Settings
    from headrace.dataset.source import OpenOptions, open_source

    return open_source(name, OpenOptions(by="object"), namespace=namespace, settings=Settings.load())


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
