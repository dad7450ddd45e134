"""Writing ``tf.train.Example`` and TFRecord: the other side of `headrace.formats.tfrecord.example` and ``tfrecord``.

Features lie in the order of their names' bytes and numbers are packed, so an Example has the very bytes that
TensorFlow's ``SerializeToString(deterministic=True)`` gives it. Sources: TensorFlow's ``core/example/feature.proto``
and ``core/lib/io/record_writer.h``; *Encoding* in protobuf's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any, cast

import numpy as np
import xxhash

from headrace.base.errors import BadSampleError
from headrace.formats import crc32c, masked
from headrace.pack.values import npy

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_ALL = (1 << 64) - 1  # 64 bits
_MOST = 1 << 31
"""Bytes of the largest message that protobuf reads."""


class RecordWriter:
    """Appends records to a file. One thread. `size` and `digest` as in `headrace.pack.tar.TarWriter`."""

    def __init__(self, file: IO[bytes]) -> None:
        self.size = 0
        self.members = 0
        self._file = file
        self._hash = xxhash.xxh3_128()

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def add(self, record: bytes) -> None:
        """One record. Raises OSError."""
        length = _LENGTH.pack(len(record))
        head = length + _CRC.pack(masked(crc32c(memoryview(length))))
        data = b"".join((head, record, _CRC.pack(masked(crc32c(memoryview(record))))))
        self._file.write(data)
        self._hash.update(data)
        self.size += len(data)
        self.members += 1

    def finish(self) -> None:
        """Nothing ends a TFRecord. Raises OSError."""
        self._file.flush()


def example(fields: Mapping[str, Any]) -> bytes:
    """A sample as a serialised Example.

    Whole numbers and booleans become int64 lists, floating point ones float lists (32 bits: that is what an Example
    has), bytes and text bytes lists; arrays of one dimension lists; arrays of more the bytes of a ``.npy`` file in a
    feature whose name ends so; lists of bytes lists. None is left out.

    Raises:
        BadSampleError: a value of another kind, or one that does not fit.
    """
    made: dict[str, bytes] = {}
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, np.ndarray) and cast("Any", value).ndim > 1:
            name, value = name if name.endswith("npy") else f"{name}.npy", npy(cast("Any", value))
        if name in made:
            raise BadSampleError(f"has two parts of one name: {name}")
        made[name] = feature(name, value)
    return assembled(sorted((_utf8(name), one) for name, one in made.items()))


def assembled(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """An Example of (name, serialised Feature), in the order they are to have. Raises BadSampleError."""
    inner = b"".join(_message(1, _message(1, name) + _message(2, one)) for name, one in entries)
    if len(inner) >= _MOST:
        raise BadSampleError(f"an Example of {len(inner):,} bytes, more than protobuf reads")
    return _message(1, inner)


def feature(name: str, value: Any) -> bytes:
    """A serialised Feature. Raises BadSampleError."""
    if isinstance(value, str):
        value = value.encode("utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _message(1, _message(1, value))
    if isinstance(value, (list, tuple)):
        items = cast("Sequence[Any]", value)
        if all(isinstance(one, (bytes, bytearray, memoryview, str)) for one in items):
            texts = [one.encode("utf-8", "surrogatepass") if isinstance(one, str) else one for one in items]
            return _message(1, b"".join(_message(1, one) for one in texts))
        value = _array(name, items)
    if isinstance(value, (bool, int)):
        if not -(1 << 63) <= value < 1 << 63:
            raise BadSampleError(f"part {name!r}: {value} does not fit an int64")
        return _message(3, _message(1, varint(value)))
    if isinstance(value, float):
        value = np.float64(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return _numbers(name, np.atleast_1d(cast("Any", value)))
    raise BadSampleError(
        f"part {name!r} is {type(value).__name__}, which an Example cannot hold",
        hint="bytes, text, numbers and arrays; --map can turn anything into these",
    )


def feature_of_floats(data: bytes) -> bytes:
    """A Feature of float32 values, from their little-endian bytes."""
    return _message(2, _message(1, data) if data else b"")


def feature_of_ints(values: Iterable[int]) -> bytes:
    """A Feature of int64 values."""
    packed = b"".join(map(varint, values))
    return _message(3, _message(1, packed) if packed else b"")


def varint(value: int) -> bytes:
    """An int64 as protobuf has it."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    value &= _ALL
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


_SMALL = [bytes((value,)) for value in range(0x80)]


def _numbers(name: str, array: np.ndarray[Any, Any]) -> bytes:
    kind = array.dtype.kind
    if kind == "f":
        with np.errstate(over="ignore"):
            floats = array.astype("<f4")
        if array.dtype.itemsize > 4 and bool((np.isinf(floats) & ~np.isinf(array)).any()):
            raise BadSampleError(f"part {name!r} does not fit a float of 32 bits")
        return feature_of_floats(floats.tobytes())
    if kind not in "iub":
        raise BadSampleError(f"part {name!r} is an array of {array.dtype}, which an Example cannot hold")
    if kind == "u" and array.dtype.itemsize == 8 and bool((array > np.uint64((1 << 63) - 1)).any()):
        raise BadSampleError(f"part {name!r} does not fit an int64")
    return feature_of_ints(map(int, array.tolist()))


def _array(name: str, items: Sequence[Any]) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(items)
    except (ValueError, OverflowError):
        array = np.empty((0, 0), object)
    if array.ndim != 1 or array.dtype.kind not in "iufb":
        raise BadSampleError(f"part {name!r} is a list of values of several kinds, which an Example cannot hold")
    return array


def _utf8(name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise BadSampleError(f"part {name!r} is not named by valid text") from None


def _message(number: int, data: bytes | bytearray | memoryview) -> bytes:
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    return b"".join((_SMALL[number << 3 | 2], varint(size), data))
