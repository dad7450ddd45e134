"""The namespace as a folder: the kernel's FUSE protocol, in plain Python. See README.md beside this file.

Imported on first use: a run asks what is mounted, and needs no mount for it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.mount.mount_options import MountOptions as MountOptions
    from headrace.mount.mounted import Mounted as Mounted

__all__ = ["MountOptions", "Mounted"]

_FACE = {"MountOptions": "headrace.mount.mount_options", "Mounted": "headrace.mount.mounted"}


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module 'headrace.mount' has no attribute {name!r}")
    return getattr(importlib.import_module(_FACE[name]), name)
