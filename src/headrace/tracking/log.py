"""``hr.log``: numbers from a training loop into the spool of its run, without waiting for anything.

A call appends to a queue in memory. Once a second a daemon thread writes what is there as one file (its format:
`headrace.tracking.spool`) into the folder ``HEADRACE_SPOOL``: first ``.tmp``, then by rename
``metrics-<rank>-<pid>-<start, ns>-<n>.points``. The runner sets the variable, and gathers the files
(`headrace.tracking.segments`). A process that is killed loses its last second.

Nothing is imported here but Python itself, because the job's environment need not have what headrace depends on.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from headrace.base.settings import environment
from headrace.tracking.recorder import Recorder

_log = logging.getLogger("headrace.tracking")

SPOOL: Final = "HEADRACE_SPOOL"
_FORK_WAITS_S = 2.0
"""For a write that is under way; then the child goes without what it would have told."""


def log(values: Mapping[str, float], step: int | None = None) -> None:
    """Record one point for each name: ``hr.log({"loss": 0.3, "lr": 1e-3}, step=17)``.

    Any thread of any process of the job, after a fork too. Returns within microseconds, and raises nothing.

    Values are numbers, and the scalars of NumPy, PyTorch, JAX and TensorFlow; a GPU is not waited for. What is no
    number is left out, and told once by `logging`. Outside of a run, where ``HEADRACE_SPOOL`` is not set, nothing is
    kept. Of more than two million points that wait for the disk the latest are dropped, and counted as the metric
    ``headrace/dropped``.
    """
    (_recorder or _begin()).add(values, step)


def flush() -> None:
    """Write what this process has logged so far. Waits for the disk; any thread. Happens by itself at exit."""
    if isinstance(_recorder, Recorder):
        _recorder.flush()


class _Nowhere:
    """Outside of a run."""

    def add(self, values: Mapping[str, float], step: int | None) -> None:
        """Nothing is kept."""


_recorder: Recorder | _Nowhere | None = None
_beginning = threading.RLock()
_told = False


def _begin() -> Recorder | _Nowhere:
    """At the first call in a process."""
    global _recorder, _told  # noqa: PLW0603  one a process
    with _beginning:
        if _recorder is None and (spool := environment(SPOOL)):
            _recorder = made = Recorder(spool)
            atexit.register(made.close)
            _at_the_end_of_a_child(made)
        elif _recorder is None:
            _recorder = _Nowhere()
            if not _told:
                _told = True
                _log.info("%s is not set, so hr.log keeps nothing: it does under `headrace run`", SPOOL)
        return _recorder


def _at_the_end_of_a_child(recorder: Recorder) -> None:
    """Children of `multiprocessing` end without `atexit`; what it calls instead, last of all, is a Finalize."""
    if "multiprocessing.util" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process() is not None:
            util.Finalize(None, recorder.close, exitpriority=-100)


def _before_fork() -> None:
    """Let the thread finish what it writes, or imports: the child would inherit it half-way, for ever."""
    if isinstance(_recorder, Recorder):
        _recorder.writing.acquire(timeout=_FORK_WAITS_S)


def _in_parent() -> None:
    if isinstance(_recorder, Recorder):
        with suppress(RuntimeError):  # the disk hangs, and it was not waited for any longer
            _recorder.writing.release()


def _in_child() -> None:
    """Nothing of the parent's: it writes that itself. The child's first call makes its own."""
    global _recorder, _beginning
    if isinstance(_recorder, Recorder):
        atexit.unregister(_recorder.close)
    _recorder, _beginning = None, threading.RLock()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
