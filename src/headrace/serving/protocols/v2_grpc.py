"""Messages of the Open Inference Protocol v2 over gRPC into tensors, and back. Raw contents, and those by type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from headrace.base.errors import InputError
from headrace.serving.packing import packed
from headrace.serving.protocols.v2_rest import Infer, from_raw, shape_of
from headrace.serving.tensors import BYTES, FROM_V2, TO_V2, Array, Signature, kind_of, numpy_type

_CONTENTS: Final = {
    "bool": "bool_contents", "int8": "int_contents", "int16": "int_contents", "int32": "int_contents",
    "int64": "int64_contents", "uint8": "uint_contents", "uint16": "uint_contents", "uint32": "uint_contents",
    "uint64": "uint64_contents", "float32": "fp32_contents", "float64": "fp64_contents", BYTES: "bytes_contents",
}  # fmt: skip
"""In which field of the contents a kind's elements are; FP16 is only taken raw."""


def read(request: Any, signature: Signature) -> Infer:
    """Raises InputError, which names the field."""
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise InputError(f"raw_input_contents: {len(raw)} of them, but {len(request.inputs)} inputs")
    inputs: dict[str, Array] = {}
    for index, told in enumerate(request.inputs):
        field = f"inputs[{index}]"
        wanted = signature.input(told.name)
        kind = FROM_V2.get(told.datatype)
        if kind is None or kind != wanted.kind:
            raise InputError(f"{field}.datatype: {told.name!r} is {TO_V2[wanted.kind]}, not {told.datatype!r}")
        if told.name in inputs:
            raise InputError(f"{field}.name: {told.name!r} is there twice")
        shape = shape_of(list(told.shape), field)
        if told.parameters and "shared_memory_region" in told.parameters:
            raise InputError(f"{field}.parameters.shared_memory_region: shared memory cannot be had here")
        inputs[told.name] = from_raw(kind, shape, raw[index], field) if raw else _typed(told, kind, shape, field)
    known = {one.name for one in signature.outputs}
    for index, told in enumerate(request.outputs):
        if told.name not in known:
            raise InputError(f"outputs[{index}].name: the model has no output {told.name!r}")
    return Infer(inputs, tuple((told.name, True) for told in request.outputs), True, request.id, _seconds(request))


def _typed(told: Any, kind: str, shape: tuple[int, ...], field: str) -> Array:
    name = _CONTENTS.get(kind)
    if name is None:
        raise InputError(f"{field}: {told.datatype} is taken as raw_input_contents only")
    values = getattr(told.contents, name)
    target = numpy_type(kind)
    found = np.empty(len(values), object) if kind == BYTES else np.asarray(values)
    if kind == BYTES:
        found[:] = list(values)
    made = found.astype(target)
    if kind != BYTES and target.kind in "iu" and not np.array_equal(made, found):
        raise InputError(f"{field}.contents: a number does not fit into {told.datatype}")
    if made.size != int(np.prod(shape)):
        raise InputError(f"{field}.contents: {made.size} elements, where the shape {list(shape)} has {np.prod(shape)}")
    return made.reshape(shape)


def _seconds(request: Any) -> float | None:
    if "timeout" not in request.parameters:
        return None
    told = request.parameters["timeout"]
    value = told.int64_param or told.uint64_param or told.double_param
    return value / 1e6 if value else None


def write(response: Any, model: str, version: int, asked: Infer, outputs: Mapping[str, Array]) -> Any:
    """Fill an empty ``ModelInferResponse``; returns it."""
    response.model_name, response.model_version, response.id = model, str(version), asked.id
    names = [name for name, _ in asked.wanted] or list(outputs)
    for name in names:
        array = outputs[name]
        response.outputs.add(name=name, datatype=TO_V2[kind_of(array)], shape=list(array.shape))
        response.raw_output_contents.append(bytes(packed(array)))
    return response
