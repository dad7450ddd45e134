"""Batches as TensorFlow wants them: their `tf.TypeSpec`s, and values that fit these.

TensorFlow comes as an argument, so that nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import numpy as np

from headrace.base.errors import InputError

Array: TypeAlias = "np.ndarray[Any, Any]"
_HINT = "map the samples to one shape and type, or pass signature="


def signature_of(tf: Any, value: Any, *, batched: bool, size: int | None, name: str = "the batch") -> Any:
    """The structure of `tf.TypeSpec`s of a batch like `value`.

    Args:
        tf: the module.
        value: a batch or, not `batched`, a sample.
        batched: the first axis is the batch.
        size: of every batch, or None where it varies.
        name: of the field, for messages.

    Raises:
        InputError: a field cannot be a tensor.
    """
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {key: signature_of(tf, one, batched=batched, size=size, name=repr(key)) for key, one in fields.items()}
    if isinstance(value, tuple):
        parts = enumerate(cast("tuple[Any, ...]", value))
        return tuple(signature_of(tf, one, batched=batched, size=size, name=f"field {n}") for n, one in parts)
    rows = _rows(value, name) if batched else None
    if rows is not None and len({one.shape[:1] for one in rows}) > 1:
        flat = _joined(rows, name)
        return tf.RaggedTensorSpec((size, None, *flat.shape[1:]), _dtype(tf, flat, name), ragged_rank=1)
    array = _array(value, name)
    shape = (size, *array.shape[1:]) if batched else array.shape
    return tf.TensorSpec(shape, _dtype(tf, array, name))


def convert(tf: Any, value: Any, spec: Any, name: str = "the batch") -> Any:
    """`value` as something of `spec`: arrays as they are, strings as arrays of bytes, ragged tensors.

    Raises:
        InputError: it does not fit; the field is named.
    """
    if isinstance(spec, Mapping):
        specs = cast("Mapping[str, Any]", spec)
        missing = [key for key in specs if key not in value] if isinstance(value, Mapping) else list(specs)
        if missing:
            raise InputError(f"{name} lacks {missing[0]!r}", hint="every batch must have the fields of the first one")
        return {key: convert(tf, value[key], one, repr(key)) for key, one in specs.items()}
    if isinstance(spec, tuple):
        specs = cast("tuple[Any, ...]", spec)
        if not isinstance(value, tuple) or len(cast("tuple[Any, ...]", value)) != len(specs):
            raise InputError(f"{name} is no tuple of {len(specs)}", hint="every batch must be like the first one")
        pairs = enumerate(zip(cast("tuple[Any, ...]", value), specs, strict=True))
        return tuple(convert(tf, one, wanted, f"field {n}") for n, (one, wanted) in pairs)
    if isinstance(spec, tf.TensorSpec):
        return _fitting(_array(value, name), spec.dtype.as_numpy_dtype, spec.shape, name)
    if isinstance(spec, tf.RaggedTensorSpec) and spec.ragged_rank == 1 and not isinstance(value, tf.RaggedTensor):
        rows = _rows(value, name) or []
        flat = _joined(rows, name) if rows else np.empty((0,), spec.dtype.as_numpy_dtype)
        flat = _fitting(flat, spec.dtype.as_numpy_dtype, spec.shape[1:], name)
        lengths = np.fromiter((len(one) for one in rows), np.int64, len(rows))
        return tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)
    return value  # some other kind that the user's signature names: TensorFlow checks it


def _fitting(array: Array, dtype: Any, shape: Any, name: str) -> Array:
    wanted = np.dtype(dtype)
    both_floats = array.dtype.kind == wanted.kind and wanted.kind in "fc"
    if not (np.can_cast(array.dtype, wanted, "safe") or both_floats) or (wanted.hasobject != array.dtype.hasobject):
        raise InputError(f"{name} is {_called(array)} where {_called(np.empty(0, wanted))} is expected", hint=_HINT)
    if not shape.is_compatible_with(array.shape):
        raise InputError(f"{name} is of shape {array.shape} where {shape} is expected", hint=_HINT)
    return array.astype(wanted, copy=False)


def _array(value: Any, name: str) -> Array:
    """One array of numbers, or of bytes (then of dtype object)."""
    if isinstance(value, np.ndarray):
        array = cast("Array", value)
        return array if _is_numeric(array.dtype) else _array(array.tolist(), name)
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        return np.array(value.encode() if isinstance(value, str) else bytes(value), dtype=object)
    if isinstance(value, (bool, int, float, complex, np.generic)):
        array = np.asarray(value)
        if _is_numeric(array.dtype):
            return array
    if isinstance(value, list) and value:
        return _stacked([_array(one, name) for one in cast("list[Any]", value)], name)
    kind = "an empty list" if isinstance(value, list) else type(value).__name__
    raise InputError(f"{name} holds {kind}, which cannot be a tensor", hint="map it away, or to an array")


def _stacked(parts: list[Array], name: str) -> Array:
    _alike(parts, {one.shape: one.shape for one in parts}, name)
    return np.stack(parts)


def _rows(value: Any, name: str) -> list[Array] | None:
    """The rows of a batch's field, each with a first axis of its own; None where they have none."""
    if not isinstance(value, (list, np.ndarray)):
        return None
    rows = [_array(one, name) for one in cast("list[Any]", value)]
    return rows if rows and all(one.ndim for one in rows) else None


def _joined(rows: list[Array], name: str) -> Array:
    """All rows behind each other; they may differ in their first axis only."""
    _alike(rows, {one.shape[1:]: one.shape for one in rows}, name)
    return np.concatenate(rows)


def _alike(parts: list[Array], shapes: Mapping[tuple[int, ...], tuple[int, ...]], name: str) -> None:
    if len(shapes) > 1:
        one, other, *_ = shapes.values()
        raise InputError(f"{name} is of different shapes, {one} and {other}", hint=_HINT)
    if len({one.dtype.hasobject for one in parts}) > 1:
        raise InputError(f"{name} mixes numbers and strings", hint=_HINT)


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Numbers, and types that libraries such as ml_dtypes add (bfloat16)."""
    return dtype.kind in "biufc" or dtype.isbuiltin == 2


def _dtype(tf: Any, array: Array, name: str) -> Any:
    try:
        return tf.string if array.dtype.hasobject else tf.as_dtype(array.dtype)
    except TypeError as error:
        raise InputError(f"{name} is {_called(array)}, which TensorFlow does not know", hint=_HINT) from error


def _called(array: Array) -> str:
    return "strings" if array.dtype.hasobject else str(array.dtype)
