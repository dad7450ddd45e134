"""What kinds of numbers tensors hold, by the names of NumPy, of the Open Inference Protocol and of TensorFlow.

Sources: "Tensor Data Types" of the Open Inference Protocol v2; ``tensorflow/core/framework/types.proto``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.base.errors import InputError, UnsupportedError

Array: TypeAlias = npt.NDArray[Any]
BYTES: Final = "bytes"
"""The kind of a tensor whose elements are byte strings; as an array, of `object`."""
_NAMES: Final = (
    ("bool", "BOOL", "DT_BOOL"),
    ("uint8", "UINT8", "DT_UINT8"), ("uint16", "UINT16", "DT_UINT16"),
    ("uint32", "UINT32", "DT_UINT32"), ("uint64", "UINT64", "DT_UINT64"),
    ("int8", "INT8", "DT_INT8"), ("int16", "INT16", "DT_INT16"), ("int32", "INT32", "DT_INT32"),
    ("int64", "INT64", "DT_INT64"),
    ("float16", "FP16", "DT_HALF"), ("float32", "FP32", "DT_FLOAT"), ("float64", "FP64", "DT_DOUBLE"),
    (BYTES, "BYTES", "DT_STRING"),
)  # fmt: skip
TO_V2: Final = {kind: v2 for kind, v2, _ in _NAMES}
FROM_V2: Final = {v2: kind for kind, v2, _ in _NAMES}
TO_TENSORFLOW: Final = {kind: name for kind, _, name in _NAMES}
_NUMPY: Final = {kind: np.dtype(object if kind == BYTES else kind) for kind, _, _ in _NAMES}


def numpy_type(kind: str) -> np.dtype[Any]:
    """Of a kind of this module's."""
    return _NUMPY[kind]


def kind_of(array: Array) -> str:
    """Raises UnsupportedError: numbers that no protocol has a name for."""
    if array.dtype.kind in "OSU":
        return BYTES
    name = array.dtype.name
    if name not in _NUMPY:
        raise UnsupportedError(f"a tensor of {name} has no form in any protocol", hint="have the model cast it")
    return name


def kind_named(name: str) -> str:
    """A kind by a card's, ONNX's or TensorFlow's name for it: ``float32``, ``tensor(float)``, ``DT_HALF``.

    Raises UnsupportedError.
    """
    plain = name.removeprefix("tensor(").removesuffix(")").lower().removeprefix("torch.").removeprefix("dt_")
    kind = _OTHERS.get(plain, plain)
    if kind not in _NUMPY:
        hint = f"kinds that are served: {', '.join(_NUMPY)}"
        raise UnsupportedError(f"tensors of {name} cannot be served", hint=hint)
    return kind


_OTHERS: Final = {
    "float": "float32", "double": "float64", "half": "float16", "long": "int64", "int": "int32", "short": "int16",
    "char": "int8", "byte": "uint8", "string": BYTES, "str": BYTES, "object": BYTES,
    **{v2.lower(): kind for kind, v2, _ in _NAMES},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input or output of a model.

    `kind`: of this module's. `shape`: with -1 for a length that each request chooses; None: any number of dimensions.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None = None

    def takes(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape will do."""
        mine = self.shape
        if mine is None or mine == shape:
            return True
        if len(mine) != len(shape):
            return False
        return all(wanted in (-1, given) for wanted, given in zip(mine, shape, strict=True))

    @property
    def told_shape(self) -> str:
        """As messages name it: ``[?, 64]``."""
        if self.shape is None:
            return "any shape"
        return "[" + ", ".join("?" if one < 0 else str(one) for one in self.shape) + "]"


@dataclass(frozen=True, slots=True)
class Signature:
    """What a model takes and gives, by one name. Frozen; any thread."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def input(self, name: str) -> Tensor:
        """Raises InputError: the model has no such input."""
        for one in self.inputs:
            if one.name == name:
                return one
        known = ", ".join(repr(one.name) for one in self.inputs)
        raise InputError(f"{name!r}: the model has no such input", hint=f"its inputs: {known}")

    def check(self, inputs: dict[str, Array]) -> None:
        """Raises InputError: an input is missing, or has another kind or shape; it is named."""
        for one in self.inputs:
            array = inputs.get(one.name)
            if array is None:
                raise InputError(f"{one.name!r}: this input is missing", hint=f"{one.kind} {one.told_shape}")
            if array.dtype != _NUMPY[one.kind]:
                raise InputError(f"{one.name!r} is {array.dtype.name}, where the model takes {one.kind}")
            if not one.takes(array.shape):
                raise InputError(
                    f"{one.name!r} has the shape {list(array.shape)}, where the model takes {one.told_shape}"
                )
        if len(inputs) > len(self.inputs):
            known = {one.name for one in self.inputs}
            for name in inputs.keys() - known:
                self.input(name)

    @property
    def rows(self) -> bool:
        """Whether every tensor's first length is free, as a batch's is."""
        every = (*self.inputs, *self.outputs)
        return bool(self.inputs) and all(one.shape is None or one.shape[:1] == (-1,) for one in every)
