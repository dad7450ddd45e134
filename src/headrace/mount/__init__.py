"""The namespace as a folder: the kernel's FUSE protocol, in plain Python. See README.md beside this file."""

from headrace.mount.mounted import Mounted
from headrace.mount.options import MountOptions

__all__ = ["MountOptions", "Mounted"]
