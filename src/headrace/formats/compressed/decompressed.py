"""What compressed shards decompress to, kept for the reads that want pieces of it."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from headrace.base.errors import CorruptError
from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.catalog import LIST_AGAIN
from headrace.fetch import Fetcher, Read
from headrace.fetch.readahead import cut
from headrace.formats.codecs.compression import decompressed
from headrace.formats.index.index_job import Packed, Shard
from headrace.store.protocol import Store

_PIECE = 4 << 20  # bytes of a shard in one request
_AHEAD = 3  # requests ahead of what is decompressed, 12 MiB in memory


class Kept:
    """Whole decompressed shards, those used last: `keep` bytes, those being made included, and always one. Any thread.

    While somebody waits for a shard that is there, it stays there: two that do not fit together are taken in turns.
    """

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._changed = threading.Condition()
        self._held: OrderedDict[str, memoryview] = OrderedDict()
        self._making: dict[str, int] = {}
        self._wanted: Counter[str] = Counter()

    def get(self, key: str, size: int, make: Callable[[], memoryview]) -> memoryview:
        """The shard, by `make` where it is not kept: on one thread, while others that want it wait.

        Raises as `make`.
        """
        with self._changed:
            self._wanted[key] += 1
            try:
                while (found := self._held.get(key)) is None and (key in self._making or not self._fits(size)):
                    self._changed.wait()
                if found is not None:
                    self._held.move_to_end(key)
                    return found
                self._making[key] = size
            finally:
                self._wanted[key] -= 1
                if not self._wanted[key]:
                    del self._wanted[key]
                    self._changed.notify_all()
        try:
            made = make()
            with self._changed:
                self._held[key] = made
            return made
        finally:
            with self._changed:
                del self._making[key]
                self._changed.notify_all()

    def _fits(self, size: int) -> bool:
        """Whether there is room for so much more, once what nobody waits for has made way."""
        idle = [key for key in self._held if key not in self._wanted]
        busy = sum(self._making.values()) + sum(len(self._held[key]) for key in self._held if key in self._wanted)
        if busy and busy + size > self._keep:
            return False
        left = busy + size + sum(len(self._held[key]) for key in idle)
        for key in idle:
            if left <= self._keep:
                break
            left -= len(self._held.pop(key))
        return True


def unpacked(settings: Settings, store: Store, shard: Shard, packed: Packed) -> memoryview:
    """Fetch and decompress a shard, some reads ahead of the decompressor.

    Raises:
        ChangedError: it is no longer the version that was indexed. CorruptError. Any store error.
    """
    path = f"{store.url}/{shard.key}"
    data = take(packed.size)
    at = 0
    fetcher = Fetcher(settings, None, Metrics())
    try:
        for chunk in decompressed(packed.codec, _pieces(fetcher, store, shard), path):
            if at + len(chunk) > packed.size:
                break
            data[at : at + len(chunk)] = chunk
            at += len(chunk)
        else:
            if at == packed.size:
                return data
    finally:
        fetcher.close()
    raise CorruptError(f"does not decompress to {packed.size:,} bytes any more", path=path, hint=LIST_AGAIN)


def _pieces(fetcher: Fetcher, store: Store, shard: Shard) -> Iterator[memoryview]:
    # Without the size, a read is not for the cache: that has what comes out.
    reads = (Read(store, shard.key, None, shard.version, *span) for span in cut(0, shard.size, _PIECE))
    return (blob.data for blob in fetcher.in_order(reads, ahead=_AHEAD))
