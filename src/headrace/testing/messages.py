"""HTTP/1.1 messages, read whole: enough for a proxy between an object store's client and its server (RFC 9112)."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import parse_qsl, unquote

_MOST_HEAD = 64 * 1024  # bytes of a line


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer: the first line, the header lines as sent, the whole body without transfer coding."""

    first: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""

    def get(self, name: str) -> str | None:
        """The first header of this name, any case."""
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for key, value in self.headers if key.lower() == wanted), None)

    def without(self, *names: str) -> Message:
        """The same message less these headers."""
        gone = {name.lower().encode() for name in names}
        return Message(self.first, tuple(h for h in self.headers if h[0].lower() not in gone), self.body)

    def having(self, name: str, value: str) -> Message:
        """The same message with this header, in place of any of that name."""
        rest = self.without(name)
        return Message(rest.first, (*rest.headers, (name.encode(), value.encode("latin-1"))), rest.body)

    def holding(self, body: bytes) -> Message:
        """The same message with another body and the Content-Length that goes with it."""
        bare = self.without("content-length", "transfer-encoding")
        length = (b"Content-Length", str(len(body)).encode())
        return Message(bare.first, (*bare.headers, length), body)

    def head(self) -> bytes:
        """First line and headers as bytes, ending in the empty line."""
        lines = (self.first, *(key + b": " + value for key, value in self.headers), b"", b"")
        return b"\r\n".join(lines)

    @property
    def method(self) -> str:
        return self.first.split(b" ", 1)[0].decode()

    @property
    def status(self) -> int:
        return int(self.first.split(b" ", 2)[1])

    @property
    def path(self) -> str:
        """The request's path, decoded, without the leading slash and the query."""
        raw = self.first.split(b" ")[1].partition(b"?")[0]
        return unquote(raw.decode("latin-1"), errors="surrogateescape").removeprefix("/")

    @property
    def query(self) -> dict[str, str]:
        raw = self.first.split(b" ")[1].partition(b"?")[2]
        return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True))


@dataclass(slots=True)
class Incoming:
    """One direction of a connection. `head` blocks for the next message, `body` for the rest of it."""

    stream: BinaryIO | io.BufferedReader
    _chunk: int = field(default=1 << 20)

    def head(self) -> Message | None:
        """First line and headers; None at the end of the stream.

        Raises:
            ValueError: not HTTP. ConnectionError: ended in the middle.
        """
        first = self.stream.readline(_MOST_HEAD)
        if not first:
            return None
        headers: list[tuple[bytes, bytes]] = []
        while (line := self.stream.readline(_MOST_HEAD)) not in (b"\r\n", b"\n"):
            key, colon, value = line.partition(b":")
            if not colon:
                raise ConnectionError("the head of a message ended early") if not line else ValueError(repr(line[:80]))
            headers.append((key, value.strip()))
        return Message(first.rstrip(b"\r\n"), tuple(headers))

    def body(self, head: Message, *, until_close: bool = False) -> Message:
        """`head` with its body. `until_close`: a body of unstated length lasts to the end of the stream (answers)."""
        if (head.get("transfer-encoding") or "").lower().endswith("chunked"):
            return head.holding(self._chunks())
        length = head.get("content-length")
        if length is not None:
            return Message(head.first, head.headers, self._exactly(int(length)))
        return head.holding(self.stream.read()) if until_close else head

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while size := int(self.stream.readline(_MOST_HEAD).partition(b";")[0], 16):
            parts.append(self._exactly(size))
            self.stream.readline(_MOST_HEAD)
        while self.stream.readline(_MOST_HEAD) not in (b"\r\n", b"\n", b""):
            pass  # trailers
        return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        data = self.stream.read(size)
        if len(data) != size:
            raise ConnectionError(f"a body of {size} bytes ended after {len(data)}")
        return data


def answer(status: int, reason: str, headers: Mapping[str, str], body: bytes = b"") -> Message:
    """An answer of our own, with its Content-Length."""
    lines = tuple((key.encode(), value.encode("latin-1")) for key, value in headers.items())
    return Message(f"HTTP/1.1 {status} {reason}".encode(), lines).holding(body)


def s3_error(status: int, reason: str, code: str) -> Message:
    """An error as S3 words it (docs.aws.amazon.com, S3 API reference, "Error responses")."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{reason}</Message></Error>'
    return answer(status, reason, {"Content-Type": "application/xml"}, body.encode())
