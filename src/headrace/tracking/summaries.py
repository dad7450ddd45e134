"""Scalars in one record of a TensorBoard event file, as TensorFlow and `torch.utils.tensorboard` write them.

Sources, of the TensorFlow project: ``core/util/event.proto`` (Event), ``core/framework/summary.proto`` (Summary, its
Value and SummaryMetadata), ``tensor.proto`` (TensorProto), ``types.proto`` (DataType). A scalar is a ``simple_value``,
or a tensor of one number whose metadata names the plugin ``scalars``. Whatever else there is, is skipped, not decoded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headrace.tracking.points import Point
from headrace.tracking.protobuf import BYTES, FIXED32, FIXED64, VARINT, double, fields, signed, single, varints

_SCALARS: Final = b"scalars"
_LATEST_S = 1e12
"""The year 33658: a later time is a mistake."""
_BFLOAT16, _HALF = 14, 19  # DataType (tensorflow/core/framework/types.proto)
_DTYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", _BFLOAT16: "<u2", 17: "<u2",
    _HALF: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip
"""DataType: how `tensor_content` holds it."""
_FLOATS, _DOUBLES, _HALVES = 5, 6, 13  # TensorProto's float_val, double_val, half_val
_WHOLE = (7, 10, 11, 16, 17)
"""TensorProto's int_val, int64_val, bool_val, uint32_val, uint64_val."""


class _Value(NamedTuple):
    tag: str
    simple: float | None
    tensor: memoryview | None
    plugin: bytes | None


def scalars(event: memoryview, prefix: str, known: set[str]) -> list[Point]:
    """The scalars of one Event, each named `prefix` + tag.

    `known`: tags that were said to be scalars before, as a writer says it once; new ones are added.
    Raises ValueError: this is no Event.
    """
    wall, step = 0.0, 0
    summaries: list[memoryview] = []
    for number, kind, value, data in fields(event):
        if (number, kind) == (1, FIXED64):
            wall = double(data)
        elif (number, kind) == (2, VARINT):
            step = signed(value)
        elif (number, kind) == (5, BYTES):
            summaries.append(data)
    time_us = int(wall * 1e6) if 0 <= wall < _LATEST_S else 0
    found: list[Point] = []
    for summary in summaries:
        for number, kind, _, data in fields(summary):
            if (number, kind) == (1, BYTES):
                one = _value(data)
                if (value := _scalar(one, known)) is not None:
                    found.append(Point(time_us, prefix + one.tag, value, step))
    return found


def _value(message: memoryview) -> _Value:
    tag, simple, tensor, plugin = "", None, None, None
    for number, kind, _, data in fields(message):
        if (number, kind) == (1, BYTES):
            tag = bytes(data).decode("utf-8", "replace")
        elif (number, kind) == (2, FIXED32):
            simple = single(data)
        elif (number, kind) == (8, BYTES):
            tensor = data
        elif (number, kind) == (9, BYTES):
            plugin = _plugin(data)
    return _Value(tag, simple, tensor, plugin)


def _plugin(metadata: memoryview) -> bytes | None:
    """SummaryMetadata.plugin_data.plugin_name."""
    for number, kind, _, data in fields(metadata):
        if (number, kind) == (1, BYTES):
            return next((bytes(name) for at, wire, _, name in fields(data) if (at, wire) == (1, BYTES)), b"")
    return None


def _scalar(one: _Value, known: set[str]) -> float | None:
    if one.simple is not None:
        return one.simple
    if one.plugin == _SCALARS:
        known.add(one.tag)
    elif one.plugin is not None or one.tag not in known:
        return None
    return None if one.tensor is None else _number(one.tensor)


def _number(tensor: memoryview) -> float | None:
    """The one number of a TensorProto; None: it has several, or none."""
    dtype, numbers = 0, list[float]()
    content: memoryview | None = None
    for number, kind, value, data in fields(tensor):
        if (number, kind) == (1, VARINT):
            dtype = value
        elif (number, kind) == (4, BYTES):
            content = data
        elif number in (_FLOATS, _DOUBLES) and kind != VARINT:
            numbers += _floats(data, "<f4" if number == _FLOATS else "<f8")
        elif number in _WHOLE:
            numbers += [signed(one) for one in ([value] if kind == VARINT else varints(data))]
        elif number == _HALVES:
            halves = np.array([value] if kind == VARINT else varints(data), np.uint64).astype("<u2").tobytes()
            numbers += _contained(memoryview(halves), dtype)
    if content is not None and dtype in _DTYPES:
        numbers += _contained(content, dtype)
    return float(numbers[0]) if len(numbers) == 1 else None


def _contained(content: memoryview, dtype: int) -> list[float]:
    if dtype == _BFLOAT16:  # the upper half of a float32
        return _floats(memoryview((np.frombuffer(content, "<u2").astype("<u4") << 16).tobytes()), "<f4")
    return _floats(content, _DTYPES.get(dtype, "<f4"))


def _floats(data: memoryview, layout: str) -> list[float]:
    """Of the first two numbers: who has more is no scalar."""
    width = np.dtype(layout).itemsize
    if len(data) % width:
        raise ValueError("a tensor ends in the middle of a number")
    return np.frombuffer(data[: 2 * width], layout).astype(np.float64).tolist()
