"""What is asked of the fetch room, and the handle on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from headrace.base.account import account
from headrace.base.errors import HeadraceError
from headrace.store.protocol import Blob, Store

UNKNOWN_BYTES = 1 << 20
"""What a read counts for in the byte budget while nobody knows its size: most objects are smaller."""
_tuple = tuple.__new__  # a NamedTuple without the Python frame of its constructor


class Read(NamedTuple):
    """Bytes [start, stop) of one object version.

    `size`: the object's size in bytes, None where unknown. `version`: the ETag (or `ObjectInfo.version`) it must have,
    None for whatever is there now. Only a read with both goes through the cache. `stop` None: to the end.
    `tag` is the caller's own and comes back untouched.
    """

    store: Store
    key: str
    size: int | None = None
    version: str | None = None
    start: int = 0
    stop: int | None = None
    tag: Any = None

    @property
    def whole(self) -> bool:
        """Whether this is all of the object."""
        return self.start == 0 and (self.stop is None or (self.size is not None and self.stop >= self.size))

    @property
    def path(self) -> str:
        """The object's URL, for messages."""
        return f"{self.store.url}/{self.key}"

    def length(self, unknown: int = 0) -> int:
        """Bytes this read returns, `unknown` where the object's size is not known."""
        stop = self.stop if self.size is None else min(self.size, self.size if self.stop is None else self.stop)
        return unknown if stop is None else max(stop - self.start, 0)


Sink: TypeAlias = Callable[[Read, "Blob | HeadraceError"], None]
"""Takes one finished read. Called once for each read not cancelled, on a fetch thread: be quick, never raise."""


def sealed(blob: Blob) -> Blob:
    """The same, read-only: what somebody changed would be written into the cache, or be somebody else's."""
    more = tuple([one.toreadonly() for one in blob.more]) if blob.more else ()
    return _tuple(Blob, (memoryview(blob.data).toreadonly(), blob.info, more))


class Ticket:
    """A handle on submitted reads. Any thread may cancel."""

    __slots__ = ("_cancelled", "account")

    def __init__(self) -> None:
        self._cancelled = False
        self.account = account()
        """On which the requests are that they take."""

    @property
    def cancelled(self) -> bool:
        """Nobody wants them any more. Once true, always true."""
        return self._cancelled

    def cancel(self) -> None:
        """Drop what has not finished. Sinks of cancelled reads may still be called if they are finishing right now."""
        self._cancelled = True
