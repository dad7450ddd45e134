"""A model inside a runtime's process: what each kind of model makes of its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.base.errors import InputError, UnsupportedError
from headrace.serving.runtimes.frames import Load, Signature
from headrace.serving.tensors import Array


@dataclass(frozen=True, slots=True)
class Inner:
    """`run` is given a signature's name and inputs that fit it."""

    signatures: Mapping[str, Signature]
    platform: str
    run: Callable[[str, Mapping[str, Array]], Mapping[str, Array]]
    batched: bool | None = None


def loaded(load: Load) -> Inner:
    """Raises UnsupportedError, InputError; what the model's own code and its framework raise."""
    if load.format in ("torch-export", "torchscript"):
        from headrace.serving.runtimes.pytorch import load_pytorch

        return load_pytorch(load)
    if load.format == "saved_model":
        from headrace.serving.runtimes.saved_model import load_saved_model

        return load_saved_model(load)
    if load.format == "python":
        from headrace.serving.runtimes.python_class import load_class

        return load_class(load)
    raise UnsupportedError(
        f"a model of the format {load.format!r} cannot be served",
        hint="served are onnx, torch-export, torchscript, saved_model and python",
    )


def named(signature: Signature, made: object) -> dict[str, object]:
    """What a model gave, by the names of its signature's outputs: a mapping, a sequence in their order, or one alone.

    Raises InputError.
    """
    if isinstance(made, Mapping):
        return {str(name): value for name, value in made.items()}
    several = tuple(made) if isinstance(made, tuple | list) else (made,)
    if len(several) != len(signature.outputs):
        raise InputError(f"the model gave {len(several)} outputs, where its signature has {len(signature.outputs)}")
    return {one.name: value for one, value in zip(signature.outputs, several, strict=True)}
