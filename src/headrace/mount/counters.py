"""What the mounts of this machine have counted, by their own statistics: for who watches a program that reads them.

Any mount of headrace's that this user may read is asked, whoever made it. A file of statistics is made by the mount's
server, so asking one that hangs hangs too: ask on a thread that nobody waits for.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

from headrace.mount import kernel, stats

_COUNTERS = ("fetch.", "cache.", "mount.open.", "mount.waited_s", "mount.errors")
_GAUGES = frozenset({"fetch.bytes_in_flight"})


def counters() -> dict[tuple[str, int], dict[str, float]]:
    """Counters of every mount that answers, by its mount point and the process that serves it."""
    found: dict[tuple[str, int], dict[str, float]] = {}
    for mount in kernel.mounts():
        if mount.kind != kernel.TYPE:
            continue
        path = os.path.join(mount.point, stats.FOLDER.decode(), "stats.json")
        with suppress(OSError, ValueError):
            with open(path, encoding="utf-8") as file:
                told: dict[str, Any] = json.load(file)
            counted = {name: float(value) for name, value in told.items() if _counts(name, value)}
            found[mount.point, int(told.get("pid", 0))] = counted
    return found


def _counts(name: str, value: object) -> bool:
    return name.startswith(_COUNTERS) and name not in _GAUGES and isinstance(value, (int, float))
