"""Bringing objects into the node's cache: skip what is there, fetch the rest, make sure it was kept."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from headrace.base.errors import HeadraceError, TryAgainError, UnsupportedError
from headrace.base.progress import SILENT, Progress
from headrace.cache import Cache
from headrace.fetch.fetcher import Fetcher
from headrace.fetch.read import Read
from headrace.store.protocol import Blob

_PIECE = 32 << 20
"""Large objects are read in pieces of this many bytes, so that memory stays bounded."""
_UNSETTLED = 2048
"""Objects that came and wait to be seen in the cache: as many as `filling` lets wait."""
_SETTLE_S = 10.0
"""A disk that takes longer for what waits is reported as objects that were not kept."""
_TRIES = 3
"""Rounds over what was not kept: a third finds the same disk full."""
_MOST_ERRORS = 10
"""Errors that are told of: the others are mostly the same."""


@dataclass
class Warmed:
    """What became of the objects: counts, `size` in bytes fetched, and the first errors with their paths."""

    loaded: int = 0
    already: int = 0
    local: int = 0
    not_kept: int = 0
    failed: int = 0
    size: int = 0
    errors: list[HeadraceError] = field(default_factory=list[HeadraceError])

    def check(self, path: str, see: str = "headrace cache status") -> None:
        """Raises the first error of an object that was not loaded, told of all of them; else TryAgainError where the
        cache did not keep what was read. `path`: what was loaded; `see`: the command that shows the cache.
        """
        if self.failed:
            first = self.errors[0]
            raise type(first)(f"{self.failed} not loaded; first: {first.reason}", path=first.path, hint=first.hint)
        if self.not_kept:
            text = f"{self.not_kept} objects were read but not kept by the cache"
            raise TryAgainError(text, path=path, hint=f"its limit or its disk may be too small: {see}")

    def add(self, other: Warmed) -> None:
        """Add what became of others."""
        for name in ("loaded", "already", "local", "not_kept", "failed", "size"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors = [*self.errors, *other.errors][:_MOST_ERRORS]


class Warmer:
    """Loads objects into the cache of `fetcher`. Use once, from one thread.

    Raises:
        UnsupportedError: the cache is off.
    """

    def __init__(self, fetcher: Fetcher, progress: Progress = SILENT, *, in_flight: int) -> None:
        if fetcher.cache is None:
            raise UnsupportedError("the cache is off", hint="set cache.size above 0, and see: headrace cache status")
        self._fetcher = fetcher
        fetcher.insist()
        self._cache: Cache = fetcher.cache
        self._progress = progress
        self._in_flight = in_flight
        self._lock = threading.Lock()
        self._unsettled: deque[Read] = deque()
        self.result = Warmed()

    def run(self, reads: Iterable[Read]) -> Warmed:
        """Load every object; goes on after a failed one."""
        self._fetcher.read_all(self._missing(reads), self._done, in_flight=self._in_flight)
        for _ in range(_TRIES):
            lost = self._settle()
            if not lost:
                break
            self._fetcher.read_all(lost, self._again, in_flight=self._in_flight)
            self._unsettled.extend(lost)
        self.result.not_kept += len(self._settle())
        return self.result

    def _missing(self, reads: Iterable[Read]) -> Iterator[Read]:
        seen = size = 0
        for read in reads:
            seen, size = seen + 1, size + (read.size or 0)
            self._progress.total(seen, size)
            if read.store.local_root is not None:
                self.result.local += 1
            elif self._is_kept(read):
                self.result.already += 1
            else:
                yield from self._pieces(read)
                continue
            self._progress.advance(1, read.size or 0)

    def _pieces(self, read: Read) -> Iterator[Read]:
        if read.size is None or read.size <= _PIECE:
            yield read
            return
        for start in range(0, read.size, _PIECE):
            yield Read(read.store, read.key, read.size, read.version, start, min(start + _PIECE, read.size))

    def _done(self, read: Read, result: Blob | HeadraceError) -> None:
        last = read.stop is None or read.stop == read.size
        with self._lock:
            if isinstance(result, HeadraceError):
                self.result.failed += 1
                self.result.errors = [*self.result.errors, result.at(read.path)][:_MOST_ERRORS]
                return
            self.result.size += len(result.data)
            if last:
                self.result.loaded += 1
                self._unsettled.append(read)
            if len(self._unsettled) > _UNSETTLED and self._is_kept(self._unsettled[0]):
                self._unsettled.popleft()
        self._progress.advance(int(last), len(result.data))

    def _again(self, read: Read, result: Blob | HeadraceError) -> None:
        """A second fetch was only for the cache."""

    def _settle(self) -> list[Read]:
        """Wait until entries are written; returns reads of what the cache did not keep."""
        self._fetcher.settle(_SETTLE_S)
        lost = [read for read in self._unsettled if not self._is_kept(read)]
        self._unsettled.clear()
        return [piece for read in lost for piece in self._pieces(Read(read.store, read.key, read.size, read.version))]

    def _is_kept(self, read: Read) -> bool:
        if read.version is None or read.size is None or read.size < 0:
            return False
        name = self._cache.name(read.store.identity, read.key, read.version, read.size)
        return self._cache.path(name) is not None
