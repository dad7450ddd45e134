"""Bytes into single values, as the record formats of other libraries keep them: text, numbers, arrays, lists of files.

MDS and litdata share most of these. All numbers are little endian: both write the machine's own order, and nobody
trains on big-endian machines. A decoder raises `CorruptError` without a path; who calls it knows column and record.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from headrace.base.errors import CorruptError, UnsupportedError
from headrace.formats.columns.buffer_slices import Pieces
from headrace.formats.shard_format import Decode

_SIZES = struct.Struct("<3I")
_PIXELS = {
    "L": ("<u1", 0),
    "P": ("<u1", 0),
    "I": ("<i4", 0),
    "F": ("<f4", 0),
    "I;16": ("<u2", 0),
    "LA": ("<u1", 2),
    "La": ("<u1", 2),
    "PA": ("<u1", 2),
    "RGB": ("<u1", 3),
    "YCbCr": ("<u1", 3),
    "LAB": ("<u1", 3),
    "HSV": ("<u1", 3),
    "RGBA": ("<u1", 4),
    "RGBa": ("<u1", 4),
    "RGBX": ("<u1", 4),
    "CMYK": ("<u1", 4),
}
"""Pillow's modes whose pixels are whole bytes: type, and numbers a pixel (0: one, without an axis of its own)."""


def raw(data: memoryview) -> memoryview:
    """Bytes as they are: files, for `headrace.decode` or the user's own function."""
    return data


def text(data: memoryview) -> str:
    """UTF-8. Raises CorruptError."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptError(f"not UTF-8: {error}") from None


def json_value(data: memoryview) -> Any:
    """What `json.loads` makes of it. Raises CorruptError."""
    try:
        return json.loads(str(data, "utf-8"))
    except RecursionError:
        raise CorruptError("the JSON nests too deeply") from None
    except ValueError as error:
        raise CorruptError(f"not JSON: {error}") from None


def boolean(data: memoryview) -> bool:
    """One byte. Raises CorruptError."""
    if len(data) != 1:
        raise CorruptError(f"{len(data)} bytes, where true and false have one")
    return data[0] != 0


@dataclass(frozen=True)
class Written:
    """A number written in decimal. `kind`: int, float or Decimal."""

    kind: Callable[[str], Any]

    def __call__(self, data: memoryview) -> Any:
        """The number. Raises CorruptError."""
        try:
            return self.kind(text(data))
        except (ValueError, ArithmeticError) as error:
            raise CorruptError(f"not a number: {error}") from None


WHOLE, REAL, DECIMAL = Written(int), Written(float), Written(Decimal)


@dataclass(frozen=True)
class Number:
    """One number of a NumPy type; `plain`: as Python's own int or float."""

    dtype: str
    plain: bool = False

    def __call__(self, data: memoryview) -> Any:
        """The number. Raises CorruptError: another count of bytes."""
        dtype = np.dtype(self.dtype)
        if len(data) != dtype.itemsize:
            raise CorruptError(f"{len(data)} bytes, where {dtype} has {dtype.itemsize}")
        value = np.frombuffer(data, dtype)[0]
        return value.item() if self.plain else value

    def all(self, data: Sequence[memoryview]) -> list[Any]:
        """The same for several."""
        dtype = np.dtype(self.dtype)
        if any(len(one) != dtype.itemsize for one in data):
            return [self(one) for one in data]
        found = np.frombuffer(b"".join(data), dtype)
        return found.tolist() if self.plain else list(found)


@dataclass(frozen=True)
class Flat:
    """All numbers of a type that the bytes hold, in one axis."""

    dtype: str

    def __call__(self, data: memoryview) -> npt.NDArray[Any]:
        """The array, a view. Raises CorruptError: no whole count of them."""
        dtype = np.dtype(self.dtype)
        if len(data) % dtype.itemsize:
            raise CorruptError(f"{len(data)} bytes are no array of {dtype}")
        return np.frombuffer(data, dtype)

    def all(self, data: Sequence[memoryview]) -> Sequence[npt.NDArray[Any]]:
        """The same for several; where they lie in even steps, rows of one array."""
        dtype = np.dtype(self.dtype)
        rows = data.matrix() if isinstance(data, Pieces) else None
        if rows is not None and not rows.shape[1] % dtype.itemsize:
            return cast("Sequence[npt.NDArray[Any]]", rows.view(dtype))
        if any(len(one) % dtype.itemsize for one in data):
            return [self(one) for one in data]
        return [np.frombuffer(one, dtype) for one in data]


def same_lengths(data: Sequence[memoryview], count: int) -> tuple[int, ...] | None:
    """The `count` lengths (uint32) with which each of several records begins, if all are as long and say the same."""
    head = 4 * count
    if isinstance(data, Pieces):
        return _same_lengths(data, count)
    if len(data[0]) < head or any(len(one) != len(data[0]) for one in data):
        return None
    if b"".join([one[:head] for one in data]) != bytes(data[0][:head]) * len(data):
        return None
    return struct.unpack_from(f"<{count}I", data[0])


def _same_lengths(data: Pieces, count: int) -> tuple[int, ...] | None:
    size = data.size()
    if size is None or size < 4 * count:
        return None
    said = data.part(0, 4 * count)
    rows = said.matrix()
    if rows is None:
        rows = np.frombuffer(b"".join(said.views()), np.uint8).reshape(len(said), -1)
    if (rows != rows[0]).any():
        return None
    return struct.unpack_from(f"<{count}I", rows[0])


def length(data: Sequence[memoryview]) -> int:
    """Bytes of the first of several."""
    return int(data.stop[0] - data.start[0]) if isinstance(data, Pieces) else len(data[0])


def cut(data: Sequence[memoryview], start: int, stop: int) -> Sequence[memoryview]:
    """The same stretch of each, which it has to have."""
    return data.part(start, stop) if isinstance(data, Pieces) else [one[start:stop] for one in data]


def decode_all(decode: Callable[[memoryview], Any], data: Sequence[memoryview]) -> Sequence[Any]:
    """Each of them, at once where `decode` can. Raises as `decode`."""
    at_once = getattr(decode, "all", None)
    return list(map(decode, data)) if at_once is None else at_once(data)


def shaped(data: memoryview, dtype: str | np.dtype[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    """An array of that type and shape, a view. Raises CorruptError: the bytes are too many or too few."""
    if len(shape) > 64 or math.prod(shape) * np.dtype(dtype).itemsize != len(data):
        raise CorruptError(f"{len(data)} bytes are no {np.dtype(dtype)} of shape {tuple(shape)[:8]}")
    return np.frombuffer(data, dtype).reshape(shape)


def pixels(data: memoryview) -> npt.NDArray[Any]:
    """A Pillow image as its raw pixels: height x width, and x channels where a pixel has several; a view.

    Kept as width, height and length of the mode's name (three uint32), the mode, the pixels. A palette is not kept.

    Raises:
        CorruptError: too few or too many bytes. UnsupportedError: a mode whose pixels are not whole bytes.
    """
    if len(data) < _SIZES.size:
        raise CorruptError(f"{len(data)} bytes are no image")
    width, height, length = _SIZES.unpack_from(data)
    start = _SIZES.size + length
    if length > 16 or start > len(data):
        raise CorruptError(f"an image whose mode has a name of {length} bytes")
    mode = bytes(data[_SIZES.size : start]).decode("latin-1")
    if mode not in _PIXELS:
        raise UnsupportedError(f"an image of mode {mode!r}", hint="write it as RGB, L or PNG")
    dtype, channels = _PIXELS[mode]
    return shaped(data[start:], dtype, (height, width, channels) if channels else (height, width))


@dataclass(frozen=True)
class Several:
    """A list: how many (uint32), the length of each (uint32), then all of them. `skip`: bytes before that."""

    of: Decode
    skip: int = 0

    def __call__(self, data: memoryview) -> list[Any]:
        """The list. Raises CorruptError: the lengths do not add up, or one of them is no such value."""
        at = self.skip + 4
        count = int.from_bytes(data[self.skip : at], "little")
        if len(data) < at + 4 * count:
            raise CorruptError(f"{len(data)} bytes are too few for a list of {count}")
        found: list[Any] = []
        start = at + 4 * count
        for length in struct.unpack_from(f"<{count}I", data, at):
            found.append(self.of(data[start : start + length]))
            start += length
        if start != len(data):
            raise CorruptError(f"a list of {start} bytes, kept in {len(data)}")
        return found
