"""What an application is given and gives back: headers, answers, and how it wants a request's body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Pairs: TypeAlias = "Sequence[tuple[str, str]]"
BytesLike: TypeAlias = "bytes | bytearray | memoryview"


class Headers:
    """Of a request: in order, repeated ones kept, names in lower case. Bytes above 127 are as Latin-1 reads them."""

    __slots__ = ("raw",)

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self.raw = raw

    def get(self, name: str, default: str = "") -> str:
        """The first value of that name, in any case."""
        wanted = name.lower().encode("latin-1")
        for key, value in self.raw:
            if key == wanted:
                return value.decode("latin-1")
        return default

    def all(self, name: str) -> list[str]:
        """Every value of that name, in order."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for key, value in self.raw if key == wanted]

    def items(self) -> list[tuple[str, str]]:
        """All, names in lower case."""
        return [(key.decode("latin-1"), value.decode("latin-1")) for key, value in self.raw]

    def __contains__(self, name: str) -> bool:
        wanted = name.lower().encode("latin-1")
        return any(key == wanted for key, _ in self.raw)

    def __len__(self) -> int:
        return len(self.raw)


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of an open file, sent by the kernel. `release` is called once, on the loop, when they are no longer needed.

    A file that turns out shorter cuts the connection: the client must not take what it got for the whole.
    """

    fd: int
    offset: int
    length: int
    release: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Stream:
    """Bytes that come while they are sent. `pieces` is pulled on one of the server's threads, never by two at once,
    and closed, where it can be, when all is sent or the client has gone.

    An exception of it, or another number of bytes than `length`, cuts the connection. Without a length the answer is
    chunked.
    """

    pieces: Iterator[BytesLike]
    length: int | None = None


Body: TypeAlias = "BytesLike | Sequence[BytesLike] | FileSlice | Stream"


@dataclass(slots=True)
class Response:
    """An answer. ``Date``, ``Content-Length``, ``Transfer-Encoding`` and ``Connection`` are the server's to write; only
    an answer to HEAD without a body may give ``Content-Length``.

    `close`: the connection ends with it.
    """

    status: int
    headers: Pairs = ()
    body: Body = b""
    close: bool = False

    def release(self) -> None:
        """Let go of what the body holds, unsent. A `Stream` is closed by whoever pulls it."""
        if isinstance(self.body, FileSlice) and self.body.release is not None:
            self.body.release()


@dataclass(frozen=True, slots=True)
class Whole:
    """Gather the body first: up to `limit` bytes, by default the server's."""

    limit: int | None = None
