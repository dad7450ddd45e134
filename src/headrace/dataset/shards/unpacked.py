"""What compressed shards decompress to, kept for the reads that want pieces of it."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from headrace.base.errors import CorruptError, DeadlineError, HeadraceError
from headrace.base.memory import take
from headrace.base.metrics import Metrics
from headrace.base.settings import Settings
from headrace.dataset.shards.compression import decompressed
from headrace.dataset.shards.index import Packed, Shard
from headrace.dataset.source import AGAIN
from headrace.fetch import Fetcher, Read
from headrace.store.protocol import Blob, Store

_PIECE = 4 << 20
_AHEAD = 3
_GRACE_S = 5.0


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
    raise CorruptError(f"does not decompress to {packed.size:,} bytes any more", path=path, hint=AGAIN)


def _pieces(fetcher: Fetcher, store: Store, shard: Shard) -> Iterator[memoryview]:
    under_way: deque[SimpleQueue[Blob | HeadraceError]] = deque()
    wait = fetcher.settings.fetch.deadline + _GRACE_S
    for start in range(0, shard.size + _AHEAD * _PIECE, _PIECE):
        if start < shard.size:
            answer: SimpleQueue[Blob | HeadraceError] = SimpleQueue()
            # Without the size, the read is not for the cache: that has what comes out.
            read = Read(store, shard.key, None, shard.version, start, min(start + _PIECE, shard.size))
            fetcher.submit([read], lambda _, result, answer=answer: answer.put(result))
            under_way.append(answer)
        if under_way and (len(under_way) > _AHEAD or start >= shard.size):
            try:
                result = under_way.popleft().get(timeout=wait)
            except Empty:
                raise DeadlineError(f"not read within {wait:g} s", path=f"{store.url}/{shard.key}") from None
            if isinstance(result, HeadraceError):
                raise result
            yield result.data
