"""Names that the kernel keeps as absent for a while, so that a refresh can have it look them up again."""

from __future__ import annotations

import threading
import time
from typing import Final

_MOST: Final = 1 << 15
"""Most names that the kernel may keep as absent at a time, 200 bytes of ours each. It looks others up each time."""


class NegativeCache:
    """Absent names by the node id of their folder, each until the kernel's time for it is over. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._until: dict[tuple[int, bytes], float] = {}

    def note(self, folder: int, name: bytes, seconds: float) -> float:
        """The kernel is about to hear that there is no such name in the folder of that node id.

        Returns:
            For how many seconds it may keep that: `seconds`, or 0 where the cache is full.
        """
        if seconds <= 0.0:
            return 0.0
        now = time.monotonic()
        key = (folder, name)
        with self._lock:
            until = self._until
            until.pop(key, None)
            while until and until[first := next(iter(until))] <= now:
                del until[first]
            if len(until) >= _MOST:
                return 0.0
            until[key] = now + seconds
        return seconds

    def take(self) -> list[tuple[int, bytes]]:
        """All names, with the node ids of their folders; the cache is empty then."""
        with self._lock:
            names = list(self._until)
            self._until.clear()
        return names
