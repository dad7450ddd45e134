"""The room that buffers of threads that send may take."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager


class Room:
    """Bytes that may be held at once; whoever wants more waits. Any thread.

    One that wants more than there is at all gets it once nobody else holds any.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._held = 0
        self._changed = threading.Condition()

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    @contextmanager
    def hold(self, size: int) -> Generator[None]:
        """Hold that many bytes inside."""
        size = min(size, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self._held + size <= self.size)
            self._held += size
        try:
            yield
        finally:
            with self._changed:
                self._held -= size
                self._changed.notify_all()
