"""Compressed shards: how the compression is recognised, and decompressing as a stream that holds megabytes at most.

gzip (RFC 1952, also of several members, and padded with zeros, as gzip itself reads it) and zlib (RFC 1950,
TensorFlow's ``ZLIB``) by the standard library; Zstandard (RFC 8878, of several frames too), and MDS's bzip2, Brotli
(RFC 7932) and Snappy, by pyarrow, which is there anyway. All notice a stream that is cut short; gzip, zlib, bzip2 and
what the zstd command writes carry a checksum of what comes out. What has other reasons to be made anew as a whole is
here too (`in_order`).
"""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Callable, Iterator

from headrace.base.arrow import first_line, pa
from headrace.base.errors import CorruptError
from headrace.formats.codecs.known_codecs import TEXT, is_codec
from headrace.formats.numpy_files.c_order import npy_in_order, npz_in_order
from headrace.formats.shard_format import Format

GZIP, ZLIB, ZSTD = "gzip", "zlib", "zstd"
PIECE = 1 << 20
"""Bytes that come out at once, at most."""
_IN = 256 << 10
"""Bytes put in at once: what of them is not used yet is copied for every piece that comes out."""
_CUT = "is it cut short? Copy it again, and open the dataset again"
_DAMAGED = "is it damaged? Copy it again, and open the dataset again"
_VARINT = 5  # bytes: 32 bits, seven in each
_SNAPPY_MOST = 64
"""Times the stored bytes: more cannot come out of a block, whose copies of 64 bytes take 3."""
_SKIPPABLE = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))

Reader = Callable[[int, int], "memoryview | bytes"]
"""Bytes [start, stop) of a compressed shard, cut off at its end."""


def codec_of(fmt: Format, head: memoryview) -> str | None:
    """How a shard of that format which begins with `head` is compressed; None where it is not, as far as one sees."""
    start = bytes(head[:4])
    if start[:3] == b"\x1f\x8b\x08":
        found = GZIP
    elif start == b"\x28\xb5\x2f\xfd" or start in _SKIPPABLE:
        found = ZSTD
    elif len(start) > 1 and start[0] & 0x8F == 8 and not start[1] & 0x20 and int.from_bytes(start[:2]) % 31 == 0:
        found = ZLIB
    else:
        return None
    return found if is_codec(fmt.name, found) else None


def decompressed(codec: str, pieces: Iterator[memoryview], path: str) -> Iterator[bytes]:
    """What comes out, in order, `PIECE` bytes at a time at most. `pieces`: the compressed shard, in order.

    Raises:
        CorruptError: the stream is damaged or cut short, or something lies behind it; with the byte reached, of the
            compressed shard. Whatever `pieces` raises.
    """
    if codec in (GZIP, ZLIB):
        return _deflated(codec, pieces, path)
    if codec.startswith(TEXT):
        return _text(codec.removeprefix(TEXT), pieces, path)
    if codec in _WHOLE:
        return _WHOLE[codec](_joined(pieces), path)
    return _by_arrow(codec, pieces, path)


def _deflated(codec: str, pieces: Iterator[memoryview], path: str) -> Iterator[bytes]:
    stream = _Deflated(codec, path)
    for piece in pieces:
        for at in range(0, len(piece), _IN):
            yield from stream.put(piece[at : at + _IN])
    stream.end()


class _Deflated:
    """One gzip or zlib stream on its way. One thread."""

    def __init__(self, codec: str, path: str) -> None:
        self._codec, self._path = codec, path
        self._bits = 31 if codec == GZIP else 15
        self._member = zlib.decompressobj(self._bits)
        self._taken = 0

    def put(self, data: memoryview | bytes) -> Iterator[bytes]:
        """What comes out of some bytes more."""
        self._taken += len(data)
        more = True
        while data or more:
            if self._member.eof:
                data = self._behind(bytes(data))
                if not data:
                    return
            try:
                out = self._member.decompress(data, PIECE)
            except zlib.error as error:
                raise self._bad(f"its {self._codec} stream is damaged: {error}", _DAMAGED) from None
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            more = len(out) == PIECE
            if out:
                yield out

    def end(self) -> None:
        """Nothing more comes."""
        if not self._member.eof:
            raise self._bad(f"ends inside its {self._codec} stream", _CUT)

    def _behind(self, data: bytes) -> bytes:
        """What follows a stream's end: zeros, or another member."""
        data = data.lstrip(b"\0") if self._codec == GZIP else data
        if data and self._codec != GZIP:
            raise self._bad(f"goes on behind the end of its {self._codec} stream", _DAMAGED)
        if data:
            self._member = zlib.decompressobj(self._bits)
        return data

    def _bad(self, reason: str, hint: str) -> CorruptError:
        return CorruptError(f"compressed, about byte {self._taken:,}: {reason}", path=self._path, hint=hint)


def _text(encoding: str, pieces: Iterator[memoryview], path: str) -> Iterator[bytes]:
    """In UTF-8."""
    decoder = codecs.getincrementaldecoder(encoding)()
    taken = 0
    try:
        for piece in pieces:
            for at in range(0, len(piece), _IN):
                yield decoder.decode(bytes(piece[at : at + _IN])).encode()
                taken += len(piece[at : at + _IN])
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise CorruptError(
            f"about byte {taken:,}: not {encoding.upper()}: {error}", path=path, hint="give the encoding that it has"
        ) from None


def _joined(pieces: Iterator[memoryview]) -> memoryview:
    return memoryview(b"".join(pieces))


def _snappy(data: memoryview, path: str) -> Iterator[bytes]:
    """Snappy's raw format: how many bytes come out (a varint), then one block."""
    size = shift = 0
    for byte in data[:_VARINT]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _SNAPPY_MOST * len(data):
        raise CorruptError(f"says that {size:,} bytes come out of {len(data):,}", path=path, hint=_DAMAGED)
    try:
        out = memoryview(pa.Codec("snappy").decompress(data, decompressed_size=size))
    except (OSError, ValueError) as error:
        raise CorruptError(f"its snappy block is damaged: {first_line(error)}", path=path, hint=_DAMAGED) from None
    for at in range(0, size, PIECE):
        yield bytes(out[at : at + PIECE])


_WHOLE = {"snappy": _snappy, "npy": npy_in_order, "npz": npz_in_order}
"""What takes all of the shard at once."""


def _by_arrow(codec: str, pieces: Iterator[memoryview], path: str) -> Iterator[bytes]:
    source = _Source(pieces)
    try:
        with pa.CompressedInputStream(pa.PythonFile(source, mode="r"), codec) as stream:
            while out := stream.read(PIECE):
                yield out
    except OSError as error:  # `pieces` raises errors of ours, which come through as they are
        raise CorruptError(
            f"compressed, about byte {source.taken:,}: its {codec} stream is damaged or cut short: {first_line(error)}",
            path=path,
            hint=_DAMAGED,
        ) from None


class _Source(io.RawIOBase):
    """Pieces as a file for pyarrow."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes; none at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = piece
        data = bytes(self._left[:size] if size >= 0 else self._left)
        self._left = self._left[len(data) :]
        self.taken += len(data)
        return data
