"""One request, and the place for its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote_to_bytes

from headrace.base.errors import InternalError
from headrace.http_server.messages import Headers, Response

if TYPE_CHECKING:
    from headrace.http_server.incoming import BodyReader


class Channel(Protocol):
    """Where an answer goes. Any thread."""

    def deliver(self, exchange: Exchange, response: Response) -> None:
        """Send it when its turn comes."""
        ...


class Exchange:
    """A request, and how it is answered. Any thread may read it, and `answer` it once.

    Attributes:
        method: as sent, in capitals. target: as sent. headers: see `Headers`.
        body: the whole body, where the application asked for that. stream: its reader, where it asked for that.
        peer: the client's address and port, or ``unix``. arrived: when the head was complete, monotonic seconds.
        gone: the client hung up, or was cut off; an answer goes nowhere.
    """

    __slots__ = (
        "_channel", "_leaving", "arrived", "body", "close", "gone", "headers", "method", "old", "peer", "response",
        "stream", "taken", "target",
    )  # fmt: skip

    def __init__(
        self, channel: Channel, method: str, target: bytes, headers: Headers, *, old: bool, close: bool,
        peer: str, arrived: float,
    ) -> None:  # fmt: skip
        self._channel = channel
        self._leaving: list[Callable[[], None]] | None = None
        self.method = method
        self.target = target
        self.headers = headers
        self.old = old
        self.close = close
        self.peer = peer
        self.arrived = arrived
        self.body: bytes = b""
        self.stream: BodyReader | None = None
        self.gone = False
        self.taken = False
        self.response: Response | None = None

    @property
    def raw_path(self) -> bytes:
        """The target's path as sent, without the query, and without scheme and host where it names them."""
        path = self.target.partition(b"?")[0]
        if path[:1] != b"/" and b"://" in path:
            path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
        return path

    @property
    def path(self) -> str:
        """The path, decoded once; bytes that are not UTF-8 as lone surrogates."""
        return unquote_to_bytes(self.raw_path).decode("utf-8", "surrogateescape")

    @property
    def query(self) -> str:
        """What follows the question mark, as sent."""
        return self.target.partition(b"?")[2].decode("latin-1")

    def answer(self, response: Response) -> None:
        """Answer it, once. Any thread; returns at once. After the client has gone it only lets go of the body.

        Raises:
            InternalError: it has been answered.
        """
        if self.taken:
            raise InternalError("a request was answered twice", path=self.path)
        self.taken = True
        self._channel.deliver(self, response)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Have `call` run, once, when the client hangs up before its answer is sent; at once if it has. It must return
        quickly: it runs on the loop, or here.
        """
        if self._leaving is None:
            self._leaving = []
        self._leaving.append(call)
        if self.gone:
            self.leave()

    def leave(self) -> None:
        """The client has gone. For the connection."""
        self.gone = True
        while self._leaving:
            try:
                call = self._leaving.pop()
            except IndexError:  # another thread took it
                return
            call()

    def __repr__(self) -> str:
        return f"<Exchange {self.method} {self.path!r}>"  # without the query, which may hold a signature
