"""A class of the model's own, ``module:Class``, inside a runtime's process.

``load(folder)`` is called once, with a folder of the version's files; ``predict(inputs)`` for each batch, with a dict
of NumPy arrays, and gives a dict of them. The class may say what it takes and gives, as ``signatures``: a dict of a
name to ``{"inputs": {name: (kind, shape)}, "outputs": {name: (kind, shape)}}`` with None for free lengths; else the
card does.
``batched = True``: rows of several requests may come together.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from headrace.base.errors import InputError
from headrace.serving.runtimes.frames import Load, Signature, Tensor
from headrace.serving.runtimes.inner import Inner, named
from headrace.serving.tensors import Array, kind_named, numpy_type


def load_class(load: Load) -> Inner:
    """Raises InputError: the class is not there, or tells no signature. What its own code raises."""
    sys.path.insert(0, load.folder)
    made = _class(load.hints.get("class", ""))()
    made.load(load.folder)
    signatures = {name: _signature(told) for name, told in getattr(made, "signatures", {}).items()} or load.signatures
    if not signatures:
        hint = "name inputs and outputs in model.json, or give the class an attribute `signatures`"
        raise InputError("neither the class nor model.json tells a signature", hint=hint)

    def run(signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        told = signatures[signature]
        given = named(told, made.predict(dict(inputs)))
        return {one.name: _array(one, given) for one in told.outputs}

    return Inner(signatures, "python", run, bool(getattr(made, "batched", False)))


def _class(name: str) -> Any:
    module, _, inside = name.partition(":")
    if not module or not inside:
        raise InputError(f"{name!r} names no class", hint="the card says it so: module:Class")
    found = getattr(importlib.import_module(module), inside, None)
    if found is None:
        raise InputError(f"the module {module} has no {inside}")
    return found


def _signature(told: Any) -> Signature:
    return Signature(_tensors(told["inputs"]), _tensors(told["outputs"]))


def _tensors(told: Mapping[str, Any]) -> tuple[Tensor, ...]:
    found: list[Tensor] = []
    for name, (kind, shape) in told.items():
        lengths = None if shape is None else tuple(-1 if one is None else int(one) for one in shape)
        found.append(Tensor(str(name), kind_named(str(kind)), lengths))
    return tuple(found)


def _array(told: Tensor, given: dict[str, object]) -> Array:
    if told.name not in given:
        raise InputError(f"the model gave no output {told.name!r}")
    found = np.asarray(cast("Any", given[told.name]))
    if found.dtype.kind == "c":  # NumPy would leave half of each number out
        raise InputError(f"the output {told.name!r} is {found.dtype.name}, which no protocol has a form for")
    return found.astype(numpy_type(told.kind), copy=False)
