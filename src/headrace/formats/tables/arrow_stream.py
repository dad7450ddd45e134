"""Arrow's streaming format, as Hugging Face's ``save_to_disk`` and caches write it: messages, one after the other.

Source: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format. Its messages are walked through once,
head by head; from then on every record batch is read by itself, as of a file that has a footer. Only streams that say
where they end: of others nobody knows whether they are whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.base.arrow import Expression, Schema, Table, first_line, pa
from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.shard_format import ShardBytes
from headrace.formats.tables.flatbuffers import DICTIONARY, RECORD_BATCH, SCHEMA, message_of
from headrace.formats.tables.sparse_file import SparseFile
from headrace.formats.tables.table_kind import Pieces, joined
from headrace.store.protocol import Buffer

MAGIC = b"\xff\xff\xff\xff"
STREAM = 1 << 31
"""Added to the number of record batches, says that a kept footer is of a stream."""
_PREFIX = 8  # bytes: a mark and a length
_HEAD = 16 << 20
"""Bytes of the largest message's meta data."""
_COUNT, _SPAN = struct.Struct("<I"), struct.Struct("<qq")
_CUT = "is it cut short? Write it again, and close the writer"


class _Span(NamedTuple):
    start: int
    stop: int


def stream_footer(file: ShardBytes) -> bytes:
    """What the index keeps of a stream: as many rows as each record batch has, where dictionaries and batches lie, the
    schema's message.

    Raises:
        CorruptError: with the byte and the reason. UnsupportedError: older than Arrow 0.15.
    """
    schema = b""
    rows: list[int] = []
    spans: dict[int, list[_Span]] = {DICTIONARY: [], RECORD_BATCH: []}
    at = 0
    while True:
        head = bytes(file.read(at, at + _PREFIX))
        if len(head) < _PREFIX:
            raise CorruptError(f"ends at byte {file.size:,} without saying so", path=file.path, hint=_CUT)
        if head[:4] != MAGIC:
            reason = f"no message at byte {at:,}"
            raise CorruptError(reason, path=file.path, hint="is it damaged, or older than Arrow 0.15?")
        size = int.from_bytes(head[4:], "little")
        if not size:
            break
        if size > min(_HEAD, file.size - at - _PREFIX):
            raise CorruptError(f"the message at byte {at:,} has {size:,} bytes of meta data", path=file.path, hint=_CUT)
        meta = bytes(file.read(at, at + _PREFIX + size))
        try:
            message = message_of(meta)
        except CorruptError as error:
            error.reason = f"the message at byte {at:,}: {error.reason}"
            raise error.at(file.path) from None
        stop = at + _PREFIX + size + message.body
        if message.body < 0 or stop > file.size:
            raise CorruptError(
                f"the message at byte {at:,} ends at byte {stop:,} of {file.size:,}", path=file.path, hint=_CUT
            )
        if (message.kind == SCHEMA) != (at == 0) or message.kind not in (SCHEMA, *spans):
            raise CorruptError(f"the message at byte {at:,} is of kind {message.kind}", path=file.path)
        if message.kind == SCHEMA:
            schema = meta
        else:
            spans[message.kind].append(_Span(at, stop))
        if message.kind == RECORD_BATCH:
            if message.rows < 0:
                raise CorruptError(f"the record batch at byte {at:,} has {message.rows} rows", path=file.path)
            rows.append(message.rows)
        at = stop
    if at + _PREFIX != file.size:
        raise CorruptError(f"goes on behind its end, at byte {at + _PREFIX:,}", path=file.path, hint="is it damaged?")
    if not schema:
        raise UnsupportedError("is a stream without a schema", path=file.path)
    kept = [_COUNT.pack(len(rows) | STREAM), struct.pack(f"<{len(rows)}q", *rows)]
    kept.append(_COUNT.pack(len(spans[DICTIONARY])))
    kept += [_SPAN.pack(*span) for span in (*spans[DICTIONARY], *spans[RECORD_BATCH])]
    return b"".join([*kept, schema])


class StreamFooter:
    """See `headrace.formats.tables.table_kind.Footer`."""

    def __init__(self, kept: Buffer) -> None:
        data = memoryview(kept)
        count = int(_COUNT.unpack_from(data)[0]) & ~STREAM
        at = _COUNT.size + 8 * count
        self.rows: list[int] = list(struct.unpack_from(f"<{count}q", data, _COUNT.size))
        dictionaries = int(_COUNT.unpack_from(data, at)[0])
        at += _COUNT.size
        stop = at + _SPAN.size * (dictionaries + count)
        spans = [_Span(*one) for one in _SPAN.iter_unpack(data[at:stop])]
        self._dictionaries, self._batches = spans[:dictionaries], spans[dictionaries:]
        self._schema = data[stop:]
        try:
            self.schema: Schema = pa.ipc.read_schema(pa.py_buffer(self._schema))
            str(self.schema.names)  # which may be no UTF-8
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptError(f"its schema cannot be read: {first_line(error)}") from error

    def _spans(self, group: int) -> list[_Span]:
        """A batch's dictionaries, of which later ones may stand in place of earlier ones, and the batch."""
        batch = self._batches[group]
        return [*(one for one in self._dictionaries if one.start < batch.start), batch]

    def ranges(self, group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
        """See `Footer.ranges`: the whole batch, and the dictionaries before it."""
        return joined(self._spans(group), 0) if columns else []

    def read(self, group: int, columns: Sequence[str], pieces: Pieces) -> Table:
        """See `Footer.read`: a stream of the schema, the dictionaries and this batch alone. Offsets are checked."""
        parts: list[tuple[int, Buffer]] = [(0, self._schema)]
        at = len(self._schema)
        for span in self._spans(group):
            parts.append((at, _within(pieces, span)))
            at += span.stop - span.start
        wanted = [self.schema.get_field_index(name) for name in columns]
        options = pa.ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
        batch = pa.ipc.open_stream(SparseFile(at, parts).source(), options=options).read_next_batch()
        table = pa.Table.from_batches([batch])
        table.validate(full=True)
        return table

    def matching(self, where: Expression, known: Expression | None, schema: Schema) -> list[int]:  # noqa: ARG002
        """See `Footer.matching`: there are no statistics."""
        return list(range(len(self.rows)))


def _within(pieces: Pieces, span: _Span) -> memoryview:
    for start, data in pieces:
        view: Any = memoryview(data).cast("B")
        if start <= span.start and span.stop <= start + len(view):
            return view[span.start - start : span.stop - start]
    raise CorruptError(f"bytes {span.start:,} to {span.stop:,} did not come")
