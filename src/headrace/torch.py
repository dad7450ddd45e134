"""PyTorch, as `hr.torch`: batches as tensors (`loader.adapters.torch`), and distributed checkpoints in the bucket."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.loader import Tensors, convert, tensors

if TYPE_CHECKING:
    from headrace.loader import IterableDataset, feed
    from headrace.models.loading import checkpoint

__all__ = ["IterableDataset", "Tensors", "checkpoint", "convert", "feed", "tensors"]


def __getattr__(name: str) -> Any:
    """What imports torch, when it is asked for."""
    if name == "IterableDataset":
        return importlib.import_module("headrace.loader.adapters.torch_dataset").IterableDataset
    if name == "feed":
        return importlib.import_module("headrace.loader").feed
    if name == "checkpoint":
        return importlib.import_module("headrace.models.loading.checkpoint")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
