"""The table at the start of MDS shards and litdata chunks: how many records, and where each begins (uint32 all)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headrace.base.errors import CorruptError
from headrace.formats.shard_format import UNKNOWN, Member, ShardBytes

_PIECE = 1 << 20  # bytes a read


class Table(NamedTuple):
    """Where the offsets of so many records lie: from byte 4 on, one more than there are records."""

    records: int
    first: int
    """Where the first record begins."""

    @property
    def end(self) -> int:
        """The byte after the table."""
        return 4 * (self.records + 2)


def table_of(shard: ShardBytes, kind: str) -> Table:
    """The table, after a look at its first two numbers. `kind`: what the shard should be, for errors.

    Raises:
        CorruptError: the shard ends inside the table, or records begin inside it or behind the shard's end.
    """
    head = bytes(shard.read(0, 8))
    count, first = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
    table = Table(count, first)
    if len(head) < 8 or not table.end <= first <= shard.size:
        raise CorruptError(
            f"at byte 0: no {kind}: {count} records would begin at byte {first}, behind a table of {table.end} bytes, "
            f"where the shard has {shard.size}",
            path=shard.path,
            hint="it is cut off, or something else",
        )
    return table


def members(shard: ShardBytes, table: Table, end: int) -> Iterator[Member]:
    """Every record as the part ``data``, its key its number. Holds one piece of the table, 1 MiB at most.

    Raises:
        CorruptError: the offsets do not rise from record to record, or do not end at byte `end`.
    """
    number, before = 0, table.first
    for at in range(8, table.end, _PIECE):
        piece = np.frombuffer(shard.read(at, min(at + _PIECE, table.end)), "<u4").tolist()
        for place, stop in enumerate(piece):
            if not before < stop <= end:
                raise CorruptError(
                    f"at byte {at + 4 * place}: record {number} would reach from byte {before} to {stop}, where "
                    f"records end at byte {end}",
                    path=shard.path,
                    hint="the shard is damaged or cut off",
                )
            yield Member(f"{number:08d}", "data", before, stop)
            number, before = number + 1, stop
    if end == UNKNOWN:  # of a compressed shard; looking behind the last record tells where it ends
        shard.read(before, before + 1)
        end = shard.size
    if before != end:
        raise CorruptError(
            f"at byte {table.end - 4}: the last record ends at byte {before}, the shard at {end}",
            path=shard.path,
            hint="the shard is cut off, or something was appended",
        )
