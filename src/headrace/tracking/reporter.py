"""What the rooms of this process count, written down as metrics of its run: every few seconds, what was added since.

Names are those of `headrace.base.figures` after ``headrace/``; values are increments (gauges as they are), so that the
figures of many processes can be summed, and one that is killed loses its last seconds only. Outside of a run nothing
runs: who reads begins when something is offered (`headrace.base.reporting`) and ``HEADRACE_SPOOL`` is set.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any, Final

from headrace.base import reporting
from headrace.base.settings import environment
from headrace.base.threads import cores
from headrace.tracking.log import SPOOL, log
from headrace.tracking.recorder import DROPPED, rank_here

_log = logging.getLogger("headrace.tracking")

PREFIX: Final = "headrace/"
FACT: Final = ".json"
"""How names end of what is told once."""
GAUGES: Final = frozenset({"fetch.concurrency", "fetch.connections", "fetch.bytes_in_flight", "process.cores"})
_PERIOD_S = 5.0
"""Between two reports: `headrace why` looks at stretches of some of them."""
_FIRST_S = 1.0
"""Whoever asks early is to find something."""


def is_ours(name: str) -> bool:
    """Whether a metric was written down here, or by a runner of its mounts: of use to `headrace why`, not to people."""
    return name.startswith(PREFIX) and name != DROPPED


class Reporter:
    """Logs what is offered, until it is closed. `write` from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: weakref.WeakKeyDictionary[Any, Mapping[str, float]] = weakref.WeakKeyDictionary()
        self._cpu, self._at = time.process_time(), time.monotonic()
        self._facts: set[str] = set()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-report", daemon=True)
        self._thread.start()

    def write(self) -> None:
        """One point for each counter that grew."""
        with self._lock:
            found = self._of_process()
            for owner, told in reporting.told():
                before = self._before.get(owner, {})
                self._before[owner] = told
                for name, value in told.items():
                    if name in GAUGES:
                        found[name] = value
                    elif grown := value - before.get(name, 0.0):
                        found[name] = found.get(name, 0.0) + grown
            log({f"{PREFIX}{name}": value for name, value in found.items()})
            self._write_facts()

    def close(self) -> None:
        """The last points. Idempotent."""
        if not self._closed.is_set():
            self._closed.set()
            self.write()

    def _write_facts(self) -> None:
        """What is told once, as a file each, which the runner puts into the record."""
        spool = environment(SPOOL)
        for name, told in reporting.facts().items():
            if name in self._facts or spool is None:
                continue
            rank = rank_here()
            path = os.path.join(spool, f"{name}-{rank}-{os.getpid()}-{time.time_ns()}{FACT}")
            try:
                by = {"rank": rank, "process": os.getpid(), "attempt": int(environment("HEADRACE_ATTEMPT") or 0)}
                with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                    json.dump({"format": 1, **by, **told}, file)
                os.rename(f"{path}.tmp", path)
            except OSError as error:
                _log.warning("%s: cannot be written down yet: %s", path, error)
                return
            self._facts.add(name)

    def _of_process(self) -> dict[str, float]:
        cpu, now = time.process_time(), time.monotonic()
        spent, passed = cpu - self._cpu, now - self._at
        self._cpu, self._at = cpu, now
        return {
            "process.cpu_s": spent, "process.seconds": passed, "process.cores": float(cores())
        }  # fmt: skip

    def _run(self) -> None:
        wait = _FIRST_S
        while not self._closed.wait(wait):
            wait = _PERIOD_S
            try:
                self.write()
            except Exception:
                _log.exception("figures could not be written down; this is a defect in headrace")


_reporter: Reporter | None = None
_beginning = threading.Lock()


def begin() -> None:
    """Begin to write down what this process counts, if it belongs to a run. Idempotent; any thread."""
    global _reporter  # noqa: PLW0603  one a process
    if _reporter is not None or environment(SPOOL) is None:
        return
    with _beginning:
        if _reporter is None:
            log({})  # what is registered first ends last
            _reporter = made = Reporter()
            atexit.register(made.close)
            _at_the_end_of_a_child(made)


def _at_the_end_of_a_child(reporter: Reporter) -> None:
    """See `headrace.tracking.log`; before what it does."""
    if "multiprocessing.util" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, reporter.close, exitpriority=-99)


def _in_child() -> None:
    """The parent goes on by itself; the child begins anew when it has something to tell."""
    global _reporter, _beginning
    if _reporter is not None:
        atexit.unregister(_reporter.close)
    _reporter, _beginning = None, threading.Lock()


os.register_at_fork(after_in_child=_in_child)
