"""A request's body, read by a thread while it comes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

from headrace.base.errors import TryAgainError, UnreachableError


class BodyReader:
    """Bytes of a body in order, at most `ahead` of them (and one receive more) not taken yet. One thread reads.

    Args:
        length: the whole body's bytes, None when it comes in chunks.
        ahead: bytes held before the socket waits.
        wanted: called from the reading thread: the body is being asked for, or has room again.
    """

    def __init__(self, length: int | None, ahead: int, wanted: Callable[[], None]) -> None:
        self.length = length
        self.received = 0
        self._ahead = ahead
        self._wanted = wanted
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._changed = threading.Condition()
        self._ended = False
        self._stalled = False
        self._failure: str | None = None
        self.asked = False

    def __iter__(self) -> Iterator[bytes]:
        """Pieces as they come, until the end. Raises as `read`."""
        while piece := self._next():
            yield piece

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer only at the body's end; all that is left with -1. Blocks.

        Raises:
            UnreachableError: the client has gone.
            TryAgainError: the body came too slowly, or broke the protocol.
        """
        pieces, have = list[bytes](), 0
        while (size < 0 or have < size) and (piece := self._next()):
            over = have + len(piece) - size if size >= 0 else 0
            if over > 0:
                self._return(piece[len(piece) - over :])
                piece = piece[: len(piece) - over]
            pieces.append(piece)
            have += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _next(self) -> bytes:
        if not self.asked:
            self.asked = True
            self._wanted()
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._ended or self._failure is not None)
            if self._failure is not None:
                raise (UnreachableError if self._failure == _GONE else TryAgainError)(self._failure)
            if not self._pieces:
                return b""
            piece = self._pieces.popleft()
            self._held -= len(piece)
            resume = self._stalled and self._held <= self._ahead // 2
            if resume:
                self._stalled = False
        if resume:
            self._wanted()
        return piece

    def _return(self, piece: bytes) -> None:
        with self._changed:
            self._pieces.appendleft(piece)
            self._held += len(piece)

    def feed(self, data: bytes) -> bool:
        """More has come; True: read no more until `wanted` is called. For the connection."""
        with self._changed:
            self._pieces.append(data)
            self._held += len(data)
            self.received += len(data)
            self._stalled = self._held >= self._ahead
            self._changed.notify()
            return self._stalled

    def end(self) -> None:
        """The body is complete. For the connection."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def fail(self, reason: str | None = None) -> None:
        """No more will come, `reason` or because the client has gone. For the connection."""
        with self._changed:
            if not self._ended and self._failure is None:
                self._failure = reason or _GONE
                self._pieces.clear()
                self._held = 0
                self._changed.notify()

    @property
    def complete(self) -> bool:
        """Whether all of it has come."""
        return self._ended

    @property
    def stalled(self) -> bool:
        """Whether it has no room for more."""
        return self._stalled


_GONE = "the client has gone"
