"""TensorFlow Serving's REST API, v1: predictions in rows and in columns, metadata, status.

Source: "RESTful API" of TensorFlow Serving's documentation.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import numpy as np

from headrace.base.errors import InputError, InternalError
from headrace.serving.protocols.json_text import array_of, decoded, encoded, is_b64
from headrace.serving.runtimes.runtime import DEFAULT
from headrace.serving.tensors import TO_TENSORFLOW, Array, Signature, Tensor

Form = Literal["row", "column"]
_KNOWN: Final = frozenset({"signature_name", "instances", "inputs"})


@dataclass(frozen=True, slots=True)
class Predict:
    """A request. `signature`: its name; `form`: also the answer's."""

    signature: str
    inputs: dict[str, Array]
    form: Form


def read(body: bytes | memoryview, signatures: Mapping[str, Signature]) -> Predict:
    """Raises InputError, which names the field."""
    asked = decoded(body)
    if not isinstance(asked, dict):
        raise InputError("the body is no JSON object")
    asked = cast("dict[str, Any]", asked)
    name = asked.get("signature_name") or DEFAULT
    signature = signatures.get(name) if isinstance(name, str) else None
    if signature is None:
        raise InputError(f"signature_name: the model has no {name!r}", hint=f"it has {', '.join(signatures)}")
    if ("instances" in asked) == ("inputs" in asked):
        raise InputError("one of instances and inputs is wanted")
    if unknown := asked.keys() - _KNOWN:
        raise InputError(f"{min(unknown)}: there is no such field", hint="signature_name, instances, inputs")
    if "instances" in asked:
        return Predict(name, _rows(asked["instances"], signature), "row")
    return Predict(name, _columns(asked["inputs"], signature), "column")


def _rows(instances: Any, signature: Signature) -> dict[str, Array]:
    if not isinstance(instances, list) or not instances:
        raise InputError("instances: a list of one or more is wanted")
    listed = cast("list[Any]", instances)
    first = listed[0]
    if not isinstance(first, dict) or is_b64(cast("Any", first)):
        only = _only(signature, "instances")
        return {only.name: array_of(listed, only, "instances")}
    columns: dict[str, list[Any]] = {name: [] for name in cast("dict[str, Any]", first)}
    for index, one in enumerate(listed):
        if not isinstance(one, dict) or one.keys() != columns.keys():
            raise InputError(f"instances[{index}]: it has not the same names as the first", hint=", ".join(columns))
        for name, column in columns.items():
            column.append(one[name])
    return {name: array_of(column, signature.input(name), f"instances.{name}") for name, column in columns.items()}


def _columns(inputs: Any, signature: Signature) -> dict[str, Array]:
    if isinstance(inputs, dict) and not is_b64(cast("Any", inputs)):
        named = cast("dict[str, Any]", inputs)
        return {name: array_of(value, signature.input(name), f"inputs.{name}") for name, value in named.items()}
    only = _only(signature, "inputs")
    return {only.name: array_of(inputs, only, "inputs")}


def _only(signature: Signature, field: str) -> Tensor:
    if len(signature.inputs) != 1:
        known = ", ".join(one.name for one in signature.inputs)
        raise InputError(f"{field}: the model has several inputs, so each value is wanted with its name", hint=known)
    return signature.inputs[0]


def write(form: Form, outputs: Mapping[str, Array], rows: int) -> bytes:
    """The body of an answer. `rows`: how many instances were asked about.

    Raises InternalError: rows were asked for, and an output has another number of them.
    """
    if form == "column":
        values = {name: _value(name, array) for name, array in outputs.items()}
        return encoded({"outputs": values if len(values) != 1 else next(iter(values.values()))})
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise InternalError(
                f"the output {name!r} has the shape {list(array.shape)}, which is not one of {rows} rows",
                hint="ask in the column form: inputs instead of instances",
            )
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return encoded({"predictions": _value(name, array)})
    columns = {name: _value(name, array) for name, array in outputs.items()}
    return encoded({"predictions": [{name: columns[name][row] for name in columns} for row in range(rows)]})


def _value(name: str, array: Array) -> Any:
    """As JSON. Strings of an output whose name ends in ``_bytes`` as Base64, and those that are no UTF-8."""
    if array.dtype.kind not in "OSU":
        return array.tolist()
    whole = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        one = array[place]
        raw = one if isinstance(one, bytes) else str(one).encode()
        whole[place] = _string(raw, binary=name.endswith("_bytes"))
    return whole.tolist()


def _string(raw: bytes, *, binary: bool) -> str | dict[str, str]:
    if not binary:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(raw).decode()}


def metadata(model: str, version: int, signatures: Mapping[str, Signature]) -> bytes:
    """What ``/metadata`` answers."""
    told = {
        name: {
            "inputs": {one.name: _tensor(one) for one in signature.inputs},
            "outputs": {one.name: _tensor(one) for one in signature.outputs},
            "method_name": "tensorflow/serving/predict",
        }
        for name, signature in signatures.items()
    }
    spec = {"name": model, "signature_name": "", "version": str(version)}
    return encoded({"model_spec": spec, "metadata": {"signature_def": {"signature_def": told}}})


def _tensor(one: Tensor) -> dict[str, Any]:
    dims = [{"size": str(length), "name": ""} for length in one.shape or ()]
    return {
        "dtype": TO_TENSORFLOW[one.kind],
        "tensor_shape": {"dim": dims, "unknown_rank": one.shape is None},
        "name": f"{one.name}:0",
    }


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """`state`: ``START``, ``LOADING``, ``AVAILABLE``, ``UNLOADING`` or ``END``; `reason`: empty while all is well."""

    version: int
    state: str
    reason: str = ""


def status(versions: list[VersionStatus]) -> bytes:
    """What a GET of a model answers, the newest version first."""
    told = [
        {
            "version": str(one.version),
            "state": one.state,
            "status": {"error_code": "UNKNOWN" if one.reason else "OK", "error_message": one.reason},
        }
        for one in sorted(versions, key=lambda one: -one.version)
    ]
    return encoded({"model_version_status": told})
