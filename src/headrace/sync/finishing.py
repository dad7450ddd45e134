"""When a checkpoint folder is finished, and its marker written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping

from headrace.sync.checkpoints import Checkpoints
from headrace.sync.due import LOOK_S, NEVER_S, Tracked
from headrace.sync.files import Files
from headrace.sync.lanes import Lanes
from headrace.sync.ledger import Sent
from headrace.sync.options import SyncOptions
from headrace.sync.scan import Stamp

_log = logging.getLogger("headrace.sync")
_AGAIN_S = 2.0
"""A checkpoint that could not be marked complete is tried again then."""


class Finishing:
    """One thread. `under_way`: folders whose marker is being written, of which nothing may be sent meanwhile."""

    def __init__(self, files: Files, checkpoints: Checkpoints, lanes: Lanes, options: SyncOptions) -> None:
        self._files = files
        self._checkpoints = checkpoints
        self._lanes = lanes
        self._options = options
        self.under_way: set[str] = set()
        self._cut: dict[str, dict[str, Stamp]] = {}
        self.written = 0

    def commit_due(self, now: float, *, complete: bool | None) -> float:
        """Write what markers are due; returns when to ask again. `complete`: None while the job runs, as far as known;
        else whether all it has written is whole.
        """
        next_at = now + NEVER_S
        due: list[str] = []
        for folder, files in self._files.checkpoints.items():
            if folder in self._files.settled:
                continue
            at = self._finished_at(folder, files.values(), now, complete)
            if at > now:
                next_at = min(next_at, at)
            else:
                due.append(folder)
        for folder in sorted(due, key=self._moved):
            self._commit_finished(folder, self._files.checkpoints[folder])
        return next_at

    def _moved(self, folder: str) -> tuple[float, int, str]:
        """When something last changed in it: of those that are found at once, as at the end, the order."""
        files = self._files.checkpoints[folder].values()
        return max(file.moved for file in files), max(file.stamp.mtime_ns for file in files), folder

    def _commit_finished(self, folder: str, files: Mapping[str, Tracked]) -> None:
        """Write its marker, once all of it is sent."""
        sent = {name: file.sent for name, file in files.items() if file.sent is not None and not file.dirty}
        at_rest = folder not in self.under_way and not any(file.busy for file in files.values())
        whole = at_rest and len(sent) == len(files)
        if whole and self._checkpoints.is_written(folder, sent):
            self._files.settled.add(folder)
            return
        self._checkpoints.finished(folder, {name: file.stamp for name, file in files.items()})
        if whole:
            self._commit(folder, sent)

    def cut_short(self) -> None:
        """Their writer is gone: folders that are not finished are as quiet as those that are, so quiet says nothing."""
        for folder, files in self._files.checkpoints.items():
            stamps = {name: file.stamp for name, file in files.items()}
            if folder not in self._files.finished and not self._checkpoints.is_ready(folder, stamps):
                self._cut[folder] = stamps

    def _finished_at(self, folder: str, files: Collection[Tracked], now: float, complete: bool | None) -> float:
        """When a folder counts as finished, if nothing changes in it.

        What was cut short by the end of a job is as quiet as what is finished, so quiet counts only before that.
        """
        stamps = {file.name: file.stamp for file in files}
        if complete or folder in self._files.finished or self._checkpoints.is_ready(folder, stamps):
            return now
        if complete is not None or not self._options.judge or self._cut.get(folder) == stamps:
            return now + NEVER_S
        moved = max(file.moved for file in files)
        # What had long been at rest when the sync began need not be waited for. Of what comes later, the files' own
        # times say nothing: they are copied along, and clocks are set.
        at = moved + (LOOK_S if all(file.rested for file in files) else self._options.quiet)
        if at <= now:
            self._checkpoints.ready(folder, stamps)
        return at

    def _commit(self, folder: str, files: dict[str, Sent]) -> None:
        self.under_way.add(folder)

        def work() -> Callable[[], None]:
            try:
                self._checkpoints.write(folder, files)
            except Exception as error:
                _log.warning("%s: the marker could not be written, will be tried again: %s", folder, error)
                return lambda: self._later(folder)
            return lambda: self._done(folder)

        self._lanes.add(0, work)

    def _done(self, folder: str) -> None:
        self.under_way.discard(folder)
        self.written += 1

    def _later(self, folder: str) -> None:
        timer = threading.Timer(_AGAIN_S, lambda: self._lanes.tell(lambda: self.under_way.discard(folder)))
        timer.daemon = True
        timer.start()
