"""An answer on its way: from memory, from a file by the kernel, or as its bytes come."""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from headrace.http_server.messages import Body, BytesLike, FileSlice, Stream

_AT_ONCE = 64
"""Pieces in one system call."""
_TURN = 8 * 1024 * 1024
"""Bytes of one file before other connections have their turn."""


class BrokenAnswer(Exception):  # noqa: N818
    """The rest of an answer cannot be had: the connection is cut, so that nobody takes a part for the whole."""


class Outgoing(Protocol):
    """One answer. `send` and `close` on the loop."""

    blocked: bool
    """The socket takes no more for now; else the bytes are not there yet."""

    def send(self, sock: socket.socket) -> bool:
        """Send what can be sent at once; True when all has been. Raises OSError or BrokenAnswer."""
        ...

    def close(self) -> None:
        """Let go of what it holds, sent or not. Once."""
        ...


class Pieces:
    """Bytes in memory."""

    def __init__(self, pieces: Sequence[BytesLike]) -> None:
        self._pieces = deque(memoryview(piece).cast("B") for piece in pieces if len(piece))
        self.blocked = False

    def send(self, sock: socket.socket) -> bool:
        """See `Outgoing`."""
        while self._pieces:
            try:
                sent = sock.sendmsg([self._pieces[i] for i in range(min(len(self._pieces), _AT_ONCE))])
            except BlockingIOError:
                self.blocked = True
                return False
            self._drop(sent)
        return True

    def _drop(self, sent: int) -> None:
        pieces = self._pieces
        while pieces and sent >= len(pieces[0]):
            sent -= len(pieces.popleft())
        if sent:
            pieces[0] = pieces[0][sent:]

    def close(self) -> None:
        """See `Outgoing`."""
        self._pieces.clear()


class FromFile:
    """A head, then bytes of a file that the kernel sends."""

    def __init__(self, head: bytes, part: FileSlice) -> None:
        self._head = memoryview(head)
        self._part = part
        self._at, self._left = part.offset, part.length
        self.blocked = False

    def send(self, sock: socket.socket) -> bool:
        """See `Outgoing`."""
        try:
            while self._head:
                self._head = self._head[sock.send(self._head, socket.MSG_MORE if self._left else 0) :]
            turn = _TURN
            while self._left:
                if turn <= 0:
                    self.blocked = True
                    return False
                sent = os.sendfile(sock.fileno(), self._part.fd, self._at, self._left)
                if sent == 0:
                    raise BrokenAnswer("a file became shorter while it was sent")
                self._at += sent
                self._left -= sent
                turn -= sent
        except BlockingIOError:
            self.blocked = True
            return False
        return True

    def close(self) -> None:
        """See `Outgoing`."""
        if self._part.release is not None:
            self._part.release()


class FromStream:
    """A head, then pieces that a worker thread pulls, at most `ahead` bytes (and one piece) before the client.

    Args:
        chunked: each piece in HTTP's chunks, and the last one after them.
        work: runs a task on a worker thread. wake: from any thread, has the loop call `send` again.
    """

    def __init__(
        self, head: bytes, stream: Stream, *, chunked: bool, ahead: int,
        work: Callable[[Callable[[], None]], None], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        self._pieces: Iterator[BytesLike] | None = stream.pieces
        self._left = stream.length
        self._chunked, self._ahead = chunked, ahead
        self._work, self._wake = work, wake
        self._ready: deque[tuple[int, Sequence[BytesLike]]] = deque([(0, [head])])
        self._held = 0
        self._lock = threading.Lock()
        self._pulling = True
        self._ended = self._cancelled = False
        self._failure: BaseException | None = None
        self._now: Pieces | None = None
        self._size = 0
        self.blocked = False
        work(self._pull)

    def send(self, sock: socket.socket) -> bool:
        """See `Outgoing`."""
        self.blocked = False
        while True:
            if self._now is None:
                with self._lock:
                    ended, failure = self._ended, self._failure
                    if not self._ready:
                        break
                    self._size, pieces = self._ready.popleft()
                self._now = Pieces(pieces)
            if not self._now.send(sock):
                self.blocked = True
                return False
            self._now = None
            self._let_go()
        if failure is not None:
            raise BrokenAnswer(str(failure)) from failure
        return ended

    def _let_go(self) -> None:
        with self._lock:
            self._held -= self._size
            more = not self._pulling and not self._ended and self._failure is None and self._held <= self._ahead // 2
            self._pulling = self._pulling or more
        if more:
            self._work(self._pull)

    def _pull(self) -> None:
        """On a worker thread, until there is enough."""
        try:
            while self._take():
                self._wake()
        except BaseException as error:
            with self._lock:
                self._failure = error
        with self._lock:
            over = self._cancelled or self._ended or self._failure is not None
            again = not over and self._held <= self._ahead // 2  # what was sent since saw a pull under way, this one
            self._pulling = over or again
        if over:
            self._finish()
        elif again:
            self._work(self._pull)
        self._wake()

    def _take(self) -> bool:
        """One piece more; False when there are enough, or no more."""
        pieces = self._pieces
        if self._cancelled or pieces is None:
            return False
        piece = next(pieces, None)
        if piece is None:
            if self._left:
                raise BrokenAnswer("an answer ended before its length")
            with self._lock:
                self._ready.append((0, [b"0\r\n\r\n"] if self._chunked else []))
                self._ended = True
            return False
        size = len(memoryview(piece).cast("B"))
        if self._left is not None:
            self._left -= size
            if self._left < 0:
                raise BrokenAnswer("an answer is longer than its length")
        with self._lock:
            if size:
                self._ready.append((size, [b"%x\r\n" % size, piece, b"\r\n"] if self._chunked else [piece]))
            self._held += size
            return self._held < self._ahead

    def close(self) -> None:
        """See `Outgoing`."""
        with self._lock:
            self._cancelled = True
            self._ready.clear()
            self._now = None
            finish = not self._pulling and self._pieces is not None
        if finish:
            self._work(self._finish)

    def _finish(self) -> None:
        pieces, self._pieces = self._pieces, None
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


def length(body: Body) -> int | None:
    """Of a body, in bytes; None when it is not known."""
    if isinstance(body, (FileSlice, Stream)):
        return body.length
    if isinstance(body, (bytes, bytearray)):
        return len(body)
    if isinstance(body, memoryview):
        return body.nbytes
    return sum(memoryview(piece).nbytes for piece in body)
