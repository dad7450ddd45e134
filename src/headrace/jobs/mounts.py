"""What the processes of a run do on the mounts of this machine, as metrics: for code that reads files by itself.

Who reads through a mount has no step clock of ours, so the mounts' own counters are looked at, from outside of the job:
those of every mount that this user may ask, because nobody knows which of them a program opens files in. Of what a
mount tells, the opens and waits of the run's own process groups count, and what it fetched while they were at work.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import suppress
from typing import Final

from headrace.mount import GROUP_COUNTERS, MountCounts, counts_of_mounts

_log = logging.getLogger("headrace.jobs")
_EVERY_S = 2.0  # seconds between looks
_LAST_S = 0.5  # seconds that the end waits for a last look
PREFIX: Final = "headrace/mounts/"


class Groups:
    """The process groups of a run: that of its command, and those whose leader was started with the run's id in its
    environment, in whatever session (as by torchrun) or container. One thread, but for `add`.
    """

    def __init__(self, run: str) -> None:
        self._variable = f"HEADRACE_RUN_ID={run}".encode()
        self._own: set[int] = set()

    def add(self, pid: int) -> None:
        """A command of the run was started as `pid`. Any thread."""
        with suppress(OSError):
            self._own.add(os.getpgid(pid))

    def has(self, group: int) -> bool:
        """Whether it is the run's. Once it was, it stays so: its leader may have ended."""
        if group in self._own:
            return True
        with suppress(OSError), open(f"/proc/{group}/environ", "rb") as file:
            if self._variable in file.read().split(b"\0"):
                self._own.add(group)
                return True
        return False


class Mounts:
    """A thread that looks; `added` is asked by another. A mount that hangs holds up nobody but the thread.

    Args:
        run: its id.
    """

    def __init__(self, run: str) -> None:
        self.groups = Groups(run)
        self._lock = threading.Lock()
        self._before: dict[tuple[str, int], MountCounts] | None = None
        self._added: dict[str, float] = {}
        self._at = time.monotonic()
        self._over = threading.Event()
        self._wanted = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headrace-run-mounts", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Now, while the mounts are still there: waits for half a second at most. Any thread."""
        self._looked.clear()
        self._wanted.set()
        self._looked.wait(_LAST_S)

    def added(self) -> dict[str, float]:
        """What was added to the counters since the call before, by the names of metrics. Any thread."""
        with self._lock:
            added, self._added = self._added, {}
        return {f"{PREFIX}{name}": value for name, value in added.items() if value}

    def close(self) -> None:
        """End the thread, without waiting for it."""
        self._over.set()
        self._wanted.set()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._look()
            except Exception:
                _log.exception("the mounts could not be looked at; this is a defect in headrace")
            self._looked.set()
            self._wanted.wait(_EVERY_S)
            self._wanted.clear()

    def _look(self) -> None:
        found = counts_of_mounts()
        added = {mount: self._of(mount, counted) for mount, counted in found.items()}
        with self._lock:
            now = time.monotonic()
            passed, self._at = now - self._at, now
            self._before = {**(self._before or {}), **found}
            if found:
                self._added["seconds"] = self._added.get("seconds", 0.0) + passed
            for one in added.values():
                for name, value in one.items():
                    self._added[name] = self._added.get(name, 0.0) + value

    def _of(self, mount: tuple[str, int], now: MountCounts) -> dict[str, float]:
        """What the run has done there since the last look; nothing at the first, but for what began with the run."""
        if self._before is None:
            return {}
        before = self._before.get(mount, MountCounts({}, {}))
        added: dict[str, float] = dict.fromkeys(GROUP_COUNTERS, 0.0)
        for group, counted in now.groups.items():
            known = before.groups.get(group, {})
            grown = {name: value - known.get(name, 0.0) for name, value in counted.items()}
            if any(grown.values()) and self.groups.has(group):
                for name, value in grown.items():
                    added[name] += value
        if any(added.values()):
            added |= {name: value - before.whole.get(name, 0.0) for name, value in now.whole.items()}
        return added
