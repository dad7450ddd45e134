"""TensorFlow's SavedModel, inside a runtime's process; its signatures are its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from headrace.base.errors import InputError, UnsupportedError
from headrace.serving.runtimes.frames import Load, Signature, Tensor
from headrace.serving.runtimes.inner import Inner
from headrace.serving.tensors import Array, kind_named


def load_saved_model(load: Load) -> Inner:
    """Raises UnsupportedError: TensorFlow is not installed. InputError: no signature. What TensorFlow raises."""
    if find_spec("tensorflow") is None:
        raise UnsupportedError("a SavedModel needs TensorFlow", hint="pip install 'headrace[tf]'")
    import tensorflow as tf  # pyright: ignore[reportMissingImports]

    flow: Any = tf
    flow.config.threading.set_intra_op_parallelism_threads(max(1, load.threads))
    model = flow.saved_model.load(load.folder)
    functions: dict[str, Any] = {
        name: one for name, one in model.signatures.items() if not name.startswith("__saved_model")
    }
    if not functions:
        raise InputError("the SavedModel has no signature", hint="save it with signatures={'serving_default': …}")
    signatures = {name: _signature(one) for name, one in functions.items()}

    def run(signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        _ = model  # its variables live as long as it does
        given = {name: flow.constant(value) for name, value in inputs.items()}
        return {str(name): np.asarray(value.numpy()) for name, value in functions[signature](**given).items()}

    return Inner(signatures, "tensorflow_savedmodel", run)


def _signature(function: Any) -> Signature:
    _, inputs = function.structured_input_signature
    return Signature(
        tuple(_tensor(name, one) for name, one in sorted(inputs.items())),
        tuple(_tensor(name, one) for name, one in sorted(function.structured_outputs.items())),
    )


def _tensor(name: str, told: Any) -> Tensor:
    shape = None if told.shape.rank is None else tuple(-1 if one is None else int(one) for one in told.shape)
    return Tensor(name, kind_named(told.dtype.name), shape)
