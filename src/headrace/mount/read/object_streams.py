"""Large objects that are not all here yet: parts read ahead side by side, served from memory, kept in the sparse entry.

Parts are the blocks of the cache entry. A reader who goes forward has ever more of them under way; one who jumps about
gets small pieces, until four have come from one block: then the block is fetched. All readers of one object version
share what is here. What is held in memory counts against one budget of the mount.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

from headrace.base.budget import ByteBudget
from headrace.base.errors import ChangedError, HeadraceError
from headrace.base.threads import Crew, by_cores
from headrace.fetch import Read
from headrace.fetch.readahead import BlockCursor, Limits, cut
from headrace.store.protocol import Blob, ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.cache import BlockEntry
    from headrace.fetch import Fetcher, Pending
    from headrace.mount.kernel.kernel_requests import Request

_PIECE = 128 * 1024  # bytes fetched for a read that jumps
_MOST_PIECES = 16  # such pieces kept: 2 MiB for each file
_PROMOTE = 4  # jumps into one block after which all of it is fetched
_ANNOUNCING = 64 * 1024
"""A read of this size at the start of a file announces one from start to end."""
_MOST_AHEAD = 64 << 20  # bytes read ahead of one reader
_BEHIND = 2
"""Blocks by which a read may lag: the kernel's own read-ahead mixes up the order a little."""
_LEAST_WRITERS, _MOST_WRITERS = 2, 8
"""Bounds of one thread to four cores: they copy into files of the cache, and memory gives no more to more of them."""


class _StreamChunk:
    """One block on its way, or in memory until it is written and passed. `holders`: the stream, and the writer."""

    __slots__ = ("holders", "pending", "size")

    def __init__(self, pending: Pending, size: int) -> None:
        self.pending = pending
        self.size = size
        self.holders = 1


class ObjectStream:
    """One object version being read by `users` handles. Any thread. Made by `ObjectStreams`."""

    def __init__(
        self, streams: ObjectStreams, store: Store, info: ObjectInfo, entry: BlockEntry | None, block: int
    ) -> None:
        self._streams = streams
        self._store = store
        self._info = info
        self._entry = entry
        self._block = block = entry.block if entry is not None and not entry.complete else block
        most = max(min(_MOST_AHEAD, streams.budget.size // 4) // block, 1) * block
        self._limits = Limits(first=block, most=most, part=block, jump=block, keep=_BEHIND * block)
        self._lock = threading.Lock()
        self._chunks: dict[int, _StreamChunk] = {}
        self._pieces: OrderedDict[int, memoryview] = OrderedDict()
        self._misses: Counter[int] = Counter()
        self._closed = False
        self._writes = 0
        self.users = 0

    def cursor(self) -> BlockCursor:
        """For a handle that begins to read it."""
        return BlockCursor(self._info.size, self._limits, _ANNOUNCING)

    def read(self, cursor: BlockCursor, start: int, stop: int, request: Request) -> list[memoryview]:
        """Bytes [start, stop), `stop` at most the object's size. `cursor`: the handle's.

        Raises:
            WouldBlock. HeadraceError: a read failed; ChangedError: another version came. InterruptedError: the caller
            has to stop waiting.
        """
        ahead = cursor.read(start, stop - start)
        self._read_ahead(ahead)
        spans = cut(start, stop, self._block, aligned=True)
        views = [self._part(low // self._block, low, high, request, forward=bool(ahead)) for low, high in spans]
        if ahead:
            self._drop_passed(cursor.front)
        return views

    def close(self) -> None:
        """No handle is left: drop what is held. What has come is still written."""
        with self._lock:
            self._closed = True
            for index in list(self._chunks):
                self._drop(index)
            self._pieces.clear()
            idle = self._writes == 0
        if idle and self._entry is not None:
            self._entry.close()

    def _part(self, index: int, start: int, stop: int, request: Request, *, forward: bool) -> memoryview:
        base = index * self._block
        chunk = self._chunks.get(index)
        if chunk is not None:
            if not chunk.pending.here:
                request.must_wait()
            return self._data(chunk, index, request)[start - base : stop - base]
        kept = self._kept(start, stop)
        if kept is not None:
            return kept
        request.must_wait()
        if not forward:
            self._misses[index] += 1
        if forward or self._misses[index] >= _PROMOTE:
            chunk = self._ask(index, demand=True)
            if chunk is not None:
                return self._data(chunk, index, request)[start - base : stop - base]
        return self._piece(start, stop, request)

    def _kept(self, start: int, stop: int) -> memoryview | None:
        piece = start // _PIECE
        view = self._pieces.get(piece)
        if view is not None and stop <= piece * _PIECE + len(view):
            return view[start - piece * _PIECE : stop - piece * _PIECE]
        return self._entry.read(start, stop) if self._entry is not None else None

    def _piece(self, start: int, stop: int, request: Request) -> memoryview:
        low = start // _PIECE * _PIECE
        high = min(max(low + _PIECE, (stop + _PIECE - 1) // _PIECE * _PIECE), self._info.size)
        read = Read(self._store, self._info.key, start=low, stop=high)
        blob = self._streams.fetcher.start([read]).blob(request.check)
        self._check_version(blob)
        data = blob.data
        if len(data) <= _PIECE:
            with self._lock:
                self._pieces[low // _PIECE] = data
                while len(self._pieces) > _MOST_PIECES:
                    self._pieces.popitem(last=False)
        return data[start - low : stop - low]

    def _read_ahead(self, blocks: range) -> None:
        for index in blocks:
            if index not in self._chunks and not self._is_here(index) and self._ask(index, demand=False) is None:
                return

    def _is_here(self, index: int) -> bool:
        if self._entry is None:
            return False
        start = index * self._block
        return not self._entry.missing(start, min(start + self._block, self._info.size))

    def _ask(self, index: int, *, demand: bool) -> _StreamChunk | None:
        """Begin to fetch a block; None when there is no room for it in memory."""
        start = index * self._block
        stop = min(start + self._block, self._info.size)
        with self._lock:
            known = self._chunks.get(index)
            if known is not None:
                return known
            if self._closed or not self._streams.budget.take(stop - start, demand=demand):
                return None
            read = Read(self._store, self._info.key, start=start, stop=stop, tag=0)
            chunk = _StreamChunk(self._streams.fetcher.pending(1, read.path), stop - start)
            self._chunks[index] = chunk
        # Without its size and version the read goes past the cache: the block is written from here.
        chunk.pending.ticket = self._streams.fetcher.submit(
            [read], lambda read, result: self._came(index, chunk, read, result), demand=demand
        )
        return chunk

    def _came(self, index: int, chunk: _StreamChunk, read: Read, result: Blob | HeadraceError) -> None:
        """On a fetch thread. The writer holds on to the block before a reader can pass it."""
        with self._lock:
            keep = (
                self._entry is not None
                and isinstance(result, Blob)
                and result.info.version == self._info.version
                and chunk.holders > 0
            )
            if keep:
                chunk.holders += 1
                self._writes += 1
            elif isinstance(result, HeadraceError) and self._chunks.get(index) is chunk:
                self._drop(index)
        chunk.pending.deliver(read, result)
        if keep and isinstance(result, Blob):
            self._streams.writers.add(lambda: self._write(index, chunk, result.data))

    def _write(self, index: int, chunk: _StreamChunk, data: memoryview) -> None:
        entry = self._entry
        assert entry is not None
        try:
            entry.write(index * self._block, data)
        finally:
            with self._lock:
                self._let_go(chunk)
                self._writes -= 1
                last = self._closed and self._writes == 0
            if last:
                entry.close()

    def _drop_passed(self, front: int) -> None:
        if len(self._chunks) < 2:
            return
        with self._lock:
            for index, chunk in list(self._chunks.items()):
                if index < front - 1 and chunk.holders == 1 and chunk.pending.here:
                    self._drop(index)

    def _drop(self, index: int) -> None:
        chunk = self._chunks.pop(index, None)
        if chunk is not None:
            chunk.pending.cancel()
            self._let_go(chunk)

    def _let_go(self, chunk: _StreamChunk) -> None:
        chunk.holders -= 1
        if chunk.holders == 0:
            self._streams.budget.give(chunk.size)

    def _data(self, chunk: _StreamChunk, index: int, request: Request) -> memoryview:
        blob = chunk.pending.blob(request.check, shared=True)
        try:
            self._check_version(blob)
        except ChangedError:
            with self._lock:
                if self._chunks.get(index) is chunk:
                    self._drop(index)
            raise
        return blob.data

    def _check_version(self, blob: Blob) -> None:
        if blob.info.version != self._info.version:
            path = f"{self._store.url}/{self._info.key}"
            raise ChangedError(f"has changed: its version is {blob.info.version}, not {self._info.version}", path=path)


class ObjectStreams:
    """The streams of a mount, by node. Any thread."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.budget = ByteBudget(max(fetcher.settings.fetch.memory // 2, 8 << 20))
        self.writers = Crew("mount-fill", by_cores(1 / 4, _LEAST_WRITERS, _MOST_WRITERS))
        self._lock = threading.Lock()
        self._by_node: dict[int, ObjectStream] = {}

    def open(self, node: int, store: Store, info: ObjectInfo, entry: BlockEntry | None) -> ObjectStream:
        """The node's stream, used once more; takes `entry` over."""
        with self._lock:
            stream = self._by_node.get(node)
            if stream is None:
                stream = ObjectStream(self, store, info, entry, self.fetcher.settings.cache.block)
                self._by_node[node] = stream
                entry = None
            stream.users += 1
        if entry is not None:
            entry.close()
        return stream

    def release(self, node: int) -> None:
        """One use less; the last one closes it."""
        with self._lock:
            stream = self._by_node.get(node)
            if stream is None:
                return
            stream.users -= 1
            if stream.users > 0:
                return
            del self._by_node[node]
        stream.close()

    def __len__(self) -> int:
        return len(self._by_node)

    def close(self) -> None:
        """Stop the threads."""
        self.writers.close(drop=True)
