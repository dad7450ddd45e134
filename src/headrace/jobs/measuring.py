"""The figures of a run on their way into segments: what the job logs, its event files, and what the machine does."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Final

from headrace.base.errors import HeadraceError
from headrace.jobs.folder import RunFolder
from headrace.jobs.mounts import Mounts
from headrace.tracking.events import EventFiles
from headrace.tracking.record import Status
from headrace.tracking.reporter import FACT
from headrace.tracking.rolling import Rolling
from headrace.tracking.samplers import Samplers
from headrace.tracking.segments import Merger, Point, table

_log = logging.getLogger("headrace.jobs")
SAMPLE_S: Final = 5.0  # seconds between samples of the machine
SEGMENT_S: Final = 10.0  # seconds of points in a segment: who looks on is so far behind


class Measuring:
    """One thread, but for `watch` and `rest`. A full disk keeps nothing from going on.

    Args:
        folder: the run's.
        run: its id.
        samplers: whether the machine is looked at.
    """

    def __init__(self, folder: RunFolder, run: str, *, samplers: bool = True) -> None:
        self._folder = folder
        self._run = run
        self._merger = Merger(folder.at("spool"), folder.recorded("metrics"))
        self._rolling = Rolling(folder.recorded("metrics"), folder.recorded())
        self._events = EventFiles(folder.recorded("outputs"))
        self._samplers: Samplers | None = None
        self._wanted = samplers
        self._pid: int | None = None
        self._watched: int | None = None
        self._resting = False
        self._points: list[Point] = []
        self._mounts: Mounts | None = None
        self._told = False
        self._sample_at = self._segment_at = time.monotonic()
        self._segment_at += SEGMENT_S

    def watch(self, pid: int | None) -> None:
        """The command's process from now on; None: it is over."""
        self._pid = pid
        self._resting = self._resting and pid is None
        if self._mounts is None and self._wanted:
            self._mounts = Mounts(self._run)
        if self._mounts is None:
            return
        if pid is None:
            self._mounts.look()
        else:
            self._mounts.groups.add(pid)

    def rest(self) -> None:
        """The machine is not looked at until there is a process to `watch`: what it does is other runs'. Any thread."""
        self._resting = True

    def tick(self) -> None:
        """What is due. Call it every second or so."""
        now = time.monotonic()
        if now >= self._sample_at:
            self._sample_at = now + SAMPLE_S
            self._sample()
        if now >= self._segment_at:
            self._segment_at = now + SEGMENT_S
            self.collect()

    def collect(self) -> None:
        """One more segment, if there is anything."""
        self._roll(self._take_facts)
        try:
            while True:
                read = self._events.new()
                written = self._merger.collect(table([*self._points, *read]))
                self._points.clear()
                self._roll(lambda written=written: self._rolling.tell(written))
                if not read:
                    break
            self._told = False
        except HeadraceError as error:
            if not self._told:
                _log.warning("metrics wait: %s", error)
            self._told = True

    def _take_facts(self) -> None:
        """What the job's processes tell once lies in the spool as files of their own."""
        into = self._folder.recorded("loaders")
        for name in os.listdir(self._folder.at("spool")):
            if name.endswith(FACT):
                os.makedirs(into, exist_ok=True)
                os.rename(os.path.join(self._folder.at("spool"), name), os.path.join(into, name))

    def close(self) -> None:
        """The last segment."""
        self._sample()
        self.collect()
        if self._samplers is not None:
            self._samplers.close()
        if self._mounts is not None:
            self._mounts.close()

    def summarise(self, status: Status) -> None:
        """All that was measured of a run that has ended so. After `close`, and once its log is closed."""
        self._roll(lambda: self._rolling.close(status))

    def _roll(self, work: Callable[[], None]) -> None:
        """Whatever it meets, segments are written on: a run is read without the rest too."""
        try:
            work()
        except (OSError, HeadraceError) as error:
            _log.warning("not all that was measured is in the record: %s", error)

    def _sample(self) -> None:
        if not self._wanted or self._resting:
            return
        if self._samplers is None or self._pid not in (None, self._watched):
            if self._samplers is not None:
                self._samplers.close()
            self._samplers, self._watched = Samplers(self._pid, self._folder.path), self._pid
        now = time.time_ns() // 1000
        found = self._samplers.sample()
        if self._mounts is not None:
            found |= self._mounts.added()
        self._points += [Point(now, name, value) for name, value in found.items()]
