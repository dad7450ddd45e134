"""How samples are cut into batches that are not simply the next n: by their length, by what they cost, padded.

Descriptions only, frozen and picklable; `headrace.loader.pipeline.packed_batches` makes the batches.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np

from headrace.base.errors import InputError
from headrace.formats import Forms, Sample, collate, typed_batch

Collate: TypeAlias = Callable[[list[Sample]], Any]
Measure: TypeAlias = Callable[[Sample], float]
_NOMINAL: Final = 64
"""Samples that are planned for a batch that only its cost limits."""
_WAITING: Final = 8
"""Batches of the largest size that may wait in buckets, where nobody said how many samples may."""


class Place(NamedTuple):
    """Where a sample goes: the number of its bucket, and what it costs there."""

    bucket: int
    cost: float


@dataclass(frozen=True)
class Packing:
    """`most`: samples of a batch, for each bucket. `bounds`: the greatest length of each; empty: there is one bucket.
    `limit`: what the samples of a batch may cost together. `window`: samples that may wait in all buckets.
    """

    most: tuple[int, ...]
    bounds: tuple[float, ...] = ()
    length: Measure | None = None
    cost: Measure | None = None
    limit: float = math.inf
    window: float = math.inf
    collate: Collate = collate
    checks: Callable[[Sample], None] | None = None
    """Raises InputError for a sample that no batch may have."""
    is_taken_apart: bool = False
    """Whether batches become samples again, so that there is a state after each of them."""

    @property
    def is_in_order(self) -> bool:
        """Whether samples come in the order of the epoch."""
        return len(self.most) == 1

    @property
    def is_even(self) -> bool:
        """Whether every batch but the last has the same number of samples, those that come next."""
        return self.is_in_order and self.cost is None

    @property
    def nominal(self) -> int:
        """Samples of a batch, for what plans ahead by batches."""
        return min(max(self.most), _NOMINAL)

    def describe(self) -> str:
        """As it is asked for, in short."""
        told: list[str] = []
        if self.is_even or (self.is_in_order and self.most[0] < _MANY):
            told.append(str(self.most[0]))
        if self.bounds:
            told.append(f"bucket, sizes={dict(zip(self.bounds, self.most, strict=True))}")
        if self.cost is not None:
            told.append(f"cost, limit={self.limit:g}")
        if isinstance(self.collate, Padding):
            told.append(f"pad={dict(self.collate.values)}")
        elif self.collate is not collate:
            told.append("collate")
        return ", ".join(told)

    def typed(self, forms: Forms | None) -> Packing:
        """With columns of these forms, where nobody puts batches together otherwise."""
        if forms is None or self.collate is not collate:
            return self
        return replace(self, collate=partial(typed_batch, forms=forms))

    def place(self, sample: Sample) -> Place:
        """Raises `UnfitError`: the functions fail, give no number, or the sample is too large for any batch."""
        bucket = 0
        if self.length is not None:
            length = _measured("bucket", self.length, sample)
            bucket = bisect_left(self.bounds, length)
            if bucket == len(self.bounds):
                raise UnfitError(
                    "batch(bucket)", InputError(f"of length {length:g}, and {self.bounds[-1]:g} is the most")
                )
        cost = 0.0
        if self.cost is not None:
            cost = _measured("cost", self.cost, sample)
            if cost > self.limit:
                raise UnfitError(
                    "batch(cost)", InputError(f"costs {cost:g}, and {self.limit:g} is the limit of a batch")
                )
        if self.checks is not None:
            try:
                self.checks(sample)
            except InputError as error:
                raise UnfitError("batch(pad)", error) from error
        return Place(bucket, cost)


def one_by_one(n: int | None) -> Packing:
    """Batches of the next `n` samples; None: single samples."""
    return Packing((1,), collate=_only) if n is None else Packing((n,))


def _only(samples: list[Sample]) -> Sample:
    return samples[0]


class UnfitError(Exception):
    """A sample that no batch takes. Internal: users see BadSampleError."""

    def __init__(self, stage: str, error: BaseException) -> None:
        super().__init__(stage)
        self.stage, self.error = stage, error


def _measured(what: str, measure: Measure, sample: Sample) -> float:
    stage = f"batch({what})"
    try:
        given: Any = measure(sample)
        number = float(given)
    except Exception as error:
        raise UnfitError(stage, error) from error
    if not 0 <= number < math.inf:
        raise UnfitError(stage, InputError(f"gave {given!r}", hint="a number that is zero or more"))
    return number


def packing_of(
    n: int | None,
    *,
    bucket: Measure | None = None,
    sizes: Mapping[float, int] | Sequence[float] | None = None,
    window: int | None = None,
    cost: Measure | None = None,
    limit: float | None = None,
    pad: Mapping[str, Any] | None = None,
    pad_to: Mapping[str, int] | int | None = None,
    collate_with: Collate | None = None,
) -> Packing | None:
    """What `Dataset.batch` is asked for; None where batches are the next n samples, stacked.

    Raises:
        InputError: parts that do not fit together.
    """
    if (bucket is None) != (sizes is None):
        raise InputError("bucket and sizes go together", hint="batch(bucket=length_of, sizes={64: 128, 256: 32})")
    if (cost is None) != (limit is None):
        raise InputError("cost and limit go together", hint="batch(cost=tokens_of, limit=16_384)")
    if window is not None and bucket is None:
        raise InputError("window is of buckets", hint="batch(bucket=length_of, sizes=…, window=…)")
    if pad_to is not None and not pad:
        raise InputError("pad_to without pad", hint='batch(n, pad={"tokens": 0}, pad_to=512)')
    if pad and collate_with is not None:
        raise InputError("pad and collate both put the batch together", hint="give one of them")
    if n is None and cost is None and not isinstance(sizes, Mapping):
        raise InputError("how many samples a batch has is not said", hint="batch(32)")
    if limit is not None and not limit > 0:
        raise InputError(f"limit={limit!r}", hint="more than zero")
    bounds, most = _buckets(n, sizes)
    padded = None if not pad else Padding(tuple(pad.items()), _lengths(pad, pad_to))
    if not bounds and cost is None and padded is None and collate_with is None:
        return None
    if window is not None and window < max(most):
        raise InputError(f"window={window} and batches of {max(most)}", hint="at least one batch may wait")
    return Packing(
        most, bounds, bucket, cost, math.inf if limit is None else limit,
        math.inf if not bounds else _WAITING * max(most) if window is None else window,
        padded or collate_with or collate, padded.check if padded and padded.lengths else None,
    )  # fmt: skip


def _buckets(
    n: int | None, sizes: Mapping[float, int] | Sequence[float] | None
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The buckets' bounds, and the samples of a batch of each."""
    if sizes is None:
        return (), (n or _MANY,)
    if isinstance(sizes, Mapping):
        pairs = sorted(sizes.items())
        bounds, most = tuple(bound for bound, _ in pairs), tuple(size for _, size in pairs)
    else:
        bounds, most = tuple(sorted(sizes)), (n or _MANY,) * len(sizes)
    if not bounds or min(bounds) < 0 or min(most) < 1:
        raise InputError(f"sizes={sizes!r}", hint="lengths, and how many samples a batch has: {64: 128, 256: 32}")
    return bounds, most


_MANY: Final = 1 << 20
"""Samples of a batch that only its cost limits."""


def _lengths(pad: Mapping[str, Any], pad_to: Mapping[str, int] | int | None) -> tuple[tuple[str, int], ...]:
    if pad_to is None:
        return ()
    given = pad_to if isinstance(pad_to, Mapping) else dict.fromkeys(pad, pad_to)
    if unknown := [name for name in given if name not in pad]:
        raise InputError(f"pad_to of {unknown[0]!r}, which is not padded", hint='pad={"tokens": 0} says with what')
    if any(length < 1 for length in given.values()):
        raise InputError(f"pad_to={pad_to!r}", hint="at least 1")
    return tuple(given.items())


@dataclass(frozen=True)
class Padding:
    """A `Collate` that pads. `values`: name and what its arrays are filled up with; `lengths`: name and the size of
    their first axis, where that is not the greatest of the batch. Further axes are as long as the longest.
    """

    values: tuple[tuple[str, Any], ...]
    lengths: tuple[tuple[str, int], ...] = ()

    def __call__(self, samples: list[Sample]) -> dict[str, Any]:
        if not all(isinstance(one, Mapping) for one in samples):
            raise InputError("only dicts can be padded by name", hint="map() that gives a dict by name, or collate=")
        fills, lengths = dict(self.values), dict(self.lengths)
        for name in fills:
            for one in samples:
                if name not in one:
                    raise InputError(f"has no {name!r} to pad", path=str(one.get("__key__", "")))
        whole = collate([{name: value for name, value in one.items() if name not in fills} for one in samples])
        batch: dict[str, Any] = {}
        for name in samples[0]:
            if name in fills:
                batch[name] = padded([one[name] for one in samples], fills[name], lengths.get(name))
            elif name in whole:
                batch[name] = whole[name]
        return batch

    def check(self, sample: Sample) -> None:
        """Raises InputError: it is longer than it may be."""
        for name, most in self.lengths:
            length = len(sample[name]) if isinstance(sample, Mapping) and name in sample else 0
            if length > most:
                raise InputError(f"{name!r} is of length {length}, and pad_to is {most}")


def padded(values: Sequence[Any], fill: Any, length: int | None = None) -> np.ndarray[Any, Any]:
    """Arrays (or lists of numbers) of one number of axes and one type, as one array of shape (count, length, …).

    Raises:
        InputError: they are not.
    """
    arrays = [value if isinstance(value, np.ndarray) else np.asarray(value) for value in values]
    first = cast("np.ndarray[Any, Any]", arrays[0])
    for one in arrays:
        if one.ndim != first.ndim or not one.ndim or one.dtype.hasobject or one.dtype.kind in "US":
            raise InputError(
                f"shapes {first.shape} and {one.shape} of {first.dtype} and {one.dtype} cannot be padded to one",
                hint="arrays of numbers, with as many axes each",
            )
    dtype = np.result_type(*{one.dtype for one in arrays})
    shape = [max(sizes) for sizes in zip(*(one.shape for one in arrays), strict=True)]
    if length is not None:
        shape[0] = length
    try:
        batch = np.full((len(arrays), *shape), fill, dtype)
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(f"{fill!r} is no value of {dtype}", hint="pad gives what the rest is filled with") from error
    for place, one in enumerate(arrays):
        batch[(place, *map(slice, one.shape))] = one
    return batch
