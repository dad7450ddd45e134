"""Protocol buffers without a schema: the fields of one message, as far as event files need them.

The encoding: https://protobuf.dev/programming-guides/encoding/ . Bytes that are none raise ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_WIDTHS = {FIXED64: 8, FIXED32: 4}


def fields(data: memoryview) -> Iterator[tuple[int, int, int, memoryview]]:
    """Each field of a message: its number, its wire type, its value if that is a varint, and else its bytes."""
    at, none = 0, data[:0]
    while at < len(data):
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, at = varint(data, at)
            yield number, kind, value, none
            continue
        if kind == BYTES:
            width, at = varint(data, at)
        elif kind in _WIDTHS:
            width = _WIDTHS[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if width > len(data) - at:
            raise ValueError("a field is longer than its message")
        yield number, kind, 0, data[at : at + width]
        at += width


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The unsigned number at an offset, and the offset behind it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("a varint that does not end")


def varints(data: memoryview) -> list[int]:
    """A packed field's."""
    found: list[int] = []
    at = 0
    while at < len(data):
        value, at = varint(data, at)
        found.append(value)
    return found


def signed(value: int) -> int:
    """An int64 that was read as unsigned."""
    return value - (1 << 64) if value >> 63 else value


def double(data: memoryview) -> float:
    """Of eight bytes. Raises ValueError for any other number of them."""
    return _one("<d", data)


def single(data: memoryview) -> float:
    """Of four bytes. Raises ValueError for any other number of them."""
    return _one("<f", data)


def _one(layout: str, data: memoryview) -> float:
    try:
        return struct.unpack(layout, data)[0]
    except struct.error as error:
        raise ValueError(str(error)) from None
