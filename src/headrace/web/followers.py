"""What is known of the runs that are looked at: one follower a run for all viewers, so fifty cost what one does."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import numpy as np

from headrace.base.errors import HeadraceError, NoRoomError, NotFoundError
from headrace.base.figures import Figures
from headrace.base.verdict import Verdict, judge
from headrace.tracking.handed import Handing, handings
from headrace.tracking.judged import at_its_end
from headrace.tracking.logs import STREAMS
from headrace.tracking.measured import Measured
from headrace.tracking.notes import AllNotes
from headrace.tracking.pages import LogPages
from headrace.tracking.record import RunRecord, Status
from headrace.tracking.runs import Run, Runs, RunView
from headrace.tracking.stretches import Stretches
from headrace.upload import committed

_Known = TypeVar("_Known")
_MOST: Final = 20
"""Runs in memory."""
_MOST_KEPT: Final = 200
"""Runs of whose metrics something is kept on this node."""
_LOOK_S, _POINTS_S, _LOG_S = 2.0, 5.0, 1.0
"""How long is trusted how a run stands, its points, and that there are no more lines."""
_CHECKPOINTS_S: Final = 15.0
"""Seconds for which it is trusted what checkpoints there are, and what loaders said: a listing each."""
_SAME_S: Final = 10.0
"""How long it is trusted that an id stands for the run that it stood for."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A part, when it was told and when it was last asked for (monotonic seconds), and what the store said instead."""

    value: Any
    at: float
    asked: float
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete one: its folder's name, when it was committed (microseconds since the epoch), its files and bytes."""

    name: str
    written_us: int
    files: int
    bytes: int


class Follower:
    """One run. Any thread: who comes while a part is asked for waits for that answer.

    `folder`: where what is known of its metrics is kept. `notes`: of all runs.
    """

    def __init__(self, run: Run, notes: AllNotes, folder: str) -> None:
        self.run, self._notes, self._folder = run, notes, folder
        parts = ("view", "notes", "metrics", "statuses", "checkpoints", "loaders", *STREAMS)
        self._locks = {name: threading.Lock() for name in parts}
        self._known: dict[str, Fresh] = {}
        self._measured: Measured | None = None
        self._pages = {stream: LogPages(run.store, f"{run.prefix}logs/", stream) for stream in STREAMS}
        self._judged: tuple[int, str, Verdict] | None = None
        self._stretches: tuple[tuple[int, tuple[int, ...], int | None], Stretches] | None = None
        self._same_at = time.monotonic()

    def is_another(self) -> bool:
        """Whether its id is no run's by now, or another one's: a run may be deleted, and its id given again. Looked for
        every few seconds, by one GET. False while the store is away.
        """
        known, now = self._record(), time.monotonic()
        if known is None or now - self._same_at < _SAME_S:
            return False
        self._same_at = now
        try:
            return self.run.record().created != known.created
        except NotFoundError:
            return True
        except HeadraceError:
            return False

    def view(self) -> RunView:
        """How it stands, with its notes. Raises NotFoundError, any store error."""
        view = self._get("view", _LOOK_S, lambda: self.run.look(self._record()))
        kept = self._get("notes", _LOOK_S, lambda: self._notes.of(view.record))
        return replace(view, kept=kept)

    def statuses(self) -> list[Status]:
        """Its transitions. Raises any store error."""
        state = self.view().state
        return self._get(f"statuses {state}", float("inf"), self.run.statuses, lock="statuses")

    def measured(self) -> Measured:
        """Its metrics so far. Raises any store error, CorruptError."""
        return self._get("metrics", _POINTS_S, self._refreshed)

    def verdict(self) -> Verdict:
        """What limits it."""
        measured, view = self.measured(), self.view()
        known = self._judged
        if known is None or known[:2] != (measured.version, view.state):
            known = self._judged = measured.version, view.state, self.judged(measured.figures())
        return known[2]

    def stretches(self, edges: tuple[int, ...], rank: int | None) -> Stretches:
        """What is judged of each stretch between `edges`, microseconds since the epoch. Raises any store error."""
        measured = self.measured()
        key = measured.version, edges, rank
        known = self._stretches
        if known is None or known[0] != key:
            known = self._stretches = key, measured.stretches(np.array(edges), rank)
        return known[1]

    def judged(self, figures: Figures) -> Verdict:
        """What limits it, as these figures of all of it, or of one rank, tell, and its end. Raises any store error."""
        verdict, view, run = judge(figures), self.view(), self.run
        return at_its_end(verdict, figures, view.ended, run.store, run.prefix) if view.over else verdict

    def checkpoints(self) -> list[Checkpoint]:
        """The complete ones, the oldest first. Raises any store error."""
        return self._get("checkpoints", _CHECKPOINTS_S, self._checkpoints)

    def handings(self) -> list[Handing]:
        """What its loaders said of themselves, the earliest first. Raises any store error, CorruptError."""
        return self._get("loaders", _CHECKPOINTS_S, lambda: handings(self.run.store, self.run.prefix))

    def log(self, stream: str) -> LogPages:
        """Its lines, looked for anew if that was a second ago. Raises KeyError, any store error, CorruptError."""
        pages = self._pages[stream]
        self._get(stream, _LOG_S, pages.refresh)
        return pages

    def problem(self) -> tuple[str | None, float]:
        """What the store said when a part was last asked for, if it failed; and how old what is shown is, seconds."""
        failed = [one for one in list(self._known.values()) if one.problem is not None]
        if not failed:
            return None, 0.0
        return failed[0].problem, time.monotonic() - min(one.at for one in failed)

    def _refreshed(self) -> Measured:
        run = self.run
        if self._measured is None:  # an id may be given again, once its run is deleted
            made = hashlib.sha256(self.view().record.created.encode()).hexdigest()[:8]
            folder = os.path.join(self._folder, f"{run.id}-{made}")
            self._measured = Measured(run.store, f"{run.prefix}metrics/", folder)
        try:
            self._measured.refresh()
        except OSError as error:
            hint = "make room in the node's cache, or give it another folder: headrace config set cache.dir"
            raise NoRoomError(f"so many metrics need room on this node: {error}", path=run.id, hint=hint) from error
        return self._measured

    def _checkpoints(self) -> list[Checkpoint]:
        store, below = self.run.store, f"{self.run.prefix}checkpoints/"
        found: list[Checkpoint] = []
        for folder in store.list_folder(below).folders:
            if (done := committed(store, folder)) is not None:
                sizes = [info.size for page in store.list(folder) for info in page]
                found.append(Checkpoint(folder[len(below) :].rstrip("/"), done.said_us, len(sizes) - 1, sum(sizes)))
        return sorted(found, key=lambda one: one.written_us)

    def _record(self) -> RunRecord | None:
        known = self._known.get("view")
        return known.value.record if known is not None else None

    def _get(self, name: str, lasts_s: float, ask: Callable[[], _Known], lock: str | None = None) -> _Known:
        """What is known, or is asked for now; where the store is away, what was known before."""
        with self._locks[lock or name]:
            known = self._known.get(name)
            over = known is not None and self._is_over(name, known)
            if known is not None and (over or time.monotonic() - known.asked < lasts_s):
                return known.value
            try:
                value = ask()
            except HeadraceError as error:
                if known is None:
                    raise
                self._known[name] = Fresh(known.value, known.at, time.monotonic(), str(error))
                return known.value
            now = time.monotonic()
            self._known[name] = Fresh(value, now, now)
            return value

    def _is_over(self, name: str, known: Fresh) -> bool:
        """Whether nothing more can come: the run had ended when it was asked for. People may say of it what they like
        at any time.
        """
        view = self._known.get("view")
        if view is None or name == "notes" or not view.value.over or view.value.state == "lost":
            return False
        return name == "view" or known.at > view.at


class Followers:
    """Of the runs looked at last. Any thread. `folder`: where what is known of their metrics is kept."""

    def __init__(self, runs: Runs, folder: str) -> None:
        self._runs, self._folder = runs, folder
        self._lock = threading.Lock()
        self._all: OrderedDict[str, Follower] = OrderedDict()

    def of(self, name: str) -> Follower:
        """Raises InputError: it can be no run's id."""
        with self._lock:
            known = self._all.get(name)
        gone = known is not None and known.is_another()
        with self._lock:
            if gone and self._all.get(name) is known:
                del self._all[name]
            if name not in self._all:
                self._all[name] = self.new(name)
                while len(self._all) > _MOST:
                    self._all.popitem(last=False)
                self._make_room()
            self._all.move_to_end(name)
            return self._all[name]

    def new(self, name: str) -> Follower:
        """One that is nobody else's. Raises InputError: it can be no run's id."""
        return Follower(self._runs.run(name), self._runs.notes, self._folder)

    def _make_room(self) -> None:
        """Delete what is kept of the runs that were looked at longest ago, beyond so many."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            kept = sorted(entries, key=lambda one: one.stat().st_mtime, reverse=True)
            for one in kept[_MOST_KEPT:]:
                shutil.rmtree(one.path, ignore_errors=True)

    def forget(self, name: str) -> None:
        """It was deleted."""
        with self._lock:
            self._all.pop(name, None)
