"""What a version must do before it serves: answer its recorded requests; and whether its rows may be run together.

That rows are independent cannot be seen from shapes: the first length of a sequence model may be time. So it is tried:
two inputs together must give what each gives alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.base.errors import CorruptError, HeadraceError
from headrace.serving.protocols import v2_rest
from headrace.serving.runtimes.runtime import DEFAULT, Runtime
from headrace.serving.tensors import BYTES, Array, Signature, Tensor, numpy_type

FILE: Final = "warmup.jsonl"
_FREE: Final = 4
"""What is taken for a free length, where no request is recorded that says another."""
_TIMES: Final = 5
_ENOUGH_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Warmed:
    """`together`: by signature, whether requests may share a batch; `row_s`: seconds that a row takes."""

    together: Mapping[str, bool]
    row_s: float


def warm(runtime: Runtime, recorded: bytes | None, known: Mapping[str, bool] | None = None) -> Warmed:
    """Run what is recorded, then try whether rows are independent. `recorded`: the version's ``warmup.jsonl``; `known`:
    nothing more is tried, since this is known of it.

    Raises CorruptError: a recorded request fails.
    """
    signature = runtime.signatures.get(DEFAULT) or next(iter(runtime.signatures.values()))
    requests = [_answered(runtime, line, number, signature) for number, line in _lines(recorded)]
    if known is not None:
        return Warmed(known, np.inf)
    together = {name: _independent(runtime, name, one, requests) for name, one in runtime.signatures.items()}
    return Warmed(together, _seconds(runtime, signature, requests))


def default_name(signatures: Mapping[str, Signature]) -> str:
    """The signature that a protocol means which has but one a model."""
    return DEFAULT if DEFAULT in signatures else next(iter(signatures))


def _lines(recorded: bytes | None) -> list[tuple[int, bytes]]:
    return [(number, line) for number, line in enumerate((recorded or b"").splitlines(), 1) if line.strip()]


def _answered(runtime: Runtime, line: bytes, number: int, signature: Signature) -> dict[str, Array]:
    name = default_name(runtime.signatures)
    try:
        inputs = v2_rest.read(line, None, signature).inputs
        signature.check(inputs)
        runtime.run(name, inputs)
    except HeadraceError as error:
        raise CorruptError(f"{FILE}, line {number}: {error.reason}", hint=error.hint) from None
    return inputs


def _independent(runtime: Runtime, name: str, signature: Signature, recorded: Sequence[dict[str, Array]]) -> bool:
    if runtime.batched is not None:
        return runtime.batched and signature.rows
    if not signature.rows:
        return False
    try:
        first, second = _pair(signature, recorded if name == default_name(runtime.signatures) else ())
        alone = [runtime.run(name, one) for one in (first, second)]
        both = runtime.run(name, {key: np.concatenate([first[key], second[key]]) for key in first})
    except (HeadraceError, ValueError):
        return False  # made-up inputs are not for every model
    rows = [len(next(iter(one.values()))) for one in (first, second)]
    return all(_same([one[key] for one in alone], both[key], rows) for key in both)


def _pair(signature: Signature, recorded: Sequence[dict[str, Array]]) -> tuple[dict[str, Array], dict[str, Array]]:
    """Two inputs of different values, and of as many rows as they were recorded with, else of two and three."""
    if recorded:
        first = recorded[0]
        second = recorded[1] if len(recorded) > 1 else {key: value[::-1].copy() for key, value in first.items()}
        same = all(first[key].shape[1:] == second[key].shape[1:] for key in first)
        if same and (len(recorded) > 1 or len(next(iter(first.values()))) > 1):
            return first, second
    chance = np.random.default_rng(7)
    return (
        {one.name: _made_up(one, 2, chance) for one in signature.inputs},
        {one.name: _made_up(one, 3, chance) for one in signature.inputs},
    )


def _made_up(one: Tensor, rows: int, chance: np.random.Generator) -> Array:
    inner = (one.shape or (-1, _FREE))[1:]
    shape = (rows, *(_FREE if length < 0 else length for length in inner))
    if one.kind == BYTES:
        return np.array([b"%d" % number for number in chance.integers(0, 9, int(np.prod(shape)))], object).reshape(
            shape
        )
    kind = numpy_type(one.kind)
    return (chance.random(shape) if kind.kind == "f" else chance.integers(0, 2, shape)).astype(kind)


def _same(alone: Sequence[Array], both: Array, rows: Sequence[int]) -> bool:
    if [len(one) if one.ndim else -1 for one in alone] != list(rows):
        return False
    expected = np.concatenate(list(alone))
    if expected.shape != both.shape:
        return False
    if both.dtype.kind == "f":
        scale = float(np.max(np.abs(expected), initial=1e-6))
        return bool(np.allclose(expected, both, rtol=1e-3, atol=1e-4 * scale, equal_nan=True))
    return bool(np.array_equal(expected, both))


def _seconds(runtime: Runtime, signature: Signature, recorded: Sequence[dict[str, Array]]) -> float:
    """The median of some runs, a row; infinite when none can be made up."""
    name = default_name(runtime.signatures)
    chance = np.random.default_rng(7)
    try:
        inputs = recorded[0] if recorded else {one.name: _made_up(one, 1, chance) for one in signature.inputs}
        spent: list[float] = []
        for _ in range(_TIMES):
            begun = time.perf_counter()
            runtime.run(name, inputs)
            spent.append(time.perf_counter() - begun)
            if sum(spent) > _ENOUGH_S:
                break
    except (HeadraceError, ValueError):
        return np.inf
    first = next(iter(inputs.values()))
    return sorted(spent)[len(spent) // 2] / max(1, first.shape[0] if first.ndim else 1)
