"""What one process has logged, on its way into the spool: a queue, a thread, and files made by rename."""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from headrace.base.reporting import standing
from headrace.base.settings import environment
from headrace.tracking.spool import SUFFIX, encode
from headrace.tracking.values import step_of, taken

_log = logging.getLogger("headrace.tracking")

PERIOD_S: Final = 1.0
"""What a crash may lose."""
MOST: Final = 2_000_000
"""Points kept in memory, at most: on their way, or because the disk is full."""
DROPPED: Final = "headrace/dropped"
"""The metric that counts the points that found no room."""
PLACE: Final = "headrace/place/"
"""Before the number of a loader, and what is told of it with a step: ``epoch``, and how many samples are ``done``."""
_A_BLOCK = 1 << 16
"""Points in one file, at most."""
_PLAIN = frozenset((float, int))
_Logged = tuple[int, int | None, str, Any]
"""Nanoseconds since the epoch, step, name, value as `taken` left it (None: no number)."""


class Recorder:
    """Writes to the folder `spool` once a second. Any thread. `close` it.

    `most`: points kept in memory, at most.
    """

    def __init__(self, spool: str, *, most: int = MOST) -> None:
        self.writing = threading.RLock()
        """Held while files are written; who forks holds it too."""
        self._spool, self._most = spool, most
        self._pending: deque[_Logged] = deque()
        self._blocks: deque[tuple[int, bytes]] = deque()
        """Points, and the file that holds them."""
        self._held = 0  # points in _blocks
        self._place: tuple[int, int, tuple[int, int, int]] | None = None
        """Where the loop stood at the last step that was logged: nanoseconds, step, and what `standing` says."""
        self._placed = 0
        self._dropping = threading.RLock()  # a handler of a signal may log
        self._dropped, self._dropped_recorded = 0, 0
        self._to_tell: dict[str, str] = {}
        self._told: set[str] = set()
        self._process = f"{os.getpid()}-{time.time_ns()}"
        self._numbers = itertools.count()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-log", daemon=True)
        with suppress(RuntimeError):  # the interpreter is about to end: the last flush will do
            self._thread.start()

    def add(self, values: Mapping[str, float], step: int | None) -> None:
        """See `headrace.log`."""
        now = time.time_ns()
        try:
            if step is not None and type(step) is not int:
                step = self._checked(step_of, "the step", step)
            if len(self._pending) + self._held >= self._most:
                self._drop(len(values))
                return
            append = self._pending.append
            for name, value in values.items():
                append((now, step, name, value if type(value) in _PLAIN else self._checked(taken, name, value)))
            if step is not None and (place := standing()) is not None:
                self._place = now, step, place
        except Exception as error:
            self._tell("call", f"hr.log takes a mapping of names to numbers: {error!r}")

    def flush(self) -> None:
        """Write what is there; what the disk does not take is kept, within the bound, and tried again."""
        with self.writing:
            self._gather()
            try:
                self._write()
            except OSError as error:
                self._tell("disk", f"{self._spool}: what is logged waits in memory: {error}")
        self._say()

    def close(self) -> None:
        """Write what is left, and end the thread. Idempotent."""
        self._closed.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(10.0)
        self.flush()

    def _run(self) -> None:
        while not self._closed.wait(PERIOD_S):
            try:
                self.flush()
            except Exception:
                _log.exception("what was logged could not be written; this is a defect in headrace")

    # Values

    def _checked(self, work: Callable[[Any], Any], name: object, value: Any) -> Any:
        """None for what is no number."""
        try:
            return work(value)
        except Exception as error:
            self._tell("value", f"hr.log leaves out {name!r}: {error}")
            return None

    def _drop(self, count: int) -> None:
        with self._dropping:
            self._dropped += count

    # Into files

    def _gather(self) -> None:
        """What is pending becomes blocks, of a fifth of the memory."""
        if (place := self._place) is not None and place[0] > self._placed:
            self._placed = place[0]
            now, step, (number, epoch, done) = place
            self._pending.append((now, step, f"{PLACE}{number}/epoch", epoch))
            self._pending.append((now, step, f"{PLACE}{number}/done", done))
        while count := min(len(self._pending), _A_BLOCK):
            self._keep([self._pending.popleft() for _ in range(count)])
        if self._dropped > self._dropped_recorded:
            self._dropped_recorded = self._dropped
            self._tell("dropped", f"hr.log keeps at most {self._most:,} points in memory; what came then was dropped")
            self._keep([(time.time_ns(), None, DROPPED, float(self._dropped))])

    def _keep(self, logged: list[_Logged]) -> None:
        if {type(value) for _, _, _, value in logged} != {float}:
            logged = [(*one[:3], value) for one in logged if (value := self._number(one)) is not None]
        if logged:
            times, steps, names, values = zip(*logged, strict=True)
            times_us = [one // 1000 for one in times]
            self._blocks.append((len(logged), encode(rank_here(), times_us, steps, names, values)))
            self._held += len(logged)

    def _number(self, one: _Logged) -> float | None:
        return None if one[3] is None else self._checked(float, one[2], one[3])

    def _write(self) -> None:
        """Raises OSError: what is not written is still in `_blocks`."""
        while self._blocks:
            rows, data = self._blocks[0]
            self._publish(data)
            self._blocks.popleft()
            self._held -= rows

    def _publish(self, data: bytes) -> None:
        path = os.path.join(self._spool, f"metrics-{rank_here()}-{self._process}-{next(self._numbers)}{SUFFIX}")
        try:
            with open(f"{path}.tmp", "wb") as file:
                file.write(data)
            os.rename(f"{path}.tmp", path)
        except OSError:
            with suppress(OSError):
                os.unlink(f"{path}.tmp")
            raise

    # For people

    def _tell(self, kind: str, text: str) -> None:
        """Once a kind, and by who writes: a handler of `logging` may wait for anything."""
        if kind not in self._told:
            self._to_tell.setdefault(kind, text)

    def _say(self) -> None:
        for kind in list(self._to_tell):
            text = self._to_tell.pop(kind)
            if kind not in self._told:
                self._told.add(kind)
                _log.warning("%s (told once)", text)


def rank_here() -> int:
    """Of this process, as torchrun says it; a script may also set it after its first lines."""
    text = environment("RANK") or "0"
    return int(text) if text.isdecimal() and int(text) < 1 << 31 else 0
