"""The namespace as a folder: the kernel's FUSE protocol, in plain Python. See README.md beside this file.

Other packages import these names, and nothing from the modules below. Each is imported on first use: a run asks what is
mounted, and needs no mount for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.base.face import face

if TYPE_CHECKING:
    from headrace.mount.daemon import in_background as in_background
    from headrace.mount.daemon import on_signals as on_signals
    from headrace.mount.keeping import holder_of_mount as holder_of_mount
    from headrace.mount.kernel.error_numbers import errno_of as errno_of
    from headrace.mount.kernel.holder import HeldMount as HeldMount
    from headrace.mount.kernel.holder import Holder as Holder
    from headrace.mount.kernel.mount_points import MOUNT_TYPE as MOUNT_TYPE
    from headrace.mount.kernel.mount_points import MountPoint as MountPoint
    from headrace.mount.kernel.mount_points import clear_leftover as clear_leftover
    from headrace.mount.kernel.mount_points import is_dead as is_dead
    from headrace.mount.kernel.mount_points import mount_at as mount_at
    from headrace.mount.kernel.mount_points import mounts as mounts
    from headrace.mount.kernel.mount_points import unmount as unmount
    from headrace.mount.live_mounts import LiveMount as LiveMount
    from headrace.mount.live_mounts import all_live as all_live
    from headrace.mount.live_mounts import live_mount_at as live_mount_at
    from headrace.mount.live_mounts import orphans_of as orphans_of
    from headrace.mount.live_mounts import record_file as record_file
    from headrace.mount.live_mounts import refresh_all as refresh_all
    from headrace.mount.live_mounts import run_folder as run_folder
    from headrace.mount.live_mounts import staging_folder as staging_folder
    from headrace.mount.live_mounts import unpublished_of as unpublished_of
    from headrace.mount.mount_counters import GROUP_COUNTERS as GROUP_COUNTERS
    from headrace.mount.mount_counters import MountCounts as MountCounts
    from headrace.mount.mount_counters import counts_of_mounts as counts_of_mounts
    from headrace.mount.mount_options import MountOptions as MountOptions
    from headrace.mount.mount_options import parse_options as parse_options
    from headrace.mount.mounted import Mounted as Mounted
    from headrace.mount.mounting import open_mount as open_mount
    from headrace.mount.unmounting import end_mount as end_mount

__all__ = [
    "GROUP_COUNTERS", "MOUNT_TYPE", "HeldMount", "Holder", "LiveMount", "MountCounts", "MountOptions", "MountPoint",
    "Mounted", "all_live", "clear_leftover", "counts_of_mounts", "end_mount", "errno_of", "holder_of_mount",
    "in_background", "is_dead", "live_mount_at", "mount_at", "mounts", "on_signals", "open_mount", "orphans_of",
    "parse_options", "record_file", "refresh_all", "run_folder", "staging_folder", "unmount", "unpublished_of",
]  # fmt: skip

if not TYPE_CHECKING:  # or its checker would take any name for one of the face
    __getattr__, __dir__ = face(
        __name__,
        {
            "daemon": ("in_background", "on_signals"),
            "keeping": ("holder_of_mount",),
            "kernel.error_numbers": ("errno_of",),
            "kernel.holder": ("HeldMount", "Holder"),
            "kernel.mount_points": (
                "MOUNT_TYPE", "MountPoint", "clear_leftover", "is_dead", "mount_at", "mounts", "unmount",
            ),
            "live_mounts": (
                "LiveMount", "all_live", "live_mount_at", "orphans_of", "record_file", "refresh_all", "run_folder",
                "staging_folder", "unpublished_of",
            ),
            "mount_counters": ("GROUP_COUNTERS", "MountCounts", "counts_of_mounts"),
            "mount_options": ("MountOptions", "parse_options"),
            "mounted": ("Mounted",),
            "mounting": ("open_mount",),
            "unmounting": ("end_mount",),
        },
    )  # fmt: skip
