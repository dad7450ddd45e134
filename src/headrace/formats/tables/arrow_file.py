"""Arrow's own file format (also Feather, version 2): record batches, found by the footer. Streams: `ipc_stream`.

Source: https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format. A record batch is read as a whole; columns
not wanted are not decoded.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence

from headrace.base.arrow import Expression, Schema, Table, first_line, pa
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.base.memory import take
from headrace.formats.shard_format import ShardBytes
from headrace.formats.tables.arrow_stream import MAGIC as STREAM_MAGIC
from headrace.formats.tables.arrow_stream import STREAM, StreamFooter, stream_footer
from headrace.formats.tables.flatbuffers import Block, batch_rows, blocks
from headrace.formats.tables.sparse_file import SparseFile
from headrace.formats.tables.table_kind import Pieces, joined
from headrace.store.protocol import Buffer

_MAGIC, _FEATHER1 = b"ARROW1", b"FEA1"
_TAIL = 64 << 10  # bytes of the first read: most footers end there
_LONGEST = 256 << 20  # bytes of a footer: a larger one is damage, or an attack on memory
_HEAD = 16 << 20  # bytes of the meta data of a record batch: the same
_COUNT = struct.Struct("<I")


class Ipc:
    """See `headrace.formats.tables.table_kind.TableKind`."""

    name = "arrow"
    version = 1
    suffixes = (".arrow", ".feather", ".ipc")

    def footer(self, file: ShardBytes) -> bytes:
        """See `Kind.footer`: the number of batches, the rows of each, then what ends the file."""
        tail = self._tail(file)
        if not tail:
            kept = stream_footer(file)
            self.parse(kept, file.size)
            return kept
        try:
            _, batches = blocks(tail[: -len(_MAGIC) - 4])
            rows = [self._rows(file, block, len(tail)) for block in batches]
            kept = struct.pack(f"<I{len(rows)}q", len(rows), *rows) + tail
            self.parse(kept, file.size)
        except CorruptError as error:
            raise error.at(file.path) from None
        return kept

    def _tail(self, file: ShardBytes) -> bytes:
        """Footer, its length and magic; nothing of a stream."""
        if not file.size:
            raise CorruptError("the file is empty", path=file.path, hint="even one without rows has a footer")
        tail = file.read(max(0, file.size - _TAIL), file.size)
        if bytes(tail[-len(_MAGIC) :]) != _MAGIC:
            if bytes(tail[-len(_FEATHER1) :]) == _FEATHER1:
                raise UnsupportedError("is Feather version 1", path=file.path, hint="write it again as version 2")
            head = bytes(file.read(0, 8))
            if head[:4] == STREAM_MAGIC:
                return b""
            raise CorruptError(
                f"does not end as an Arrow file does, at byte {file.size:,}", path=file.path, hint="is it cut short?"
            )
        end = len(_MAGIC) + 4
        size = int.from_bytes(tail[-end : -len(_MAGIC)], "little") + end
        if size > min(file.size - len(_MAGIC), _LONGEST):
            raise CorruptError(f"says that its footer has {size:,} bytes, of {file.size:,} in all", path=file.path)
        return bytes(tail[-size:] if size <= len(tail) else file.read(file.size - size, file.size))

    def _rows(self, file: ShardBytes, block: Block, tail: int) -> int:
        start, stop = _span(block, file.size - tail)
        if not 8 <= block.head <= min(_HEAD, stop - start):
            raise CorruptError(f"the record batch at byte {start:,} has {block.head:,} bytes of meta data")
        rows = batch_rows(file.read(start, start + block.head))
        if rows < 0:
            raise CorruptError(f"the record batch at byte {start:,} says that it has {rows} rows")
        return rows

    def parse(self, footer: Buffer, size: int) -> IpcFooter | IpcStream:
        """See `Kind.parse`."""
        count = int(_COUNT.unpack_from(memoryview(footer))[0])
        return IpcStream(footer) if count & STREAM else IpcFooter(footer, size)


class IpcStream(StreamFooter):
    """See `headrace.formats.tables.table_kind.Footer`."""

    def open(self, descriptor: int) -> IpcOpened:
        """See `Footer.open`."""
        return IpcOpened(descriptor, self)


class IpcFooter:
    """See `headrace.formats.tables.table_kind.Footer`."""

    def __init__(self, kept: Buffer, size: int) -> None:
        data = memoryview(kept)
        count = int(_COUNT.unpack_from(data)[0])
        self.rows: list[int] = list(struct.unpack_from(f"<{count}q", data, _COUNT.size))
        self._tail, self._size = data[_COUNT.size + 8 * count :], size
        self._dictionaries, self._batches = blocks(self._tail[: -len(_MAGIC) - 4])
        try:
            self.schema: Schema = self._open([], None).schema
            str(self.schema.names)  # which may be no UTF-8
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptError(f"its footer cannot be read: {first_line(error)}") from error

    def _open(self, pieces: Pieces, options: object) -> Table:
        end = (self._size - len(self._tail), self._tail)
        return pa.ipc.open_file(SparseFile(self._size, [*pieces, end]).source(), options=options)

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """See `Footer.ranges`: the whole batch, and the dictionaries."""
        if not columns:
            return []
        end = self._size - len(self._tail)
        return joined([_span(block, end) for block in (*self._dictionaries, self._batches[group])], 0)

    def read(self, group: int, columns: Sequence[str], pieces: Pieces) -> Table:
        """See `Footer.read`. Offsets within the batch are checked: nothing else guards what a damaged one points to."""
        wanted = [self.schema.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        table = pa.Table.from_batches([self._open(pieces, options).get_batch(group)])
        table.validate(full=True)
        return table

    def open(self, descriptor: int) -> IpcOpened:
        """See `Footer.open`."""
        return IpcOpened(descriptor, self)

    def matching(self, where: Expression, known: Expression | None, schema: Schema) -> list[int]:  # noqa: ARG002
        """See `Footer.matching`: there are no statistics."""
        return list(range(len(self.rows)))


class IpcOpened:
    """See `headrace.formats.tables.table_kind.OpenedTable`."""

    def __init__(self, descriptor: int, footer: IpcFooter | IpcStream) -> None:
        self._descriptor, self._footer = os.dup(descriptor), footer

    def read(self, group: int, columns: Sequence[str]) -> Table:
        """See `Opened.read`. The columns are views of the bytes read."""
        pieces: list[tuple[int, Buffer]] = []
        for start, stop in self._footer.ranges(group, columns):
            data = take(stop - start)
            at = start
            while at < stop and (count := os.preadv(self._descriptor, [data[at - start :]], at)):
                at += count
            pieces.append((start, data[: at - start]))
        return self._footer.read(group, columns, pieces)

    def close(self) -> None:
        """See `Opened.close`."""
        os.close(self._descriptor)


def _span(block: Block, end: int) -> tuple[int, int]:
    stop = block.offset + block.head + block.body
    if block.offset < 0 or block.head < 0 or block.body < 0 or stop > end:
        raise CorruptError(f"a record batch at bytes {block.offset:,} to {stop:,}, before a footer at {end:,}")
    return block.offset, stop
