"""A model inside a runtime's process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.base.errors import InputError
from headrace.serving.runtimes.frames import Signature
from headrace.serving.tensors import Array


@dataclass(frozen=True, slots=True)
class Inner:
    """`run` is given a signature's name and inputs that fit it."""

    signatures: Mapping[str, Signature]
    platform: str
    run: Callable[[str, Mapping[str, Array]], Mapping[str, Array]]
    batched: bool | None = None


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
