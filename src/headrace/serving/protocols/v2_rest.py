"""The Open Inference Protocol v2 over REST, with the extension for binary tensors.

Sources: the protocol's ``inference_rest`` specification; Triton's ``extension_binary_data`` and
``extension_parameters``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from headrace.base.errors import InputError, UnsupportedError
from headrace.serving.packing import packed, unpacked
from headrace.serving.protocols.json_text import array_of, decoded, encoded
from headrace.serving.tensors import BYTES, FROM_V2, TO_V2, Array, Signature, Tensor, kind_of

LENGTH_HEADER: Final = "Inference-Header-Content-Length"
_MOST_ELEMENTS: Final = 1 << 40  # of a tensor: a product that no machine has, and that fits an int64
_NOT_HERE: Final = {
    "shared_memory_region": "shared memory", "sequence_id": "sequences", "classification": "classification",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Infer:
    """A request. `wanted`: names of outputs, each with whether its bytes are asked for; empty: all, as `binary` says.
    `seconds`: by when the client wants an answer; None: it did not say.
    """

    inputs: dict[str, Array]
    wanted: tuple[tuple[str, bool], ...] = ()
    binary: bool = False
    id: str = ""
    seconds: float | None = None


def read(body: bytes | memoryview, header_length: str | None, signature: Signature) -> Infer:
    """`header_length`: the header that says how long the JSON before the binary tensors is.

    Raises InputError, which names the field.
    """
    text, rest = _parted(body, header_length)
    asked = _object(decoded(text), "the body")
    parameters = _object(asked.get("parameters") or {}, "parameters")
    _refuse(parameters, "parameters")
    tensors = asked.get("inputs")
    if not isinstance(tensors, list):
        raise InputError("inputs: a list of tensors is wanted")
    inputs: dict[str, Array] = {}
    for index, told in enumerate(cast("list[Any]", tensors)):
        name, array, rest = _input(_object(told, f"inputs[{index}]"), f"inputs[{index}]", rest, signature)
        if name in inputs:
            raise InputError(f"inputs[{index}].name: {name!r} is there twice")
        inputs[name] = array
    if len(rest):
        raise InputError(f"{len(rest)} bytes are left after the tensors that say binary_data_size")
    binary = bool(parameters.get("binary_data_output", False))
    wanted = _wanted(asked.get("outputs"), signature, binary=binary)
    return Infer(inputs, wanted, binary, _id(asked.get("id")), _seconds(parameters.get("timeout")))


def _parted(body: bytes | memoryview, header_length: str | None) -> tuple[memoryview, memoryview]:
    whole = memoryview(body)
    if header_length is None:
        return whole, whole[:0]
    if not header_length.isascii() or not header_length.isdigit() or len(header_length) > 18:
        raise InputError(f"{LENGTH_HEADER}: a number of bytes is wanted")
    length = int(header_length)
    if length > len(whole):
        raise InputError(f"{LENGTH_HEADER}: {length} is more than the {len(whole)} bytes of the body")
    return whole[:length], whole[length:]


def _input(told: dict[str, Any], field: str, rest: memoryview, signature: Signature) -> tuple[str, Array, memoryview]:
    name, datatype = told.get("name"), told.get("datatype")
    if not isinstance(name, str):
        raise InputError(f"{field}.name: a string is wanted")
    wanted = signature.input(name)
    kind = FROM_V2.get(datatype) if isinstance(datatype, str) else None
    if kind is None:
        raise InputError(f"{field}.datatype: {datatype!r} is not known", hint=", ".join(FROM_V2))
    if kind != wanted.kind:
        raise InputError(f"{field}.datatype: {name!r} is {TO_V2[wanted.kind]}, not {datatype}")
    shape = shape_of(told.get("shape"), field)
    parameters = _object(told.get("parameters") or {}, f"{field}.parameters")
    _refuse(parameters, f"{field}.parameters")
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in told:
            raise InputError(f"{field}.data: it is missing")
        return name, from_data(told["data"], wanted, shape, field), rest
    if "data" in told:
        raise InputError(f"{field}.data: not together with binary_data_size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise InputError(f"{field}.parameters.binary_data_size: a number of bytes is wanted")
    if size > len(rest):
        raise InputError(f"{field}.parameters.binary_data_size: {size} bytes, but {len(rest)} follow")
    return name, from_raw(kind, shape, rest[:size], field), rest[size:]


def shape_of(told: Any, field: str) -> tuple[int, ...]:
    """Raises InputError: no list of lengths, or more elements than anybody has."""
    if not isinstance(told, list) or not all(type(one) is int and one >= 0 for one in cast("list[Any]", told)):
        raise InputError(f"{field}.shape: a list of lengths is wanted")
    shape = tuple(cast("list[int]", told))
    # NumPy multiplies the lengths beside a 0 too
    if len(shape) > 32 or math.prod(one or 1 for one in shape) > _MOST_ELEMENTS:
        raise InputError(f"{field}.shape: it is too large")
    return shape


def from_raw(kind: str, shape: tuple[int, ...], data: bytes | memoryview, field: str) -> Array:
    """Raises InputError."""
    try:
        return unpacked(kind, shape, data)
    except InputError as error:
        raise InputError(f"{field}: {error.reason}") from None


def from_data(data: Any, wanted: Tensor, shape: tuple[int, ...], field: str) -> Array:
    """A tensor of JSON's values, nested or flat. Raises InputError."""
    array = array_of(data, wanted, f"{field}.data")
    if array.shape == shape:
        return array
    if array.size != math.prod(shape):
        raise InputError(f"{field}.data: {array.size} elements, where the shape {list(shape)} has {math.prod(shape)}")
    return array.reshape(shape)


def _wanted(told: Any, signature: Signature, *, binary: bool) -> tuple[tuple[str, bool], ...]:
    if told is None:
        return ()
    if not isinstance(told, list):
        raise InputError("outputs: a list is wanted")
    found: list[tuple[str, bool]] = []
    known = {one.name for one in signature.outputs}
    for index, one in enumerate(cast("list[Any]", told)):
        field = f"outputs[{index}]"
        output = _object(one, field)
        name = output.get("name")
        if name not in known:
            raise InputError(f"{field}.name: the model has no output {name!r}", hint=", ".join(sorted(known)))
        parameters = _object(output.get("parameters") or {}, f"{field}.parameters")
        _refuse(parameters, f"{field}.parameters")
        found.append((cast("str", name), bool(parameters.get("binary_data", binary))))
    return tuple(found)


def _refuse(parameters: dict[str, Any], field: str) -> None:
    for name, what in _NOT_HERE.items():
        if parameters.get(name):
            raise UnsupportedError(f"{field}.{name}: {what} cannot be had here")


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{field}: an object is wanted")
    return cast("dict[str, Any]", value)


def _id(told: Any) -> str:
    if told is not None and not isinstance(told, str):
        raise InputError("id: a string is wanted")
    return told or ""


def _seconds(told: Any) -> float | None:
    """Triton's ``timeout``, in microseconds; 0: none."""
    if not told:
        return None
    if isinstance(told, bool) or not isinstance(told, int | float) or told < 0:
        raise InputError("parameters.timeout: a number of microseconds is wanted")
    return told / 1e6


@dataclass(frozen=True, slots=True)
class Written:
    """An answer. `json_size`: how much of it is JSON, where tensors follow as bytes; None: all."""

    parts: list[bytes | memoryview]
    json_size: int | None = None


def write(model: str, version: int, asked: Infer, outputs: Mapping[str, Array]) -> Written:
    """The body of an answer."""
    wanted = asked.wanted or tuple((name, asked.binary) for name in outputs)
    told: list[dict[str, Any]] = []
    raw: list[bytes | memoryview] = []
    for name, binary in wanted:
        array = outputs[name]
        kind = kind_of(array)
        one: dict[str, Any] = {"name": name, "datatype": TO_V2[kind], "shape": list(array.shape)}
        if binary:
            data = packed(array)
            one["parameters"] = {"binary_data_size": len(data)}
            raw.append(data)
        else:
            one["data"] = _data(array, kind)
        told.append(one)
    answer: dict[str, Any] = {"model_name": model, "model_version": str(version), "outputs": told}
    if asked.id:
        answer["id"] = asked.id
    text = encoded(answer)
    return Written([text, *raw], len(text)) if any(binary for _, binary in wanted) else Written([text])


def _data(array: Array, kind: str) -> list[Any]:
    if kind != BYTES:
        return array.ravel().tolist()
    flat = np.ravel(array).tolist()
    return [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in flat]


def metadata(model: str, versions: list[int], platform: str, signature: Signature) -> bytes:
    """What a GET of a model answers."""
    return encoded(
        {
            "name": model,
            "versions": [str(one) for one in versions],
            "platform": platform,
            "inputs": [_described(one) for one in signature.inputs],
            "outputs": [_described(one) for one in signature.outputs],
        }
    )


def _described(one: Tensor) -> dict[str, Any]:
    return {"name": one.name, "datatype": TO_V2[one.kind], "shape": list(one.shape if one.shape is not None else (-1,))}


def server(version: str) -> bytes:
    """What a GET of ``/v2`` answers."""
    return encoded({"name": "headrace", "version": version, "extensions": list(EXTENSIONS)})


EXTENSIONS: Final = ("binary_tensor_data", "model_repository", "parameters", "statistics")
