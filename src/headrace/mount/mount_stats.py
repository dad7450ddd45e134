"""The figures of a mount: what the files of ``.headrace/`` hold, in text, JSON and Prometheus's form."""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from headrace.base.metrics import Metrics

FOLDER: Final = b".headrace"
FOLDER_NODE: Final = 2  # the root is 1
_FILES: Final = (b"stats", b"stats.json", b"metrics", b"pending.json", b"left.json", b"readers.json")
NODES: Final = {FOLDER_NODE + 1 + number: name for number, name in enumerate(_FILES)}
"""Node ids of the files; the ids of everything else are larger."""
_FIRST_VERSION: Final = 1 << 61  # node ids of versions of these files begin here
_FRESH_NS: Final = 1_000_000_000  # nanoseconds for which a file is not made anew
IDS: Final = {name: node for node, name in NODES.items()}


class MountStats:
    """Counters of the process, gauges asked for when read. Any thread.

    Args:
        metrics: the process's counters.
        about: what does not change: mount point, path, options.
        gauges: name to a function giving its present value.
        rows: lists of rows, ready for JSON: ``pending``, what is not published yet; ``left``, orphans of a crash;
            ``readers``, see `headrace.mount.kernel.process_groups`.
    """

    def __init__(
        self,
        metrics: Metrics,
        about: Mapping[str, object],
        gauges: Mapping[str, Callable[[], float]],
        rows: Mapping[str, Callable[[], list[dict[str, object]]]],
    ) -> None:
        self._metrics = metrics
        self._about = dict(about)
        self._gauges = dict(gauges)
        self._rows = {f"{name}.json".encode(): rows_of for name, rows_of in rows.items()}
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


def read(point: str, name: str) -> Any:
    """A JSON file of the mount at `point`. Waits for its server. Raises OSError, ValueError."""
    with open(os.path.join(point, FOLDER.decode(), name), encoding="utf-8") as file:
        return json.load(file)


class StatsVersion(NamedTuple):
    """One file of ``.headrace/`` as it was shown. `made_ns`: since the epoch."""

    content: bytes
    made_ns: int


class StatsVersions:
    """The files of ``.headrace/`` for a kernel that sends no OPEN: it trusts the size that it knows, and keeps what it
    has read. So each version has a node id of its own. A look-up makes a new version where the last one is older than a
    second, and a version goes when the kernel forgets it. Any thread.
    """

    def __init__(self, figures: MountStats) -> None:
        self._figures = figures
        self._lock = threading.Lock()
        self._ids = itertools.count(_FIRST_VERSION)
        self._latest: dict[int, int] = {}
        self._known: dict[int, tuple[StatsVersion, int]] = {}

    def looked_up(self, node: int) -> tuple[int, StatsVersion]:
        """The present version of a file of `NODES`, and its node id, which the kernel now knows once more."""
        now = time.time_ns()
        with self._lock:
            number = self._latest.get(node, 0)
            version, count = self._known.get(number, (None, 0))
            if version is not None and 0 <= now - version.made_ns < _FRESH_NS:  # the clock may be set back
                self._known[number] = (version, count + 1)
                return number, version
        version = StatsVersion(self._figures.content(node), now)  # without the lock: it asks all kinds of gauges
        with self._lock:
            number = self._latest[node] = next(self._ids)
            self._known[number] = (version, 1)
        return number, version

    def get(self, number: int) -> StatsVersion | None:
        """What a node id stands for, if it is one of these."""
        found = self._known.get(number)
        return found[0] if found is not None else None

    def forget(self, number: int, times: int) -> bool:
        """The kernel forgets that many look-ups. False: the id is none of these."""
        with self._lock:
            if number not in self._known:
                return False
            version, count = self._known.pop(number)
            if count > times:
                self._known[number] = (version, count - times)
            return True


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
