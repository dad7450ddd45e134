"""Metadata of objects that this mount has just written: programs often set mode and time after they close a file."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Final

from headrace.store.protocol import Described

_KEPT_S: Final = 5.0  # seconds in which programs set mode and time after they have closed a file
_MOST: Final = 256  # objects: cp and rsync go from one to the next


class RecentObjects:
    """Objects as they were last written here, by path, for five seconds. Any thread.

    `rsync` and `pip` set mode and times after the close. For each the store would be asked first what the object has,
    which we have just sent. Each request names the version, so that another writer's object is noticed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[Described, float]] = OrderedDict()

    def keep(self, path: str, known: Described) -> None:
        """The object at `path` is `known` now."""
        now = time.monotonic()
        with self._lock:
            self._known[path] = known, now
            self._known.move_to_end(path)
            while len(self._known) > _MOST or next(iter(self._known.values()))[1] < now - _KEPT_S:
                self._known.popitem(last=False)

    def take(self, path: str) -> Described | None:
        """What is known of the object at `path`, once: the caller, who changes the object, calls `keep` afterwards."""
        with self._lock:
            known, when = self._known.pop(path, (None, 0.0))
        return known if when > time.monotonic() - _KEPT_S else None

    def clear(self) -> None:
        """Objects have changed their names."""
        with self._lock:
            self._known.clear()
