"""One budget of bytes for everything a process has in flight. Demand outranks speculation."""

from __future__ import annotations

import threading


class Budget:
    """Counts bytes. Any thread may take and give; nothing blocks here: who is refused asks again later.

    Speculation may use three quarters; one read larger than the whole budget is let through alone.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._lock = threading.Lock()

    def take(self, size: int, *, demand: bool = True) -> bool:
        """Take `size` bytes if they are there."""
        most = self.size if demand else self.size * 3 // 4
        with self._lock:
            if self.used and self.used + size > most:
                return False
            self.used += size
            return True

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self.used -= size
