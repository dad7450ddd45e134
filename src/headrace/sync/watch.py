"""Which files changed: told by the kernel where it can (watchfiles, over inotify), else left to scans."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

_log = logging.getLogger("headrace.sync")
_GATHER_MS, _PAUSE_MS, _LOOK_MS = 1000, 250, 500
"""Changes are gathered for a second at most, or until a quarter passes without any."""


class Watcher:
    """Collects the names of what changed in a folder. Any thread.

    `works`: whether changes are told at all; when not, whoever asks must scan. `wake`: called when there is something.
    `began`: set once, when the kernel has begun to tell: what changed before that it has not.
    """

    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self._path = path
        self._wake = wake
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.works = False
        self.began = threading.Event()

    def start(self) -> None:
        """Begin, if the ``runs`` extra is installed and the kernel has watches left."""
        try:
            import watchfiles
        except ImportError:
            _log.info(
                "watchfiles is not installed: changes are found by looking at every file (pip install 'headrace[runs]')"
            )
            return

        def work() -> None:
            try:
                changes = watchfiles.watch(
                    self._path, watch_filter=None, debounce=_GATHER_MS, step=_PAUSE_MS, rust_timeout=_LOOK_MS,
                    stop_event=self._stop, raise_interrupt=False, ignore_permission_denied=True,
                    yield_on_timeout=True,
                )  # fmt: skip
                for changed in changes:
                    names = self._named({path for _, path in changed})
                    with self._lock:
                        self._names |= names
                    if changed or not self.began.is_set():
                        self.began.set()
                        self._wake()
            except Exception as error:  # no watches left, no inotify here: all kinds
                if not self._stop.is_set():
                    _log.warning("changes are found by looking at every file: %s", error)
            finally:
                self.works = False
                self._wake()

        self.works = True
        self._thread = threading.Thread(target=work, name="headrace-sync-watch", daemon=True)
        self._thread.start()

    def _named(self, paths: set[str]) -> set[str]:
        """By the folders where they lie: a folder that links lead to as well is watched once, and told by any name."""
        root = os.path.realpath(self._path)
        parents = {parent: os.path.realpath(parent) for parent in {os.path.dirname(path) for path in paths}}
        found = {os.path.join(parents[os.path.dirname(path)], os.path.basename(path)) for path in paths}
        return {os.path.relpath(path, root) for path in found if f"{path}/".startswith(f"{root}/")}

    def take(self) -> set[str]:
        """The names that changed since last asked, files and folders."""
        with self._lock:
            names, self._names = self._names, set()
        return names

    def stop(self) -> None:
        """Begin to stop. Idempotent."""
        self._stop.set()

    def close(self) -> None:
        """Stop; waits a moment. Idempotent."""
        self.stop()
        if self._thread is not None:
            self._thread.join(2.0)
