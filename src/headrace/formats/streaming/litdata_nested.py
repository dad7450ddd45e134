"""litdata's leaf ``json``: lists and dicts as tagged bytes, or as JSON where they are older or of mixed kind.

A tag (uint8), then what it says; counts and lengths are uint32, all little endian. Text is its length and UTF-8.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.base.errors import CorruptError
from headrace.formats.streaming import stored_values as values

_WHOLE, _REAL, _COUNT = struct.Struct("<q"), struct.Struct("<d"), struct.Struct("<I")
_OLDEST = 0x20  # a first byte above it begins JSON


def nested(data: memoryview) -> Any:
    """The list, the dict or the value.

    Raises:
        CorruptError: it is none, or ends early or late.
    """
    if len(data) and data[0] > _OLDEST:
        return values.json_value(data)
    reader = _Reader(data)
    try:
        value = reader.value()
    except RecursionError:
        raise CorruptError("it nests too deeply") from None
    if reader.at != len(data):
        raise CorruptError(f"it ends at byte {reader.at} of {len(data)}")
    return value


class _Reader:
    """Reads on from `at`. Believes no count that the bytes left could not hold."""

    def __init__(self, data: memoryview) -> None:
        self._data, self.at = data, 0

    def value(self) -> Any:
        tag = self._take(1)[0]
        if tag >= len(_TAGS):
            raise CorruptError(f"tag {tag} is not known")
        return _TAGS[tag](self)

    def _take(self, size: int) -> memoryview:
        start, self.at = self.at, self.at + size
        if self.at > len(self._data):
            raise CorruptError(f"it ends early, at byte {len(self._data)}")
        return self._data[start : self.at]

    def _count(self) -> int:
        return _COUNT.unpack(self._take(4))[0]

    def packed(self) -> Any:
        return values.json_value(self._take(self._count()))

    def text(self) -> str:
        return values.text(self._take(self._count()))

    def whole(self) -> int:
        return _WHOLE.unpack(self._take(8))[0]

    def real(self) -> float:
        return _REAL.unpack(self._take(8))[0]

    def flag(self) -> bool:
        return self._take(1)[0] != 0

    def nothing(self) -> None:
        return None

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self._count())]

    def wholes(self) -> list[int]:
        return np.frombuffer(self._take(8 * self._count()), "<i8").tolist()

    def reals(self) -> list[float]:
        return np.frombuffer(self._take(8 * self._count()), "<f8").tolist()

    def flags(self) -> list[bool]:
        return [one != 0 for one in self._take(self._count())]

    def mapping(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(self._count()):
            key = self.text()
            found[key] = self.value()
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Dicts of the same keys: the keys once, then the values of one after the other."""
        rows, columns = self._count(), self._count()
        keys = [self.text() for _ in range(columns)]
        if not keys:
            raise CorruptError("rows without columns")
        return [{key: self._cell() for key in keys} for _ in range(rows)]

    def _cell(self) -> Any:
        tag = self._take(1)[0] - 0x10
        if not 0 <= tag < len(_CELLS):
            raise CorruptError(f"a cell's tag {tag + 0x10} is not known")
        return _CELLS[tag](self)


_TAGS: tuple[Callable[[_Reader], Any], ...] = (
    _Reader.packed,
    _Reader.texts,
    _Reader.wholes,
    _Reader.reals,
    _Reader.flags,
    _Reader.mapping,
    _Reader.rows,
    _Reader.text,
    _Reader.whole,
    _Reader.real,
    _Reader.flag,
    _Reader.nothing,
)
_CELLS: tuple[Callable[[_Reader], Any], ...] = (
    _Reader.nothing,
    _Reader.text,
    _Reader.whole,
    _Reader.real,
    _Reader.flag,
)
