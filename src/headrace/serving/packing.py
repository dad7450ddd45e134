"""Tensors as bytes: as the Open Inference Protocol's binary extension has them, and as runtimes' processes are told.

Numbers little-endian in row-major order; each element of a tensor of byte strings after its length, of 4 bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from headrace.base.errors import InputError
from headrace.serving.tensors import BYTES, Array, numpy_type

_LENGTH: Final = struct.Struct("<I")


def packed(array: Array) -> bytes | memoryview:
    """The bytes of a tensor; of numbers that lie in order no copy."""
    if array.dtype.kind in "OSU":
        parts: list[bytes] = []
        for one in array.ravel().tolist():
            raw = one if isinstance(one, bytes) else str(one).encode()
            parts += (_LENGTH.pack(len(raw)), raw)
        return b"".join(parts)
    ordered = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return ordered.reshape(-1).view(np.uint8).data if ordered.size else b""


def unpacked(kind: str, shape: Sequence[int], data: bytes | bytearray | memoryview) -> Array:
    """A tensor of these bytes; of numbers no copy, and read-only if the bytes are.

    Raises InputError: there are more or fewer of them than the shape needs.
    """
    count = math.prod(shape)
    if kind == BYTES:
        return _strings(count, data).reshape(shape)
    dtype = numpy_type(kind)
    if len(data) != count * dtype.itemsize:
        raise InputError(f"{len(data)} bytes, where {kind} of the shape {list(shape)} has {count * dtype.itemsize}")
    return np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape).astype(dtype, copy=False)


def _strings(count: int, data: bytes | bytearray | memoryview) -> Array:
    if count * _LENGTH.size > len(data):
        raise InputError(f"{len(data)} bytes cannot hold the lengths of {count} strings")
    found = np.empty(count, object)
    at, view = 0, memoryview(data)
    for index in range(count):
        if at + _LENGTH.size > len(view):
            raise InputError(f"the bytes end before string {index} of {count}")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if at + length > len(view):
            raise InputError(f"string {index} should have {length} bytes, but {len(view) - at} are left")
        found[index] = bytes(view[at : at + length])
        at += length
    if at != len(view):
        raise InputError(f"{len(view) - at} bytes are left after the last of {count} strings")
    return found
