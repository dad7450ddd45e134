"""Lines, found by arrays: LF or CRLF, with or without one after the last; a byte order mark and empty ones are left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError
from headrace.formats.shard_format import Member, ShardBytes

Bytes = npt.NDArray[np.uint8]
Positions = npt.NDArray[np.int64]

PIECE = 1 << 20  # bytes a read
LONGEST_LINE = 64 << 20  # bytes of the longest line; longer ones are taken for a missing line end or quote
MARK = b"\xef\xbb\xbf"
_LF, _CR, _SPACE, _QUOTE = 10, 13, 32, 34  # ASCII


class Layout(NamedTuple):
    """What tells lines apart: quoting, if any, and which lines count as blank."""

    delimiter: int | None
    """The byte that separates fields that may be quoted; None where quotes mean nothing."""

    def ends(self, data: Bytes) -> tuple[Positions, int | None]:
        """Where the line feeds lie that end a line of `data`, which starts with a line; and a quote out of place.

        With every quote a quoted state begins or ends: a doubled one ends it and begins it again. That is so as long
        as quotes open fields only; then a line feed ends a record exactly if an even number of quotes precede it.
        """
        feeds = np.flatnonzero(data == _LF)
        quotes = np.flatnonzero(data == _QUOTE) if self.delimiter is not None else feeds[:0]
        if not len(quotes):
            return feeds, None
        opening = quotes[::2]
        before = data[np.maximum(opening - 1, 0)]
        stray = (before != self.delimiter) & (before != _LF) & (before != _QUOTE) & (opening > 0)
        ends = feeds[np.searchsorted(quotes, feeds) % 2 == 0]
        return ends, int(opening[np.argmax(stray)]) if stray.any() else None

    def blank(self, line: bytes) -> bool:
        """Spaces are a value in CSV, and nothing in JSON."""
        return self.delimiter is None and not line.strip()


def members(ranges: Iterator[tuple[int, int]], skip: int = 0) -> Iterator[Member]:
    """Lines, but for the first `skip`, as records by their number."""
    for number, (start, stop) in enumerate(ranges, -skip):
        if number >= 0:
            yield Member(f"{number:08d}", "data", start, stop)


def lines(shard: ShardBytes, layout: Layout, longest: int) -> Iterator[tuple[int, int]]:
    """[start, stop) of every line that is not blank, without its end.

    Holds one unfinished line and one piece. The piece is as large as the line is by then: a long line is looked
    through a few times, not once for each piece.
    """
    at = base = len(MARK) if bytes(shard.read(0, len(MARK))) == MARK else 0
    rest = b""
    while at < shard.size:
        piece = shard.read(at, at + max(PIECE, len(rest)))
        at += len(piece)
        missing = b"\n" if at >= shard.size and piece[-1] != _LF else b""
        data = np.frombuffer(b"".join((rest, piece, missing)), np.uint8)
        ends, stray = layout.ends(data)
        if stray is not None:
            raise CorruptError(
                f"a quote inside a field without quotes, at byte {base + stray}",
                path=shard.path,
                hint="quote the whole field, and double the quotes in it",
            )
        for start, stop in ranges(data, ends):
            if stop - start > longest:
                raise _too_long(shard, base + start, longest)
            if start < stop and (data[start] > _SPACE or not layout.blank(bytes(data[start:stop]))):
                yield base + start, base + stop
        used = int(ends[-1]) + 1 if len(ends) else 0
        base += used
        rest = data[used:].tobytes()
        if len(rest) > longest:
            raise _too_long(shard, base, longest)
    if rest:
        raise CorruptError(f"a quote is never closed in the record that starts at byte {base}", path=shard.path)


def ranges(data: Bytes, ends: Positions) -> Iterator[tuple[int, int]]:
    """The lines that line feeds at `ends` make: without them, and without a carriage return before."""
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + 1))[: len(ends)]
    stops = ends - ((ends > starts) & (data[np.maximum(ends - 1, 0)] == _CR))
    return zip(starts.tolist(), stops.tolist(), strict=True)


def _too_long(shard: ShardBytes, at: int, longest: int) -> CorruptError:
    return CorruptError(
        f"the line that starts at byte {at} is longer than {longest} bytes",
        path=shard.path,
        hint="is a line end or a closing quote missing?",
    )
