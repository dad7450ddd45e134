"""Bodies in ``aws-chunked``: chunks with their signatures, and trailers, verified while they are read.

Source: Amazon S3 API Reference, "Signature Calculations: Transferring Payload in Multiple Chunks", with and without
trailing headers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator

from headrace.gateway.checksums import NAMES, PREFIX, Sums
from headrace.gateway.failures import S3Failure
from headrace.gateway.signing import Signed, sign_next

_HEAD = re.compile(rb"([0-9a-fA-F]{1,8})(?:;chunk-signature=([0-9a-f]{64}))?\Z")
_LONGEST_LINE = 1024
"""Bytes of a chunk's head with its signature: some hundred."""
_MOST_TRAILERS = 16
"""Clients send one or two."""
_PIECE_BYTES = 256 * 1024
"""Handed on at a time: in the processor's caches for the checksum and for the file."""
_NOTHING = hashlib.sha256(b"").hexdigest()


def decoded(read: Callable[[int], bytes], signed: Signed, sums: Sums) -> Iterator[bytes]:
    """The body's own bytes, as they come; a checksum that the trailer holds is told to `sums` at the end.

    Args:
        read: so many bytes of the encoded body, fewer only at its end.
        signed: the request; its `payload` says what is signed.
        sums: of the body.

    Raises:
        S3Failure: SignatureDoesNotMatch; IncompleteBody.
    """
    lines = _Lines(read)
    signs = signed.payload.startswith("STREAMING-AWS4-HMAC-SHA256")
    previous = signed.signature
    while True:
        match = _HEAD.match(lines.line())
        if match is None or (signs and match[2] is None):
            raise _broken()
        size, digest = int(match[1], 16), hashlib.sha256()
        left = size
        while left:
            piece = lines.take(min(left, _PIECE_BYTES))
            left -= len(piece)
            if signs:
                digest.update(piece)
            yield piece
        if signs:
            previous = _same(sign_next(signed, "PAYLOAD", previous, _NOTHING, digest.hexdigest()), match[2].decode())
        if not size:
            break
        if lines.line():
            raise _broken()
    _trailers(lines, signed, previous, sums)


def _trailers(lines: _Lines, signed: Signed, previous: str, sums: Sums) -> None:
    expected = signed.payload.endswith("-TRAILER")
    signature, text = "", b""
    for _ in range(_MOST_TRAILERS):
        line = lines.line(or_end=True)
        if not line:
            break
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), value.strip()
        if name == b"x-amz-trailer-signature":
            signature = value.decode("latin-1")
            continue
        text += name + b":" + value + b"\n"
        told = name.decode("latin-1")
        if told.startswith(PREFIX) and told.removeprefix(PREFIX) in NAMES:
            sums.want(told.removeprefix(PREFIX), value.decode("latin-1"))
    if expected and signed.payload.startswith("STREAMING-AWS4"):
        _same(sign_next(signed, "TRAILER", previous, hashlib.sha256(text).hexdigest()), signature)


def _same(expected: str, given: str) -> str:
    if not hmac.compare_digest(expected, given):
        what = "The request signature we calculated does not match the signature you provided."
        raise S3Failure("SignatureDoesNotMatch", what)
    return expected


def _broken() -> S3Failure:
    return S3Failure("IncompleteBody", "The request body terminated unexpectedly")


class _Lines:
    """Lines and bytes of a body."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = b""
        self._ended = False

    def line(self, *, or_end: bool = False) -> bytes:
        """Up to CRLF, which is dropped."""
        while (end := self._held.find(b"\r\n")) < 0:
            if len(self._held) > _LONGEST_LINE:
                raise _broken()
            data = self._more(64)
            if not data:
                if or_end and not self._held:
                    return b""
                raise _broken()
        line, self._held = self._held[:end], self._held[end + 2 :]
        return line

    def take(self, size: int) -> bytes:
        """Up to `size` bytes, at least one."""
        if not self._held and not self._more(size):
            raise _broken()
        piece, self._held = self._held[:size], self._held[size:]
        return piece

    def _more(self, size: int) -> bytes:
        data = self._read(size)
        self._held += data
        return data
