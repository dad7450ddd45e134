"""What a model takes and gives: read from ONNX and from TensorFlow SavedModels, or from a file that says it.

Formats: https://github.com/onnx/onnx/blob/main/onnx/onnx.proto, TensorFlow's ``saved_model.proto``,
``meta_graph.proto``, ``tensor_shape.proto`` and ``types.proto``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from headrace.base.errors import InputError
from headrace.models.card import Signature, Tensor, signature_from
from headrace.tracking.protobuf import BYTES, fields, signed

_log = logging.getLogger("headrace.models")
DEFAULT: Final = "serving_default"
"""The one signature of a model whose format knows no names for them, as TensorFlow Serving calls it."""
LARGEST: Final = 512 << 20
"""Bytes of a file that is read for its signature, at most."""
_ONNX: Final = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
}  # fmt: skip
_TENSORFLOW: Final = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64",
    9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip
_NOT_FOR_USE: Final = "__saved_model_init_op"


def signatures(format_: str, data: bytes) -> Mapping[str, Signature]:
    """Of a model whose entry holds `data`; none where it says nothing, or cannot be read, which is logged."""
    readers = {"onnx": _of_onnx, "saved_model": _of_saved_model}
    if format_ not in readers:
        return {}
    try:
        return readers[format_](data)
    except ImportError:
        _log.warning("the signature is not read: the package onnx is not installed (pip install headrace[models])")
    except Exception as error:  # whatever a parser of foreign bytes raises
        _log.warning("the signature is not read: %s", error)
    return {}


def from_file(path: str) -> Mapping[str, Signature]:
    """Of a JSON file: ``{"inputs": [{"name", "dtype", "shape"}, …], "outputs": […]}``, or names to such ones.

    Raises InputError.
    """
    hint = 'it holds {"inputs": [{"name": "x", "dtype": "float32", "shape": [null, 64]}], "outputs": […]}'
    try:
        with open(path, "rb") as file:
            return from_told(json.load(file))
    except OSError as error:
        raise InputError(f"the signature cannot be read: {error.strerror}", path=path) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is no signature: {error}", path=path, hint=hint) from error


def from_told(told: Mapping[str, Any]) -> dict[str, Signature]:
    """The same of what such a file holds. Raises ValueError, KeyError, TypeError, AttributeError."""
    named = cast("Mapping[str, Mapping[str, Any]]", {DEFAULT: told} if "inputs" in told else told)
    if not named:
        raise ValueError("it is empty")
    return {name: signature_from(one) for name, one in named.items()}


def _of_onnx(data: bytes) -> dict[str, Signature]:
    import onnx

    graph = onnx.load_model_from_string(data).graph
    weights = {one.name for one in graph.initializer}
    inputs = tuple(_onnx_tensor(one) for one in graph.input if one.name not in weights)
    return {DEFAULT: Signature(inputs, tuple(_onnx_tensor(one) for one in graph.output))}


def _onnx_tensor(value: Any) -> Tensor:
    told = value.type.tensor_type
    dtype = _ONNX.get(told.elem_type, "unknown")
    if not told.HasField("shape"):
        return Tensor(value.name, dtype)
    shape = [one.dim_value if one.HasField("dim_value") else one.dim_param or None for one in told.shape.dim]
    return Tensor(value.name, dtype, tuple(shape))


def _of_saved_model(data: bytes) -> dict[str, Signature]:
    """Of the first of its graphs that is for serving."""
    found: dict[str, Signature] = {}
    for graph in _messages(memoryview(data), 2):
        for pair in _messages(graph, 5):
            name, definition = _pair(pair)
            if name != _NOT_FOR_USE and not found.get(name):
                inputs = tuple(sorted(_tensors(definition, 1), key=lambda one: one.name))
                found[name] = Signature(inputs, tuple(sorted(_tensors(definition, 2), key=lambda one: one.name)))
    return found


def _tensors(definition: memoryview, field: int) -> Iterator[Tensor]:
    for pair in _messages(definition, field):
        name, told = _pair(pair)
        dtype, shape = "unknown", None
        for number, _, value, data in fields(told):
            if number == 2:
                dtype = _TENSORFLOW.get(value, "unknown")
            elif number == 3:
                shape = _shape(data)
        yield Tensor(name, dtype, shape)


def _shape(data: memoryview) -> tuple[int | None, ...] | None:
    """None: its rank is not known."""
    dims: list[int | None] = []
    for number, _, value, part in fields(data):
        if number == 3 and value:
            return None
        if number == 2:
            size = next((signed(one) for field, _, one, _ in fields(part) if field == 1), 0)
            dims.append(size if size >= 0 else None)
    return tuple(dims)


def _pair(data: memoryview) -> tuple[str, memoryview]:
    """An entry of a map with text for keys."""
    name, value = "", data[:0]
    for number, _, _, part in fields(data):
        if number == 1:
            name = bytes(part).decode()
        elif number == 2:
            value = part
    return name, value


def _messages(data: memoryview, field: int) -> Iterator[memoryview]:
    return (part for number, kind, _, part in fields(data) if number == field and kind == BYTES)
