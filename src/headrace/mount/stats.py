"""What a mount tells of itself: the files of ``.headrace/``, in text, JSON and Prometheus's form."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Final

from headrace.base.metrics import Metrics

FOLDER: Final = b".headrace"
FOLDER_NODE: Final = 2
_FILES: Final = (b"stats", b"stats.json", b"metrics", b"pending.json", b"left.json")
NODES: Final = {FOLDER_NODE + 1 + number: name for number, name in enumerate(_FILES)}
"""Node ids of the files; the ids of everything else are larger."""
IDS: Final = {name: node for node, name in NODES.items()}


class Stats:
    """Counters of the process, gauges asked for when read. Any thread.

    Args:
        metrics: the process's counters.
        about: what does not change: mount point, path, options.
        gauges: name to a function giving its present value.
        pending: what is not published yet, as rows for JSON.
        left: what a crash has left and nobody was promised, likewise.
    """

    def __init__(
        self,
        metrics: Metrics,
        about: Mapping[str, object],
        gauges: Mapping[str, Callable[[], float]],
        pending: Callable[[], list[dict[str, object]]],
        left: Callable[[], list[dict[str, object]]],
    ) -> None:
        self._metrics = metrics
        self._about = dict(about)
        self._gauges = dict(gauges)
        self._rows = {b"pending.json": pending, b"left.json": left}
        self._began = time.time()

    def content(self, node: int) -> bytes:
        """The file of a node id of `NODES`, made now."""
        name = NODES[node]
        if name in self._rows:
            return json.dumps(self._rows[name](), indent=1).encode() + b"\n"
        if name == b"stats.json":
            return json.dumps({**self._about, **self.values()}, indent=1).encode() + b"\n"
        if name == b"metrics":
            return self._prometheus().encode()
        lines = [f"{key}: {value}" for key, value in self._about.items()]
        lines += [f"{key}: {value:g}" for key, value in sorted(self.values().items())]
        return "\n".join(lines).encode() + b"\n"

    def values(self) -> dict[str, float]:
        """Counters and gauges."""
        found = dict(self._metrics.snapshot())
        found |= {f"mount.{name}": float(gauge()) for name, gauge in self._gauges.items()}
        found["mount.resident_bytes"] = float(_resident())
        found["mount.uptime_seconds"] = time.time() - self._began
        return found

    def _prometheus(self) -> str:
        gauges = {f"mount.{name}" for name in self._gauges} | {"mount.resident_bytes", "mount.uptime_seconds"}
        lines: list[str] = []
        for key, value in sorted(self.values().items()):
            name = "headrace_" + "".join(letter if letter.isalnum() else "_" for letter in key)
            kind = "gauge" if key in gauges or key.endswith("in_flight") else "counter"
            lines += [f"# TYPE {name} {kind}", f"{name} {value:.17g}"]
        return "\n".join(lines) + "\n"


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
