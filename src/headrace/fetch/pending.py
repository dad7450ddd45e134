"""Reads under way together, and the wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from headrace.base.errors import DeadlineError, HeadraceError
from headrace.fetch.read import Read, Ticket
from headrace.store.protocol import Blob

_Hurry: TypeAlias = Callable[[], AbstractContextManager[None]]
_GRACE_S = 5.0
"""Past the deadline of the reads themselves, which end with an error of their own then."""


class Pending:
    """Reads under way together, from `Fetcher.start`. Any number of threads may wait for them; any may cancel."""

    __slots__ = ("_hurry", "_left", "_over", "_path", "_results", "_seconds", "ticket")

    def __init__(self, count: int, path: str, seconds: float, hurry: _Hurry) -> None:
        """`path`: of the first, for messages. `seconds`: of the fetcher's deadline. `hurry`: entered while waiting."""
        self.ticket: Ticket | None = None
        self._results: list[Blob | HeadraceError | None] = [None] * count
        self._left = [None] * count
        self._over = threading.Event()
        self._path, self._seconds, self._hurry = path, seconds, hurry
        if not count:
            self._over.set()

    def deliver(self, read: Read, result: Blob | HeadraceError) -> None:
        """The reads' sink: the tag of each is its place."""
        self._results[read.tag] = result
        self._left.pop()  # atomic, so that no lock is needed
        if not self._left:
            self._over.set()

    def cancel(self) -> None:
        """Drop what has not come."""
        if self.ticket is not None:
            self.ticket.cancel()

    def wait(self) -> list[Blob | HeadraceError]:
        """All results, in the reads' order. What interrupts the wait cancels the reads.

        Raises:
            DeadlineError: they did not all come in time.
        """
        try:
            if not self._over.is_set():
                with self._hurry():
                    in_time = self._over.wait(self._seconds + _GRACE_S)
                if not in_time:
                    raise DeadlineError(f"not read within {self._seconds:g} s", path=self._path)
        except BaseException:
            self.cancel()
            raise
        return [result for result in self._results if result is not None]

    def blob(self) -> Blob:
        """The bytes of the only read. Raises what it came to, and as `wait`."""
        [result] = self.wait()
        if isinstance(result, HeadraceError):
            raise result
        return result
