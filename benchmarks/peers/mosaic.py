"""Importing Mosaic's `streaming` where torchvision does not load: only its classes for pictures want it, at import."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def without_torchvision() -> None:
    """Put empty modules in torchvision's place."""
    names: dict[str, Any] = {
        "torchvision": {},
        "torchvision.datasets": {"VisionDataset": object},
        "torchvision.transforms": {},
        "torchvision.transforms.functional": {"to_tensor": None},
    }
    for name, members in names.items():
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        module.__dict__.update(members)
        sys.modules[name] = module
