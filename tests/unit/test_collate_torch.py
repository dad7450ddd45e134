"""Batches are what PyTorch's own collate function makes of the same samples, where that makes anything."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from headrace.formats import collate


class Pair(NamedTuple):
    image: Any
    label: int


def image(number: int) -> Any:
    return np.full((2, 3), number, np.float32)


SAMPLES: dict[str, Any] = {
    "numbers": [1, 2, 3],
    "fractions": [1.5, 2.5],
    "truths": [True, False],
    "arrays": [image(1), image(2)],
    "arrays of one number": [np.asarray(1), np.asarray(2)],
    "numbers of NumPy": [np.float32(1), np.float32(2)],
    "integers of NumPy": [np.int16(1), np.int16(2)],
    "tensors": [torch.ones(2, 2), torch.zeros(2, 2)],
    "tensors of one number": [torch.tensor(1), torch.tensor(2)],
    "strings": ["a", "bc"],
    "bytes": [b"a", b"bc"],
    "tuples": [(image(1), 1), (image(2), 2)],
    "named tuples": [Pair(image(1), 1), Pair(torch.zeros(1).numpy().repeat(6).reshape(2, 3), 2)],
    "dicts": [{"image": image(1), "label": 1, "name": "a"}, {"image": image(2), "label": 2, "name": "b"}],
    "nested": [{"x": {"a": 1, "b": (2.0, image(1))}}, {"x": {"a": 3, "b": (4.0, image(2))}}],
    "tuples of tensors": [(torch.ones(3), {"y": torch.zeros(1)}), (torch.ones(3), {"y": torch.ones(1)})],
}


def as_torch(batch: Any) -> Any:
    if isinstance(batch, np.ndarray):
        return torch.from_numpy(batch)
    if isinstance(batch, dict):
        return {name: as_torch(one) for name, one in batch.items()}
    if isinstance(batch, tuple):
        parts = [as_torch(one) for one in batch]
        return type(batch)(*parts) if isinstance(batch, Pair) else parts
    return batch


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and not all(isinstance(part, (str, bytes)) for part in one):
        return type(one) is type(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("name", SAMPLES)
def test_it_is_what_the_default_collate_makes(name: str) -> None:
    assert same(as_torch(collate(SAMPLES[name])), default_collate(SAMPLES[name]))


@pytest.mark.parametrize(
    "samples",
    [
        [torch.ones(2), torch.ones(3)],
        [torch.ones(2), torch.ones(2, dtype=torch.int64)],
        [image(1), image(2)[:1]],
        [[1, 2], [3]],
        [[1, 2], [3, 4]],
        [None, None],
        [Pair(1, 2), (1, 2)],
    ],
)
def test_what_cannot_be_stacked_and_lists_are_lists(samples: list[Any]) -> None:
    made = collate(samples)
    assert isinstance(made, list)
    assert len(made) == len(samples)
