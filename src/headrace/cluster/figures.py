"""What one node of a gang measures, as files of points beside those that its processes log: all go the same way."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from contextlib import suppress
from typing import Final

from headrace.jobs import RunFolder
from headrace.tracking.events import EventFiles
from headrace.tracking.samplers import Samplers
from headrace.tracking.segments import Point
from headrace.tracking.spool import SUFFIX, encode

SAMPLE_S: Final = 5.0  # seconds between samples


class Figures:
    """The machine's figures, and those in event files of the job's. One thread; `close` it.

    Args:
        folder: the node's; files go into its spool.
        rank: the lowest of the node, to which the machine's figures count.
        pid: of a process whose descendants are the job's.
    """

    def __init__(self, folder: RunFolder, rank: int, pid: int) -> None:
        self._spool, self._rank = folder.at("spool"), rank
        self._samplers = Samplers(pid, folder.path)
        self._events = EventFiles(folder.recorded("outputs"))
        self._name = f"metrics-{rank}-{os.getpid()}-{time.time_ns()}"
        self._count = 0
        self._sample_at = time.monotonic()

    def tick(self, *, last: bool = False) -> None:
        """What is due. Raises OSError: the disk."""
        points: list[Point] = []
        if last or time.monotonic() >= self._sample_at:
            self._sample_at = time.monotonic() + SAMPLE_S
            now = time.time_ns() // 1000
            points += [Point(now, name, value, rank=self._rank) for name, value in self._samplers.sample().items()]
            points += self._events.new()
        by_rank = defaultdict[int, list[Point]](list)
        for point in points:
            by_rank[point.rank].append(point)
        for rank, some in by_rank.items():
            self._write(rank, some)

    def close(self) -> None:
        """The last ones."""
        with suppress(OSError):
            self.tick(last=True)
        self._samplers.close()

    def _write(self, rank: int, points: list[Point]) -> None:
        times, names, values, steps, _ = zip(*points, strict=True)
        path = os.path.join(self._spool, f"{self._name}-{self._count}{SUFFIX}")
        self._count += 1
        with open(f"{path}.tmp", "wb") as file:
            file.write(encode(rank, times, steps, names, values))
        os.rename(f"{path}.tmp", path)
