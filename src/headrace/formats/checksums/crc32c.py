"""CRC-32C (Castagnoli), and the masked form of it that TFRecord files carry.

The polynomial is that of RFC 3720, appendix B.4; the mask is the one of TensorFlow's ``core/lib/hash/crc32c.h``. The
``fastcrc`` package (processor instructions, the GIL released) does the work where it is installed; otherwise NumPy
does, tens of times slower. Any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import cast

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

_POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits reversed
_CHUNK = 1024  # bytes: its table is 1 MiB, which stays in the processor's cache
_BLOCK = 256 * _CHUNK  # bytes looked up at a time, which bounds what NumPy holds
_MASK = 0xA282EAD8  # the constant of TFRecord's masks
ALL = 0xFFFFFFFF  # 32 bits


def crc32c(data: memoryview) -> int:
    """The checksum of contiguous bytes."""
    return _implementation()(data)


def crc32c_of(data: Sequence[memoryview]) -> Words:
    """The checksum of each."""
    return np.array(list(map(_implementation(), data)), np.uint32)


def masked_of(crc: Words) -> Words:
    """See `masked`."""
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)


def unmasked_of(stored: Words) -> Words:
    """The checksums that were masked."""
    turned = stored - np.uint32(_MASK)
    return (turned >> np.uint32(17)) | (turned << np.uint32(15))


def masked(crc: int) -> int:
    """A checksum as TFRecord stores it: rotated, and a constant added."""
    return (((crc >> 15) | (crc << 17)) + _MASK) & ALL


def masked_of_rows(rows: Bytes) -> Words:
    """The masked checksum of every row of a matrix [n, width], width up to 1024: many short texts at once."""
    width = rows.shape[1]
    crc = left_by(rows) ^ np.uint32(_plain(bytes(width)))
    return masked_of(crc)


@cache
def _implementation() -> Callable[[memoryview], int]:
    try:
        return cast("Callable[[memoryview], int]", import_module("fastcrc.crc32").iscsi)
    except ImportError:
        return by_numpy


def by_numpy(data: memoryview) -> int:
    """As `crc32c`, with nothing but NumPy."""
    if len(data) < 4:
        return _plain(data)
    # Zeros in front change nothing as long as the register starts from zero; starting from all ones instead is the
    # same as flipping the first four bytes.
    front = -len(data) % _CHUNK
    padded = np.zeros(front + len(data), np.uint8)
    padded[front:] = np.frombuffer(data, np.uint8)
    padded[front : front + 4] ^= 0xFF
    first, second, third, fourth = _skip()
    register = 0
    for at in range(0, len(padded), _BLOCK):
        for chunk in left_by(padded[at : at + _BLOCK].reshape(-1, _CHUNK)).tolist():
            register = chunk ^ (
                first[register & 0xFF]
                ^ second[(register >> 8) & 0xFF]
                ^ third[(register >> 16) & 0xFF]
                ^ fourth[register >> 24]
            )
    return register ^ ALL


def of_a_byte() -> Words:
    """[256]: what each byte leaves in a register that started from zero."""
    return _tables()[-1]


def left_by(rows: Bytes) -> Words:
    """What each row of [n, width], width up to 1024, leaves in a register that started from zero: the sum of what its
    bytes leave there alone.
    """
    width = rows.shape[1]
    places = np.arange((_CHUNK - width) * 256, _CHUNK * 256, 256)
    return np.bitwise_xor.reduce(_tables().take(rows + places), axis=1)


def _plain(data: memoryview | bytes) -> int:
    """The definition, byte by byte: for what is shorter than four bytes, and for constants."""
    table = cast("list[int]", _tables()[-1].tolist())
    register = ALL
    for byte in data:
        register = table[(register ^ byte) & 0xFF] ^ (register >> 8)
    return register ^ ALL


@cache
def _tables() -> Words:
    """[1024, 256]: what byte b leaves in the register when 1023 - i bytes of zeros follow it."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    tables = np.empty((_CHUNK, 256), np.uint32)
    tables[-1] = table
    for place in range(_CHUNK - 2, -1, -1):
        after = tables[place + 1]
        tables[place] = table[after & 0xFF] ^ (after >> 8)
    return tables


@cache
def _skip() -> list[list[int]]:
    """What each of the register's four bytes becomes when 1024 bytes of zeros follow."""
    return cast("list[list[int]]", _tables()[:4].tolist())
