"""What a version must do before it serves: answer its recorded requests; and whether its rows may be run together.

That rows are independent cannot be seen from shapes: the first length of a sequence model may be time. So it is tried:
two inputs together must give what each gives alone. Rows that are alike prove nothing, nor does another order of the
same ones: what a model takes from all rows together, like their mean, is then the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from headrace.base.errors import CorruptError, HeadraceError, TryAgainError
from headrace.serving.protocols import v2_rest
from headrace.serving.runtimes.runtime import DEFAULT, Runtime
from headrace.serving.tensors import BYTES, Array, Signature, Tensor, numpy_type

FILE: Final = "warmup.jsonl"
_FREE: Final = 4
"""What is taken for a free length, where no request is recorded that says another."""
_TIMES: Final = 5  # runs that the median is of
_LIMIT_S: Final = 300.0
"""Of one run, of a runtime that can be ended."""
_ENOUGH_S: Final = 0.02  # seconds of runs after which no more are made: slow models need not be run often


@dataclass(frozen=True, slots=True)
class Warmed:
    """`together`: by signature, whether requests may share a batch; `row_s`: seconds that a row takes."""

    together: Mapping[str, bool]
    row_s: float


def warm(runtime: Runtime, recorded: bytes | None, known: Mapping[str, bool] | None = None) -> Warmed:
    """Run what is recorded, then try whether rows are independent. `recorded`: the version's ``warmup.jsonl``; `known`:
    nothing more is tried, since this is known of it.

    Raises CorruptError: a recorded request fails. TryAgainError: the runtime's process ends, or takes too long.
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
        runtime.run(name, inputs, _LIMIT_S)
    except TryAgainError:
        raise
    except HeadraceError as error:
        raise CorruptError(f"{FILE}, line {number}: {error.reason}", hint=error.hint) from None
    return inputs


def _independent(runtime: Runtime, name: str, signature: Signature, recorded: Sequence[dict[str, Array]]) -> bool:
    if runtime.batched is not None:
        return runtime.batched and signature.rows
    if not signature.rows:
        return False
    known = recorded if name == default_name(runtime.signatures) else ()
    found = [_agree(runtime, name, *pair) for pair in _recorded_pairs(known)]
    if False in found:
        return False
    found.append(_agree(runtime, name, *_made_up_pair(signature, known)))
    return False not in found and True in found


_Inputs: TypeAlias = "dict[str, Array]"


def _agree(runtime: Runtime, name: str, first: _Inputs, second: _Inputs) -> bool | None:
    """Whether two inputs give together what they give alone; None: the model does not take them."""
    try:
        alone = [runtime.run(name, one, _LIMIT_S) for one in (first, second)]
        both = runtime.run(name, _joined(first, second), _LIMIT_S)
    except (HeadraceError, ValueError):
        return None  # made-up inputs are not for every model
    rows = [len(next(iter(one.values()))) for one in (first, second)]
    return all(_same([one[key] for one in alone], both[key], rows) for key in both)


def _joined(first: _Inputs, second: _Inputs) -> _Inputs:
    return {key: np.concatenate([first[key], second[key]]) for key in first}


def _recorded_pairs(recorded: Sequence[_Inputs]) -> list[tuple[_Inputs, _Inputs]]:
    """The first request with one of its own rows more, at either end, and with the second one, where they fit."""
    if not recorded:
        return []
    first = recorded[0]
    if not all(one.ndim for one in first.values()):
        return []
    ends = [{key: value[part] for key, value in first.items()} for part in (slice(1), slice(-1, None))]
    seconds = [*ends, *recorded[1:2]]
    return [
        (first, one) for one in seconds
        if all(first[key].shape[1:] == one[key].shape[1:] for key in first) and _differ(_joined(first, one))
    ]  # fmt: skip


def _differ(inputs: _Inputs) -> bool:
    """Whether not all rows are alike."""
    return any(not np.array_equal(one, np.broadcast_to(one[:1], one.shape)) for one in inputs.values())


def _made_up_pair(signature: Signature, recorded: Sequence[_Inputs]) -> tuple[_Inputs, _Inputs]:
    """Two and three rows; free lengths as the first recorded request has them."""
    chance = np.random.default_rng(7)
    like = recorded[0] if recorded else {}
    first, second = (
        {one.name: _made_up(one, rows, chance, like.get(one.name)) for one in signature.inputs} for rows in (2, 3)
    )
    return first, second


def _made_up(one: Tensor, rows: int, chance: np.random.Generator, like: Array | None = None) -> Array:
    inner = (one.shape or (-1, _FREE))[1:] if like is None else like.shape[1:]
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
    if len({one.shape[1:] for one in alone}) > 1:  # another length follows the number of rows
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
            runtime.run(name, inputs, _LIMIT_S)
            spent.append(time.perf_counter() - begun)
            if sum(spent) > _ENOUGH_S:
                break
    except (HeadraceError, ValueError):
        return np.inf
    first = next(iter(inputs.values()))
    return sorted(spent)[len(spent) // 2] / max(1, first.shape[0] if first.ndim else 1)
