"""A shard's bytes for whoever indexes it: read through where members are small, headers alone where they are large."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from headrace.base.errors import ChangedError, InputError, TryAgainError
from headrace.catalog import LIST_AGAIN
from headrace.fetch import Fetcher, Read
from headrace.fetch.readahead import Limits
from headrace.namespace.home import url_of
from headrace.store.protocol import Blob, Store

_FIRST = 16 << 10
"""Bytes of a first read, and of one after a skip: a header, a small member beside a large one, and the next header."""
_GROWTH = 4  # times the last read, where one follows on another: in a few steps the largest is reached
_MOST = 4 << 20  # bytes of the largest read
_NOTHING = memoryview(b"")
_SKIP = 512 << 10
"""From so many bytes between two reads on, asking again is cheaper than reading through: about what a connection brings
in the time of one request."""


class Reader(NamedTuple):
    """How a scan reads. One for all shards that are scanned side by side, but for `get`.

    `get`: as `headrace.fetch.Fetcher.get`; it is told besides up to which byte of the object the next reads will
    probably go on. `most`: bytes of one read, unless one member's header has more. `turn`: see `AtHand`.
    """

    get: Callable[[Read, int], Blob]
    most: int = _MOST
    turn: AbstractContextManager[object] = nullcontext()


def reader_of(fetcher: Fetcher) -> Reader:
    """One read at a time, together with whoever else uses `fetcher`."""

    def get(read: Read, _: int) -> Blob:
        return fetcher.get(read)

    return Reader(get)


class StoreBytes:
    """A `headrace.formats.shard_format.AtHand` over one object version. One thread; holds at most one read, and
    while that is fetched none but what somebody still looks at.

    Not through the node's cache: that keeps blocks of megabytes, and headers alone would bring them all.
    """

    def __init__(
        self, reader: Reader, store: Store, key: str, size: int, version: str | None, told: Callable[[int], None]
    ) -> None:
        self.path = url_of(store, key)
        self.size = size
        self.turn = reader.turn
        self._reader, self._store, self._key, self._version = reader, store, key, version
        self._told = told
        self._data = _NOTHING
        self._from = self._until = self._reached = 0
        self._through = False
        self._limits = Limits(_FIRST, reader.most, reader.most, _SKIP, keep=0, growth=_GROWTH)
        self._window = 0

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`. `told` hears of every byte passed, read or skipped."""
        stop = min(stop, self.size)
        if start >= stop:
            return memoryview(b"")
        if start < self._from or stop > self._until:
            if self._through and self._from <= start < self._until:
                begun = bytes(self._data[start - self._from :])
                self._fetch(self._until, stop)
                return memoryview(begun + self._data[: stop - self._from])
            self._fetch(start, stop)
        return self._data[start - self._from : stop - self._from]

    def at_hand(self, start: int) -> memoryview:
        """See `AtHand.at_hand`."""
        return self._data[start - self._from :] if self._from <= start < self._until else memoryview(b"")

    def _look(self, *, near: bool) -> None:
        """Read more at once, or from header to header?"""
        self._window = self._limits.grown(self._window) if near else 0
        self._through = near and self._window == self._limits.most

    def _fetch(self, start: int, stop: int) -> None:
        if self._until:
            self._look(near=self._from <= start <= self._until + self._limits.jump)
        if self._through and start > self._until:  # what is skipped comes anyway
            start = self._until
        until = min(max(stop, start + (self._window or self._limits.first)), self.size)
        # Without the size, the read is not for the cache, which is what keeps it out.
        read = Read(self._store, self._key, None, self._version, start, until)
        self._data = _NOTHING  # its memory may serve for what comes now, and is warm
        self._from = self._until = start
        try:
            self._data = self._reader.get(read, self.size if self._through else 0).data
        except InputError as error:  # it begins behind the end: the object is shorter than listed
            raise ChangedError(f"has changed: {error.reason}", path=self.path, hint=LIST_AGAIN) from error
        if len(self._data) != until - start:
            raise TryAgainError(
                f"bytes {start:,} to {until:,} were asked for, {len(self._data):,} bytes came",
                path=self.path,
                hint="the store, or a proxy before it, cuts answers short",
            )
        self._from, self._until = start, until
        if self._until > self._reached:
            self._told(self._until - self._reached)
            self._reached = self._until
