"""Which programs read through a mount: opens and time spent waiting of each process group, so that a run is judged by
its own.

The kernel says with each request which thread made it (`struct fuse_in_header`, include/uapi/linux/fuse.h). Its process
group is asked of the kernel too, without a look into ``/proc``: what lies there of a process may be locked by the very
page fault that waits for our answer.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from typing import Final

from headrace.base.metrics import Metrics

_MOST: Final = 1024
"""Groups that are remembered."""
NOBODY: Final = 0
"""The group of a process that has ended, or that is of another pid namespace."""


class _Tally:
    """Files opened, and seconds in which at least one request waited: of one group, or of all."""

    __slots__ = ("_count", "_since", "opened", "waited_s")

    def __init__(self) -> None:
        self.opened = 0
        self.waited_s = 0.0
        self._count = 0
        self._since = 0.0

    @property
    def waits(self) -> bool:
        return self._count > 0

    def move(self, by: int) -> float:
        """One more request waits, or one fewer. Returns the seconds of waiting since the last call."""
        now = time.monotonic()
        passed = now - self._since if self._count else 0.0
        self._since, self._count = now, self._count + by
        self.waited_s += passed
        return passed


class ProcessGroups:
    """Any thread. The time in which anybody waits is counted as ``mount.waited_s``, when a wait begins or ends."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._all = _Tally()
        self._groups: OrderedDict[int, _Tally] = OrderedDict()

    def opened(self, kind: str, pid: int) -> None:
        """The thread `pid` opened a file; counted as ``mount.open.<kind>`` too."""
        group = group_of(pid)
        self._metrics.add(f"mount.open.{kind}")
        with self._lock:
            self._of(group).opened += 1

    def waits(self, pid: int) -> int:
        """A request of the thread `pid` begins to wait. Its group, for `over`."""
        group = group_of(pid)
        with self._lock:
            self._metrics.add("mount.waited_s", self._all.move(1))
            self._of(group).move(1)
        return group

    def over(self, group: int) -> None:
        """It waits no more."""
        with self._lock:
            self._metrics.add("mount.waited_s", self._all.move(-1))
            self._of(group).move(-1)

    def rows(self) -> list[dict[str, object]]:
        """What there is of each group, for JSON: ``{"group", "opened", "waited_s"}``."""
        with self._lock:
            for tally in self._groups.values():
                tally.move(0)
            return [
                {"group": group, "opened": one.opened, "waited_s": one.waited_s} for group, one in self._groups.items()
            ]

    def _of(self, group: int) -> _Tally:
        found = self._groups.get(group)
        if found is not None:
            self._groups.move_to_end(group)
            return found
        idle = next((each for each, one in self._groups.items() if not one.waits), None)
        if len(self._groups) >= _MOST and idle is not None:
            del self._groups[idle]
        found = self._groups[group] = _Tally()
        return found


def group_of(pid: int) -> int:
    """The process group of a thread; `NOBODY` where the kernel does not know it any more."""
    try:
        return os.getpgid(pid) if pid else NOBODY
    except OSError:
        return NOBODY
