"""Previews of files of the namespace: kept by version, so that many viewers cost what one does."""

from __future__ import annotations

import threading
from typing import Final

from headrace.base.errors import TryAgainError
from headrace.base.threads import by_cores
from headrace.fetch import Read
from headrace.namespace import Entry, Namespace
from headrace.web.lately import Lately
from headrace.web.previews.apart import made_apart
from headrace.web.previews.preview import Made
from headrace.web.previews.source import Limits

_KEPT: Final = 200  # previews in memory
_LEAST, _MOST = 2, 4
"""Bounds of one process to four cores: each makes one preview, and may take `Limits.memory`."""
_PATIENCE_S: Final = 30.0  # seconds that a page waits for its turn


class Previews:
    """Any thread."""

    def __init__(self, namespace: Namespace, limits: Limits | None = None) -> None:
        self._namespace, self._limits = namespace, limits or Limits()
        self._turns = threading.BoundedSemaphore(by_cores(1 / 4, _LEAST, _MOST))
        self._made: Lately[tuple[str, str], Made] = Lately(float("inf"), most=_KEPT)

    def of(self, file: Entry) -> Made:
        """Of a file as it was listed. Some ranges of it are read, past the cache, which would bring whole blocks.

        Raises:
            CorruptError: looking at it takes too much. ChangedError: it is another by now. Any store error.
        """
        return self._made.get((file.path, file.version), lambda: self._make(file))

    def _make(self, file: Entry) -> Made:
        at, fetcher = self._namespace.resolve(file.path), self._namespace.fetcher

        def ask(start: int, stop: int) -> bytes:
            return bytes(fetcher.get(Read(at.store, at.key, None, file.version, start, stop)).data)

        if not self._turns.acquire(timeout=_PATIENCE_S):
            raise TryAgainError("too many previews are being made", path=file.path, hint="look again in a while")
        try:
            return made_apart(file.path, file.size, ask, self._limits)
        finally:
            self._turns.release()
