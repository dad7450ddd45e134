"""PyTorch, as `hr.torch`: batches as tensors (`headrace.dataset.torch`), and distributed checkpoints in the bucket."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.dataset.torch import Tensors, convert, tensors

if TYPE_CHECKING:
    from headrace.dataset.torch_dataset import IterableDataset
    from headrace.models.loading import checkpoint

__all__ = ["IterableDataset", "Tensors", "checkpoint", "convert", "tensors"]


def __getattr__(name: str) -> Any:
    """What imports torch, when it is asked for."""
    if name == "IterableDataset":
        return importlib.import_module("headrace.dataset.torch_dataset").IterableDataset
    if name == "checkpoint":
        return importlib.import_module("headrace.models.loading.checkpoint")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
