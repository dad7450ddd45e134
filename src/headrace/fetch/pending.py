"""Reads under way together, and the wait for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

from headrace.base.errors import DeadlineError, HeadraceError
from headrace.fetch.read import Read, Ticket
from headrace.store.protocol import Blob

_Hurry: TypeAlias = Callable[[], AbstractContextManager[None]]
_Look: TypeAlias = Callable[[], None]
_GRACE_S = 5.0
"""Past the deadline of the reads themselves, which end with an error of their own then."""
_LOOK_S = 0.05
"""How soon somebody who is killed stops waiting, too short a time to be felt."""


class Pending:
    """Reads under way together, from `Fetcher.start` or `Fetcher.pending`. Any number of threads may wait for them, and
    any may cancel.
    """

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

    @property
    def here(self) -> bool:
        """Whether all have come, none as an error: then nobody waits for them."""
        return self._over.is_set() and not any(isinstance(result, HeadraceError) for result in self._results)

    def cancel(self) -> None:
        """Drop what has not come."""
        if self.ticket is not None:
            self.ticket.cancel()

    def wait(self, look: _Look | None = None, *, shared: bool = False) -> list[Blob | HeadraceError]:
        """All results, in the reads' order. What interrupts the wait cancels the reads.

        `look`: called 20 times a second meanwhile; what it raises interrupts the wait. `shared`: others wait for these
        reads too, so that no interruption cancels them.

        Raises:
            DeadlineError: they did not all come in time. What `look` raises.
        """
        try:
            if not self._over.is_set():
                with self._hurry():
                    self._wait(look)
        except BaseException:
            if not shared:
                self.cancel()
            raise
        return [result for result in self._results if result is not None]

    def blob(self, look: _Look | None = None, *, shared: bool = False) -> Blob:
        """The bytes of the only read. Raises what it came to, and as `wait`."""
        [result] = self.wait(look, shared=shared)
        if isinstance(result, HeadraceError):
            raise result
        return result

    def _wait(self, look: _Look | None) -> None:
        until = time.monotonic() + self._seconds + _GRACE_S
        while not self._over.wait(until - time.monotonic() if look is None else _LOOK_S):
            if look is not None:
                look()
            if time.monotonic() > until:
                hint = "raise fetch.deadline if the store is slow"
                raise DeadlineError(f"not read within {self._seconds:g} s", path=self._path, hint=hint)
