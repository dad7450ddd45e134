"""headrace: training data from object storage to the GPUs that wait for it.

The public face. Everything is imported on first use (PEP 562), so ``import headrace`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headrace.base import reporting

if TYPE_CHECKING:
    from headrace import cache as cache
    from headrace import catalog as catalog
    from headrace import cluster as cluster
    from headrace import gateway as gateway
    from headrace import jobs as jobs
    from headrace import models as models
    from headrace import mount as mount
    from headrace import pack as pack
    from headrace import serving as serving
    from headrace import store as store
    from headrace import sync as sync
    from headrace import torch as torch
    from headrace import web as web
    from headrace.base import errors as errors
    from headrace.catalog import copy as copy
    from headrace.catalog import evict as evict
    from headrace.catalog import evict_to as evict_to
    from headrace.catalog import load as load
    from headrace.catalog import pin as pin
    from headrace.catalog import refresh as refresh
    from headrace.catalog import usage as usage
    from headrace.checkup.examining import doctor as doctor
    from headrace.cluster import ShellOptions as ShellOptions
    from headrace.cluster import ray_data as ray
    from headrace.cluster import shell as shell
    from headrace.formats import snapshot as snapshot
    from headrace.loader import Dataset as Dataset
    from headrace.loader import Skip as Skip
    from headrace.loader import bench as bench
    from headrace.loader import decode
    from headrace.loader import show as show
    from headrace.loader.adapters import jax, tf
    from headrace.models.loading import safetensors as safetensors
    from headrace.namespace import Namespace as Namespace
    from headrace.namespace import attach as attach
    from headrace.namespace import detach as detach
    from headrace.tracking.log import log as log
    from headrace.tracking.recorded import run as run
    from headrace.tracking.recorded import runs as runs

reporting.at_offer(lambda: importlib.import_module("headrace.tracking.reporter").begin())
__version__ = "0.1.0"
__all__ = [
    "Dataset", "Namespace", "ShellOptions", "Skip", "__version__", "attach", "bench", "cache", "catalog", "cluster",
    "copy", "decode", "detach", "doctor", "errors", "evict", "evict_to", "gateway", "jax", "jobs", "load", "log",
    "models", "mount", "pack", "pin", "ray", "refresh", "run", "runs", "safetensors", "serving", "shell", "show",
    "snapshot", "store", "sync", "tf", "torch", "usage", "web",
]  # fmt: skip

_FACE = {
    "Dataset": ("headrace.loader", "Dataset"),
    "Namespace": ("headrace.namespace", "Namespace"),
    "ShellOptions": ("headrace.cluster.shells.asking", "ShellOptions"),
    "Skip": ("headrace.loader", "Skip"),
    "attach": ("headrace.namespace", "attach"),
    "bench": ("headrace.loader.benchmark", "bench"),
    "cache": ("headrace.cache", None),
    "catalog": ("headrace.catalog", None),
    "cluster": ("headrace.cluster", None),
    "copy": ("headrace.catalog.files_by_name", "copy"),
    "decode": ("headrace.loader.decode", None),
    "detach": ("headrace.namespace", "detach"),
    "doctor": ("headrace.checkup.examining", "doctor"),
    "errors": ("headrace.base.errors", None),
    "evict": ("headrace.catalog.node_copies", "evict"),
    "evict_to": ("headrace.catalog.node_copies", "evict_to"),
    "gateway": ("headrace.gateway", None),
    "jax": ("headrace.loader.adapters.jax", None),
    "jobs": ("headrace.jobs", None),
    "load": ("headrace.catalog.node_copies", "load"),
    "log": ("headrace.tracking.log", "log"),
    "models": ("headrace.models", None),
    "mount": ("headrace.mount", None),
    "pack": ("headrace.pack", None),
    "pin": ("headrace.catalog.node_copies", "pin"),
    "ray": ("headrace.cluster.ray_data", None),
    "refresh": ("headrace.catalog.node_copies", "refresh"),
    "run": ("headrace.tracking.recorded", "run"),
    "runs": ("headrace.tracking.recorded", "runs"),
    "safetensors": ("headrace.models.loading.safetensors", None),
    "serving": ("headrace.serving", None),
    "shell": ("headrace.cluster.shells.asking", "shell"),
    "show": ("headrace.loader.shown.batch_shown", "show"),
    "snapshot": ("headrace.formats.recorded_index", "snapshot"),
    "store": ("headrace.store", None),
    "sync": ("headrace.sync", None),
    "tf": ("headrace.loader.adapters.tf", None),
    "torch": ("headrace.torch", None),
    "usage": ("headrace.catalog.files_by_name", "usage"),
    "web": ("headrace.web", None),
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
