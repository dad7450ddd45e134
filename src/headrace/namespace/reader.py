"""A seekable handle on one object version, reading ahead through the fetch room."""

from __future__ import annotations

import io
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.base.errors import ChangedError, DeadlineError, HeadraceError, InputError, TryAgainError
from headrace.namespace.entry import Entry
from headrace.store.protocol import Blob, ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.fetch import Fetcher, Read, Ticket
    from headrace.fetch.readahead import Cursor, Limits

_GRACE_S = 10.0
"""How much longer than its deadline a read is waited for: its own error says more than ours."""


class _Chunk:
    """Bytes [start, stop) that were asked for; `wait` until they have come."""

    __slots__ = ("_arrived", "_result", "start", "stop", "ticket")

    def __init__(self, start: int, stop: int) -> None:
        self.start = start
        self.stop = stop
        self.ticket: Ticket | None = None
        self._arrived = threading.Event()
        self._result: Blob | HeadraceError | None = None

    def deliver(self, result: Blob | HeadraceError) -> None:
        """Called once, on a fetch thread."""
        self._result = result
        self._arrived.set()

    @property
    def here(self) -> bool:
        """Whether its bytes have come, without error."""
        return isinstance(self._result, Blob)

    def wait(self, seconds: float) -> Blob:
        if not self._arrived.wait(seconds):
            raise DeadlineError(f"no answer within {seconds:g} s", hint="raise fetch.deadline if the store is slow")
        if isinstance(self._result, HeadraceError):
            raise self._result
        assert self._result is not None
        if len(self._result.data) != self.stop - self.start:
            raise TryAgainError(f"{len(self._result.data)} bytes came, {self.stop - self.start} were asked for")
        return self._result


class Reader(io.RawIOBase):
    """Raw reads of one object version. One thread at a time (`File` holds a lock around it).

    The version is settled when the handle is opened, or, where that knowledge was old, by the first read; a handle
    never mixes two versions: when the object changes under it, reads raise ChangedError.
    """

    def __init__(
        self,
        fetcher: Callable[[], Fetcher],
        store: Store,
        info: ObjectInfo,
        refresh: Callable[[], ObjectInfo],
        limits: Limits | None = None,
    ) -> None:
        from headrace.fetch.readahead import Limits

        super().__init__()
        self._fetcher = fetcher
        self._store = store
        self._info = info
        self._refresh: Callable[[], ObjectInfo] | None = refresh
        self._limits = limits or Limits.within(fetcher().settings.fetch.memory)
        self._cursor = self._at_start()
        self._chunks: deque[_Chunk] = deque()
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
        chunk = next(c for c in self._chunks if c.start <= self._position < c.stop)
        data = chunk.wait(self._fetcher().settings.fetch.deadline + _GRACE_S).data
        offset = self._position - chunk.start
        return data[offset : min(offset + most, len(data))].cast("B")

    def _request(self, count: int) -> None:
        cursor = self._cursor
        ranges = cursor.read(self._position, count)
        while self._chunks and (self._chunks[0].stop <= cursor.low or self._chunks[0].start >= cursor.high):
            self._cancel(self._chunks.popleft())
        if not ranges:
            return
        if self._chunks and ranges[0][0] != self._chunks[-1].stop:
            self._drop()
        chunks = [_Chunk(start, stop) for start, stop in ranges]
        self._chunks.extend(chunks)
        edge = self._position + count
        for demand, group in (
            (True, [c for c in chunks if c.start < edge]),
            (False, [c for c in chunks if c.start >= edge]),
        ):
            if group:
                self._submit(group, demand=demand)

    def _at_start(self) -> Cursor:
        from headrace.fetch.readahead import Cursor

        return Cursor(self._info.size, self._limits)

    def _submit(self, chunks: list[_Chunk], *, demand: bool) -> None:
        from headrace.fetch import Read

        reads = [
            Read(self._store, self._info.key, self._info.size, self._info.version, c.start, c.stop, c) for c in chunks
        ]
        ticket = self._fetcher().submit(reads, _deliver, demand=demand)
        for chunk in chunks:
            chunk.ticket = ticket

    def _is_here(self) -> bool:
        return any(c.here for c in self._chunks if c.start <= self._position < c.stop)

    def _restart(self) -> None:
        self._drop()
        self._cursor.restart(self._position)

    def _drop(self) -> None:
        while self._chunks:
            self._cancel(self._chunks.popleft())

    def _cancel(self, chunk: _Chunk) -> None:
        if chunk.ticket is not None and not chunk.here:
            chunk.ticket.cancel()

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:  # The threads that would deliver live on in the parent only.
            self._pid = os.getpid()
            self._chunks = deque(c for c in self._chunks if c.here)
            self._restart()


def _deliver(read: Read, result: Blob | HeadraceError) -> None:
    read.tag.deliver(result)


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
