"""Reads damaged tables, as many as are asked for, and says so of each that ended in anything but an error of ours.

    python -m tests.property.tables_hostile KIND SEED COUNT

Runs as a program: what a file holds may end the process.
"""

from __future__ import annotations

import io
import random
import sys
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.base.errors import HeadraceError
from headrace.formats.tables.known_tables import kind_named

_ROWS = 120


def table() -> pa.Table:
    """Columns of many types, with nulls, lists, structs and a dictionary."""
    numbers = list(range(_ROWS))
    return pa.table(
        {
            "x": numbers,
            "y": pa.array([None if n % 7 == 0 else n / 3 for n in numbers]),
            "s": [f"text {n % 11}" for n in numbers],
            "d": pa.array([f"kind {n % 3}" for n in numbers]).dictionary_encode(),
            "l": [list(range(n % 5)) for n in numbers],
            "m": [{"a": n, "b": str(n)} for n in numbers],
            "f": pa.FixedSizeListArray.from_arrays(pa.array([float(n) for n in range(3 * _ROWS)]), 3),
        }
    )


def written(kind: str, seed: int) -> bytes:
    out = io.BytesIO()
    if kind == "parquet":
        codec = ["snappy", "zstd", "none", "gzip"][seed % 4]
        pq.write_table(table(), out, row_group_size=50, compression=codec, data_page_version=["1.0", "2.0"][seed % 2])
    else:
        options = pa.ipc.IpcWriteOptions(compression=[None, "zstd", "lz4"][seed % 3])
        new = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with new(out, table().schema, options=options) as file:
            file.write_table(table(), max_chunksize=50)
    return out.getvalue()


class Shard:
    """A `headrace.formats.shard_format.ShardBytes` in memory."""

    path = "memory://x/t"

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, start: int, stop: int) -> memoryview:
        return memoryview(self.data)[start : min(stop, self.size)]


def read(kind: Any, data: bytes) -> None:
    """All of it, as the loader does, which translates pyarrow's errors of data. Raises HeadraceError."""
    shard = Shard(data)
    footer = kind.parse(kind.footer(shard), shard.size)
    names = footer.schema.names
    if "x" in names and names.count("x") == 1:
        footer.matching(pc.field("x") < 5, None, footer.schema)
    for group, rows in enumerate(footer.rows):
        if rows:
            pieces = [(start, shard.read(start, stop)) for start, stop in footer.ranges(group, names)]
            try:
                footer.read(group, names, pieces).validate(full=True)
            except (pa.ArrowException, OSError, ValueError):
                continue


def damaged(data: bytes, rnd: random.Random) -> bytes:
    """Some bytes changed, near the end, where the footer is, as often as anywhere."""
    found = bytearray(data)
    for _ in range(rnd.choice([1, 1, 2, 4])):
        low = max(0, len(found) - 3000) if rnd.random() < 0.6 else 0
        at = rnd.randrange(low, len(found) - 8)
        found[at] = rnd.randrange(256) if rnd.random() < 0.5 else found[at] ^ (1 << rnd.randrange(8))
    return bytes(found)


def main(name: str, seed: int, count: int) -> None:
    kind, rnd = kind_named("arrow" if name == "stream" else name), random.Random(seed)
    refused = 0
    for number in range(count):
        data = damaged(written(name, number), rnd)
        print(number, end=" ", flush=True, file=sys.stderr)  # the last one is who ended the process
        try:
            read(kind, data)
        except HeadraceError:
            refused += 1
    print(refused)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
