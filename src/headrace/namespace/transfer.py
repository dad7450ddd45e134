"""Copying an object from one store to another, through this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from headrace.base.errors import ChangedError
from headrace.namespace.writer import Spool
from headrace.store.protocol import ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.fetch import Fetcher

_PIECE = 16 * 1024 * 1024


def stream(fetcher: Fetcher, source: Store, info: ObjectInfo, put: Callable[[memoryview], ObjectInfo]) -> ObjectInfo:
    """Read the object version `info` and give it to `put` whole. At most 64 MiB and one piece of 16 MiB are in memory.

    Raises:
        ChangedError: the object changed while it was read. NotFoundError, DeniedError, TryAgainError.
    """
    from headrace.fetch import Read

    with closing(Spool()) as spool:
        for start in range(0, info.size, _PIECE):
            stop = min(start + _PIECE, info.size)
            blob = fetcher.get(Read(source, info.key, info.size, info.version, start, stop))
            if len(blob.data) != stop - start:
                raise ChangedError("became shorter while it was copied", path=f"{source.url}/{info.key}")
            spool.write(blob.data)
        return put(spool.view())
