"""Writing Parquet: typed columns, row groups of about 8 MB, Zstandard; the same bytes for the same rows.

Bytes follow from the rows and from pyarrow's version, which is in the file and in the plan. Row groups are cut by the
rows' own size, never by how they arrived.
"""

from __future__ import annotations

import io
from typing import IO, Any

import pyarrow
import xxhash

from headrace.base.arrow import Table, pa, pq
from headrace.pack.schema import Schema

WRITER = f"pyarrow {pyarrow.__version__}"
GROUP_BYTES = 8 << 20  # bytes of a row group, in memory: who shuffles reads whole ones
GROUP_ROWS = 1 << 16  # rows of a row group, at most: what decodes them takes memory, too
_LEVEL = 3  # Zstandard's default


class ParquetShard:
    """Appends tables of one schema to a file; holds one row group. One thread.

    `size` and `digest` as in `headrace.pack.tar.TarWriter`; `members`: rows.
    """

    def __init__(self, file: IO[bytes], schema: Schema) -> None:
        self.members = 0
        self._sink = _Sink(file)
        self._schema = schema.arrow
        self._writer = pq.ParquetWriter(
            self._sink, self._schema, compression="zstd", compression_level=_LEVEL, version="2.6", use_dictionary=True
        )
        self._pending: list[Table] = []
        self._rows = self._bytes = 0

    @property
    def size(self) -> int:
        return self._sink.size

    @property
    def digest(self) -> str:
        return self._sink.hash.hexdigest()

    def add(self, table: Table) -> None:
        """Some rows. Raises OSError."""
        for start in range(0, table.num_rows, GROUP_ROWS):
            piece = table.slice(start, GROUP_ROWS)
            self._pending.append(piece)
            self._rows += piece.num_rows
            self._bytes += piece.nbytes
            if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
                self._flush()

    def finish(self) -> None:
        """What is left, and the footer. Raises OSError."""
        self._flush()
        self._writer.close()
        self._sink.flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        table = pa.concat_tables(self._pending).combine_chunks()
        self._writer.write_table(table, row_group_size=table.num_rows)
        self.members += self._rows
        self._pending, self._rows, self._bytes = [], 0, 0


class _Sink(io.RawIOBase):
    """The file, for pyarrow: counts and digests what goes to it, and is not closed by it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.size = 0
        self.hash = xxhash.xxh3_128()
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._file.closed:  # the shard was given up, and pyarrow's writer ends itself when it is forgotten
            return len(view)
        self._file.write(view)
        self.hash.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        """The file belongs to who made it."""
