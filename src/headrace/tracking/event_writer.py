"""TensorBoard event files with scalars, written. Framing as in `headrace.tracking.events`, messages as in `summaries`.

A file begins with an Event that says ``file_version: "brain.Event:2"``; each point is an Event of its own with one
``simple_value``, a float32. TensorBoard reads on where it stopped, so a file that grows is followed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from headrace.tracking.events import masked_crc
from headrace.tracking.points import Point

_VERSION: Final = b"brain.Event:2"
_LARGEST: Final = 3.4028234663852886e38
"""Of float32, which TensorBoard's scalars are."""


class EventWriter:
    """Appends to one file, which is made. One thread. Raises OSError."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "wb") as file:
            file.write(_record(_double(1, 0.0) + _bytes(3, _VERSION)))

    def add(self, points: Iterable[Point]) -> int:
        """Each point with its step, 0 where it has none; returns their number."""
        records = [_record(_event(one)) for one in points]
        if records:
            with open(self._path, "ab") as file:
                file.write(b"".join(records))
        return len(records)


def _event(point: Point) -> bytes:
    value = min(max(point.value, -_LARGEST), _LARGEST) if abs(point.value) != float("inf") else point.value
    one = _bytes(1, point.name.encode("utf-8", "replace")) + b"\x15" + struct.pack("<f", value)
    step = b"\x10" + _varint((point.step or 0) & (1 << 64) - 1)
    return _double(1, point.time_us / 1e6) + step + _bytes(5, _bytes(1, one))


def _record(data: bytes) -> bytes:
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _bytes(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
