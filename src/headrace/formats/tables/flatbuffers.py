"""As much of FlatBuffers as it takes to find the record batches of an Arrow file.

Sources: https://flatbuffers.dev/internals/, and ``File.fbs`` and ``Message.fbs`` in https://github.com/apache/arrow,
``format/``. Everything is checked against the buffer's bounds; pyarrow verifies the rest when it reads.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headrace.base.errors import CorruptError
from headrace.store.protocol import Buffer

_U16, _U32, _I32, _I64 = (struct.Struct(code) for code in ("<H", "<I", "<i", "<q"))
_BLOCK = struct.Struct("<qi4xq")
_DICTIONARIES, _BATCHES = 2, 3  # fields of Footer (format/File.fbs)
_HEADER_TYPE, _HEADER, _BODY = 1, 2, 3  # fields of Message (format/Message.fbs)
SCHEMA, DICTIONARY, RECORD_BATCH = 1, 2, 3
"""Kinds of messages."""
_LENGTH = 0  # field of RecordBatch


class Block(NamedTuple):
    """A message of the file: where it begins, bytes of its meta data, bytes of its body."""

    offset: int
    head: int
    body: int


def blocks(footer: Buffer) -> tuple[list[Block], list[Block]]:
    """(dictionaries, record batches) that a file's footer names. Raises CorruptError."""
    data = memoryview(footer)
    table = _offset(data, 0)
    return _blocks(data, table, _DICTIONARIES), _blocks(data, table, _BATCHES)


class Message(NamedTuple):
    """What a message's meta data say: of which kind it is, bytes of its body, rows of a record batch (else 0)."""

    kind: int
    body: int
    rows: int


def batch_rows(message: Buffer) -> int:
    """Rows of a record batch, by its message's meta data. Raises CorruptError."""
    found = message_of(message)
    if found.kind != RECORD_BATCH:
        raise CorruptError("a record batch is none")
    return found.rows


def message_of(message: Buffer) -> Message:
    """A message's meta data, behind its length. Raises CorruptError."""
    data = memoryview(message)
    first = int(_at(_U32, data, 0))
    data = data[8 if first == 0xFFFFFFFF else 4 :]
    table = _offset(data, 0)
    kind, header = _field(data, table, _HEADER_TYPE), _field(data, table, _HEADER)
    if kind is None or header is None:
        raise CorruptError("a message is none")
    body = _field(data, table, _BODY)
    length = _field(data, _offset(data, header), _LENGTH) if data[kind] == RECORD_BATCH else None
    return Message(
        data[kind],
        0 if body is None else int(_at(_I64, data, body)),
        0 if length is None else int(_at(_I64, data, length)),
    )


def _blocks(data: memoryview, table: int, slot: int) -> list[Block]:
    field = _field(data, table, slot)
    if field is None:
        return []
    start = _offset(data, field)
    count = int(_at(_U32, data, start))
    if start + 4 + count * _BLOCK.size > len(data):
        raise CorruptError("its footer is damaged: blocks beyond its end")
    return [Block(*_BLOCK.unpack_from(data, start + 4 + place * _BLOCK.size)) for place in range(count)]


def _field(data: memoryview, table: int, slot: int) -> int | None:
    """Where a table's field lies, None where it has its default."""
    places = table - int(_at(_I32, data, table))
    if 4 + 2 * slot >= int(_at(_U16, data, places)):
        return None
    offset = int(_at(_U16, data, places + 4 + 2 * slot))
    if not offset:
        return None
    if table + offset >= len(data):
        raise CorruptError("its footer is damaged: a field beyond its end")
    return table + offset


def _offset(data: memoryview, at: int) -> int:
    return at + int(_at(_U32, data, at))


def _at(kind: struct.Struct, data: memoryview, at: int) -> int:
    if not 0 <= at <= len(data) - kind.size:
        raise CorruptError("its footer is damaged: an offset beyond its end")
    return kind.unpack_from(data, at)[0]
