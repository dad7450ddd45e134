"""A compressed shard for whoever indexes it: its decompressed bytes, read forwards through a window."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.codecs.compression import codec_of, decompressed
from headrace.formats.shard_format import UNKNOWN, Format, Repacked, ShardBytes

MOST_DECOMPRESSED = 4 << 30
"""Decompressed bytes of the largest shard: whoever reads a sample of it holds all of them."""
_HEAD = 4096
"""Bytes by which a format is recognised."""
_PIECE = 1 << 20  # bytes of a shard asked for at a time
PACKED = (".gz", ".zst", ".zlib", ".tgz", ".tzst")
"""Endings of names of compressed shards, which are never without a byte."""


class StreamBytes:
    """A `headrace.formats.shard_format.ShardBytes` over what `data` decompresses to. One thread.

    Holds what was asked for last and some megabytes. Going back begins again from the start.
    """

    def __init__(self, data: ShardBytes, codec: str, most: int = MOST_DECOMPRESSED) -> None:
        self.path = data.path
        self.codec = codec
        self.size = UNKNOWN
        """As `ShardBytes.size`: known once its end was read."""
        self._source, self._most = data, most
        self._begin()

    def read(self, start: int, stop: int) -> memoryview:
        """See `ShardBytes.read`. Looks one byte further, so that `size` is known as soon as the last byte was read.

        Raises:
            CorruptError: the stream is damaged. UnsupportedError: more comes out of it than a shard may hold.
        """
        if start < self._from:
            self._begin()
        if stop >= self._until and self.size == UNKNOWN:
            self._forward(start, stop + 1)
        return memoryview(self._data)[max(0, start - self._from) : max(0, stop - self._from)]

    def finish(self) -> int:
        """Read what is left, so that all of the stream is known to be sound: the decompressed bytes in all."""
        while self.size == UNKNOWN:
            self._forward(self._until, self._until + 1)
        return self.size

    def _begin(self) -> None:
        source = self._source
        pieces = (source.read(at, at + _PIECE) for at in range(0, source.size, _PIECE))
        self._chunks: Iterator[bytes] = decompressed(self.codec, pieces, self.path)
        self._data = b""
        self._from = self._until = 0
        self.size = UNKNOWN

    def _forward(self, start: int, stop: int) -> None:
        """Hold [start, stop), or up to the end, and nothing before."""
        held = [self._data[start - self._from :]] if start < self._until else []
        while self._until < stop:
            chunk = next(self._chunks, None)
            if chunk is None:
                self.size = self._until
                break
            before, self._until = self._until, self._until + len(chunk)
            if self._until > self._most:
                raise UnsupportedError(
                    f"decompresses to more than {self._most:,} bytes",
                    path=self.path,
                    hint="decompress it, or make more and smaller shards of it: a sample's reader holds all of one",
                )
            if self._until > start:
                held.append(chunk[max(0, start - before) :])
        self._data = b"".join(held)
        self._from = self._until - len(self._data)


def seen_through(fmt: Format, data: ShardBytes) -> ShardBytes | StreamBytes | None:
    """The shard as the format wants it: as it is, or decompressed; None where it is neither.

    Raises as `StreamBytes.read`.
    """
    head = data.read(0, _HEAD)
    if not len(head):  # without records, where a format says nothing else of its shards
        return data if getattr(fmt, "may_be_empty", False) and not data.path.lower().endswith(PACKED) else None
    if fmt.recognise(head):
        anew = fmt.repacked(data) if isinstance(fmt, Repacked) else None
        return data if anew is None else StreamBytes(data, anew)
    codec = codec_of(fmt, head)
    if codec is None:
        return None
    stream = StreamBytes(data, codec)
    try:
        out = stream.read(0, _HEAD)
        if len(out) and isinstance(fmt, Repacked) and fmt.name.startswith("csv") and fmt.repacked(stream):
            raise UnsupportedError(
                f"is compressed, and text that has to be made UTF-8 ({fmt.name})", path=data.path, hint="decompress it"
            )
        return stream if fmt.recognise(out) or (not len(out) and getattr(fmt, "may_be_empty", False)) else None
    except CorruptError:
        if codec == "zlib":  # two bytes in five hundred look like it
            return None
        raise
