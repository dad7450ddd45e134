"""Datasets: snapshots, samples, order, the loading pipeline, and adapters to frameworks.

Imported on first use (PEP 562): who only lists what is there need not wait for the pipeline.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.dataset.dataset import Dataset
    from headrace.dataset.ledger import Changed, Skip, Skipped
    from headrace.dataset.loader import Loader
    from headrace.dataset.stats import Stats

__all__ = ["Changed", "Dataset", "Loader", "Skip", "Skipped", "Stats"]

_WHERE = {
    "Changed": "ledger",
    "Dataset": "dataset",
    "Loader": "loader",
    "Skip": "ledger",
    "Skipped": "ledger",
    "Stats": "stats",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
