"""Who sends: a few threads for what is small, one for what is big, and the way their answers come back."""

from __future__ import annotations

import queue
from collections.abc import Callable

from headrace.base.threads import Crew

_THREADS, _AHEAD = 4, 64
"""Threads for small files, which wait for answers and take hardly a core; and files given to them ahead."""
_BIG_BYTES = 16 << 20
"""Files from one part on: the uploader sends their parts side by side by itself."""


class Lanes:
    """What is small does not wait behind what is big. `under_way`: tasks whose answers have not been heard.

    One thread adds and hears; `wake` is called, on others, when there is something to hear.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._small = Crew("sync", _THREADS)
        self._big = Crew("sync-big", 1)
        self._counts = {True: 0, False: 0}
        self._answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    @property
    def under_way(self) -> int:
        return self._counts[True] + self._counts[False]

    def room(self, size: int) -> bool:
        """Whether a file of this size should be added now; when not, an answer will come."""
        big = size >= _BIG_BYTES
        return self._counts[big] < (1 if big else _AHEAD)

    def add(self, size: int, work: Callable[[], Callable[[], None]]) -> None:
        """Do some work on a lane's thread; what it returns is called in `hear`. It must not raise."""
        big = size >= _BIG_BYTES
        self._counts[big] += 1

        def task() -> None:
            answer = work()

            def heard() -> None:
                self._counts[big] -= 1
                answer()

            self.tell(heard)

        (self._big if big else self._small).add(task)

    def tell(self, answer: Callable[[], None]) -> None:
        """Have something called in `hear`. Any thread."""
        self._answers.put(answer)
        self._wake()

    def hear(self) -> None:
        """Call what has come back."""
        while True:
            try:
                self._answers.get_nowait()()
            except queue.Empty:
                return

    def close(self) -> None:
        """End the threads; what is under way is waited for two seconds each."""
        self._small.close()
        self._big.close()
