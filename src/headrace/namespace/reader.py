"""A seekable handle on one object version, reading ahead through the fetch room."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.base.errors import ChangedError, InputError, TryAgainError
from headrace.namespace.entry import Entry
from headrace.store.protocol import ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.fetch import Fetcher, Pending
    from headrace.fetch.readahead import Cursor, Limits


class _Part(NamedTuple):
    """Bytes [start, stop) that were asked for."""

    start: int
    stop: int
    pending: Pending

    def data(self) -> memoryview:
        """All of them, once they have come. Raises TryAgainError, and as `Fetcher.get`."""
        data = self.pending.blob().data
        if len(data) != self.stop - self.start:
            raise TryAgainError(f"{len(data)} bytes came, {self.stop - self.start} were asked for")
        return data


class Reader(io.RawIOBase):
    """Raw reads of one object version. One thread at a time (`File` holds a lock around it).

    The version is settled when the handle is opened, or, where that knowledge was old and `refresh` brings the present
    one, by the first read; a handle never mixes two versions: when the object changes under it, reads raise
    ChangedError.
    """

    def __init__(
        self,
        fetcher: Callable[[], Fetcher],
        store: Store,
        info: ObjectInfo,
        refresh: Callable[[], ObjectInfo] | None,
        limits: Limits | None = None,
    ) -> None:
        from headrace.fetch.readahead import Limits

        super().__init__()
        self._fetcher = fetcher
        self._store = store
        self._info = info
        self._refresh = refresh
        self._limits = limits or Limits.within(fetcher().settings.fetch.memory)
        self._cursor = self._at_start()
        self._parts: deque[_Part] = deque()
        self._position = 0
        self._pid = os.getpid()

    @property
    def info(self) -> ObjectInfo:
        """The object version this handle reads; asking for it settles it."""
        self._refresh = None
        return self._info

    @property
    def requested(self) -> tuple[int, int, int]:
        """For tests and curiosity: first and last byte held or asked for, and bytes to read ahead."""
        return self._cursor.low, self._cursor.high, self._cursor.window

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Costs nothing until the next read. Positions past the end are allowed and read as empty.

        Raises:
            InputError: before the start, or an unknown `whence`.
        """
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise InputError(f"whence {whence} is unknown", path=self._info.key)
        base = 0 if whence == io.SEEK_SET else self._position if whence == io.SEEK_CUR else self.info.size
        if base + offset < 0:
            raise InputError(f"seek to {base + offset}, before the start", path=self._info.key)
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer`, waiting for its first bytes only; 0 at the end.

        Raises:
            ChangedError: the object is no longer the version opened. NotFoundError, DeniedError, TryAgainError.
        """
        into = memoryview(buffer).cast("B")
        done = 0
        while done < len(into) and (done == 0 or self._is_here()):
            view = self._take(len(into) - done)
            if len(view) == 0:
                break
            into[done : done + len(view)] = view
            done += len(view)
        return done

    def readall(self) -> bytes:
        """From the position to the end; raises as `readinto`."""
        pieces = list(iter(lambda: self._take(self._info.size - self._position), b""))
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        """Cancel what is still being read ahead. Idempotent."""
        if not self.closed:
            self._drop()
        super().close()

    def take(self, most: int) -> memoryview:
        """From 1 to `most` bytes at the position, without a copy; none at the end. Raises as `readinto`."""
        return self._take(most)

    def _take(self, most: int) -> memoryview:
        """At least one byte at the position, unless it is at the end; moves the position."""
        self._check_fork()
        try:
            view = self._view(most)
        except ChangedError:
            self._restart()
            if self._refresh is None:
                raise
            self._info = self._refresh()  # Nothing of the old version was told to anyone: read the new one.
            self._cursor = self._at_start()
            view = self._view(most)
        except BaseException:
            self._restart()
            raise
        self._refresh = None
        self._position += len(view)
        return view

    def _view(self, most: int) -> memoryview:
        most = min(most, self._info.size - self._position)
        if most <= 0:
            return memoryview(b"")
        self._request(most)
        part = next(one for one in self._parts if one.start <= self._position < one.stop)
        offset = self._position - part.start
        return part.data()[offset : offset + most].cast("B")

    def _request(self, count: int) -> None:
        cursor = self._cursor
        ranges = cursor.read(self._position, count)
        while self._parts and (self._parts[0].stop <= cursor.low or self._parts[0].start >= cursor.high):
            self._parts.popleft().pending.cancel()
        if ranges and self._parts and ranges[0][0] != self._parts[-1].stop:
            self._drop()
        edge = self._position + count
        self._parts.extend(self._ask(start, stop, demand=start < edge) for start, stop in ranges)

    def _at_start(self) -> Cursor:
        from headrace.fetch.readahead import Cursor

        return Cursor(self._info.size, self._limits)

    def _ask(self, start: int, stop: int, *, demand: bool) -> _Part:
        from headrace.fetch import Read

        info = self._info
        read = Read(self._store, info.key, info.size, info.version, start, stop)
        return _Part(start, stop, self._fetcher().start([read], demand=demand))

    def _is_here(self) -> bool:
        return any(one.pending.here for one in self._parts if one.start <= self._position < one.stop)

    def _restart(self) -> None:
        self._drop()
        self._cursor.restart(self._position)

    def _drop(self) -> None:
        while self._parts:
            self._parts.popleft().pending.cancel()

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:  # The threads that would deliver live on in the parent only.
            self._pid = os.getpid()
            self._restart()


class File(io.BufferedReader):
    """A buffered, seekable file over `Reader`, as `Namespace.open` returns it. Any thread, one call at a time."""

    def __init__(self, raw: Reader, root: str) -> None:
        super().__init__(raw, raw._limits.first)  # pyright: ignore[reportPrivateUsage]
        self._reader = raw
        self._root = root

    @property
    def entry(self) -> Entry:
        """The object version being read."""
        from headrace.namespace.entry import file_entry

        return file_entry(self._root, self._reader.info)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._reader.info.size


def open_version(store: Store, key: str, listed: ObjectInfo | None, *, pinned: bool) -> File:
    """A file over one object of `store`, read through the process's fetcher. Any thread.

    Args:
        store: where it is.
        key: of the object.
        listed: the version that a listing told of; None: it is asked for.
        pinned: a version other than `listed` is refused; else the present one is read, unless some of `listed` was.

    Raises, also when it is read: ChangedError, NotFoundError, DeniedError, TryAgainError.
    """
    from headrace.fetch import default_fetcher

    def now() -> ObjectInfo:
        return default_fetcher().head(store, key)

    known = now() if listed is None else listed
    return File(Reader(default_fetcher, store, known, None if pinned else now), store.url)
