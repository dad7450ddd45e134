"""A long object on its way from the store to a client: a few parts ahead, in bounded memory, kept by the cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from headrace.base.errors import ChangedError
from headrace.fetch import Fetcher
from headrace.fetch.readahead import Limits
from headrace.namespace.reader import Reader
from headrace.store.protocol import ObjectInfo, Store

_AHEAD = Limits(first=4 << 20, most=16 << 20, part=4 << 20, jump=0, keep=0)


class Pieces(Iterator[memoryview]):
    """Bytes [start, stop) of one version; `first`: those before `start`, which are here already. One thread at a time.

    The constructor waits for the first of them, so that what cannot be had is still an answer of its own. `ended` is
    called once, when it is closed.

    Raises:
        ChangedError, NotFoundError, TryAgainError: it cannot be read.
    """

    def __init__(
        self, fetcher: Callable[[], Fetcher], store: Store, info: ObjectInfo, start: int, stop: int,
        first: memoryview | None, ended: Callable[[], None],
    ) -> None:  # fmt: skip
        self._reader = Reader(fetcher, store, info, lambda: info, _AHEAD)
        self._left = stop - start
        self._ended: Callable[[], None] | None = ended
        self._lock = threading.Lock()
        self._reader.seek(start)  # of this version alone: `info` has been asked for by nobody else
        self._settled = self._reader.info
        try:
            self._next = first if first is not None else self._take()
        except BaseException:
            self._reader.close()
            raise

    def __next__(self) -> memoryview:
        piece, self._next = self._next, memoryview(b"")
        if len(piece):
            return piece
        if not self._left:
            raise StopIteration
        return self._take()

    def _take(self) -> memoryview:
        piece = self._reader.take(min(self._left, _AHEAD.part))
        if not len(piece):
            raise ChangedError("became shorter while it was read")
        self._left -= len(piece)
        return piece

    def close(self) -> None:
        """Stop reading ahead. Idempotent."""
        with self._lock:
            ended, self._ended = self._ended, None
        if ended is not None:
            self._reader.close()
            ended()
