"""headrace: training data from object storage to the GPUs that wait for it.

The public face. Everything is imported on first use (PEP 562), so ``import headrace`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.base import reporting

if TYPE_CHECKING:
    from headrace import models as models
    from headrace import torch as torch
    from headrace.base import errors as errors
    from headrace.checkup.examining import doctor as doctor
    from headrace.cluster import ray_data as ray
    from headrace.dataset import Dataset as Dataset
    from headrace.dataset import Skip as Skip
    from headrace.dataset import decode as decode
    from headrace.dataset import jax as jax
    from headrace.dataset import tf as tf
    from headrace.dataset.batch_shown import show as show
    from headrace.dataset.benchmark import bench as bench
    from headrace.dataset.by_name import copy as copy
    from headrace.dataset.by_name import usage as usage
    from headrace.dataset.in_cache import evict as evict
    from headrace.dataset.in_cache import evict_to as evict_to
    from headrace.dataset.in_cache import load as load
    from headrace.dataset.in_cache import pin as pin
    from headrace.dataset.in_cache import refresh as refresh
    from headrace.dataset.recording import snapshot as snapshot
    from headrace.models.loading import safetensors as safetensors
    from headrace.namespace import Namespace as Namespace
    from headrace.tracking.log import log as log
    from headrace.tracking.recorded import run as run
    from headrace.tracking.recorded import runs as runs

reporting.at_offer(lambda: importlib.import_module("headrace.tracking.reporter").begin())
__version__ = "0.1.0"
__all__ = [
    "Dataset", "Namespace", "Skip", "__version__", "bench", "copy", "decode", "doctor", "errors", "evict",
    "evict_to", "jax", "load", "log", "models", "pin", "ray", "refresh", "run", "runs", "safetensors", "show",
    "snapshot", "tf", "torch", "usage",
]  # fmt: skip

_FACE = {
    "Dataset": ("headrace.dataset", "Dataset"),
    "Namespace": ("headrace.namespace", "Namespace"),
    "Skip": ("headrace.dataset", "Skip"),
    "bench": ("headrace.dataset.benchmark", "bench"),
    "copy": ("headrace.dataset.by_name", "copy"),
    "decode": ("headrace.dataset.decode", None),
    "doctor": ("headrace.checkup.examining", "doctor"),
    "errors": ("headrace.base.errors", None),
    "evict": ("headrace.dataset.in_cache", "evict"),
    "evict_to": ("headrace.dataset.in_cache", "evict_to"),
    "jax": ("headrace.dataset.jax", None),
    "load": ("headrace.dataset.in_cache", "load"),
    "log": ("headrace.tracking.log", "log"),
    "models": ("headrace.models", None),
    "pin": ("headrace.dataset.in_cache", "pin"),
    "ray": ("headrace.cluster.ray_data", None),
    "refresh": ("headrace.dataset.in_cache", "refresh"),
    "run": ("headrace.tracking.recorded", "run"),
    "runs": ("headrace.tracking.recorded", "runs"),
    "safetensors": ("headrace.models.loading.safetensors", None),
    "show": ("headrace.dataset.batch_shown", "show"),
    "snapshot": ("headrace.dataset.recording", "snapshot"),
    "tf": ("headrace.dataset.tf", None),
    "torch": ("headrace.torch", None),
    "usage": ("headrace.dataset.by_name", "usage"),
}


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    where, what = _FACE[name]
    module = importlib.import_module(where)
    value = module if what is None else getattr(module, what)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FACE})
