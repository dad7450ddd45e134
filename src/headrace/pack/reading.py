"""Reading shards back: their digest, from what the store gives now."""

from __future__ import annotations

import threading

import xxhash

from headrace.base.errors import TryAgainError
from headrace.fetch import Fetcher, Read
from headrace.store.protocol import ObjectInfo, Store

_PIECE = 16 << 20  # bytes read at a time


def digest_of(fetcher: Fetcher, store: Store, info: ObjectInfo, stop: threading.Event) -> str:
    """XXH3 (128 bits, hexadecimal) of an object, read in pieces of 16 MiB.

    Raises:
        ChangedError: it is no longer the version that `info` names. TryAgainError: also when stopped. As `Store.get`.
    """
    digest = xxhash.xxh3_128()
    for start in range(0, info.size, _PIECE):
        if stop.is_set():
            raise TryAgainError("stopped")
        stop_at = min(start + _PIECE, info.size)
        digest.update(fetcher.get(Read(store, info.key, info.size, info.version, start, stop_at)).data)
    return digest.hexdigest()
