"""What the store has told of objects lately: trusted for ``cache.ttl``, unless a process of this gateway wrote them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from headrace.gateway.changes import Changes
from headrace.store.protocol import ObjectInfo

_MOST = 100_000
"""Objects whose metadata are remembered: some hundred bytes each."""
Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One object. `told`: headers with its metadata and content type, None where only a GET was made. `until`:
    monotonic seconds. `number`: see `Changes`, from before the store was asked.
    """

    info: ObjectInfo
    told: Headers | None
    until: float
    number: bytes


class Known:
    """Those of one process. Any thread."""

    def __init__(self, changes: Changes, ttl: float) -> None:
        self._changes = changes
        self._ttl = ttl
        self._seen: OrderedDict[tuple[str, str], Seen] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, bucket: str, key: str) -> Seen | None:
        """What may be trusted."""
        seen = self._seen.get((bucket, key))
        if seen is None or seen.until <= time.monotonic() or seen.number != self._changes.number(bucket, key):
            return None
        return seen

    def number(self, bucket: str, key: str) -> bytes:
        """Ask for it before the store is asked."""
        return self._changes.number(bucket, key)

    def put(self, bucket: str, key: str, info: ObjectInfo, told: Headers | None, number: bytes) -> Seen:
        """The store has told this."""
        seen = Seen(info, told, time.monotonic() + self._ttl, number)
        with self._lock:
            self._seen[bucket, key] = seen
            self._seen.move_to_end((bucket, key))
            while len(self._seen) > _MOST:
                self._seen.popitem(last=False)
        return seen
