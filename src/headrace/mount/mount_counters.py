"""What the mounts of this machine have counted, for a run that watches a program read through them.

Any mount of headrace's that this user may read is asked, whoever made it. A file of statistics is made by the mount's
server, so asking one that hangs hangs too: ask on a thread that nobody waits for.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.mount import mount_stats
from headrace.mount.kernel import mount_points

_COUNTERS = ("fetch.", "cache.", "peers.", "mount.errors")
_GAUGES = frozenset({"fetch.bytes_in_flight"})
GROUP_COUNTERS: tuple[str, ...] = ("mount.opened", "mount.waited_s")
"""Counters of a process group."""


@dataclass(frozen=True, slots=True)
class MountCounts:
    """Counts of one mount. `whole`: what it fetched, for all programs together. `groups`: `GROUP_COUNTERS` of each
    process group that used it.
    """

    whole: dict[str, float]
    groups: dict[int, dict[str, float]]


def counts_of_mounts() -> dict[tuple[str, int], MountCounts]:
    """Counters of every mount that answers, by its mount point and the process that serves it."""
    found: dict[tuple[str, int], MountCounts] = {}
    for mount in mount_points.mounts():
        if mount.kind != mount_points.MOUNT_TYPE:
            continue
        with suppress(OSError, ValueError):
            figures: dict[str, Any] = mount_stats.read(mount.point, "stats.json")
            whole = {name: float(value) for name, value in figures.items() if _counts(name, value)}
            found[mount.point, int(figures.get("pid", 0))] = MountCounts(whole, _groups(mount.point))
    return found


def _groups(point: str) -> dict[int, dict[str, float]]:
    rows = mount_stats.read(point, "readers.json")
    return {
        int(row["group"]): {"mount.opened": float(row["opened"]), "mount.waited_s": float(row["waited_s"])}
        for row in rows
    }


def _counts(name: str, value: object) -> bool:
    return name.startswith(_COUNTERS) and name not in _GAUGES and isinstance(value, (int, float))
