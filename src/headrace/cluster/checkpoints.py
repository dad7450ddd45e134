"""Checkpoints that several nodes write together: complete when each has sent its part, then marked by who leads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from headrace.base.errors import HeadraceError
from headrace.cluster.told import News, Part
from headrace.tracking.runs import Run
from headrace.upload import commit


class Together:
    """Of one attempt. Any thread.

    A folder is marked when one node has told its part, and every other one was heard since without anything of that
    folder still to be sent. A node that is gone is waited for no longer, and nothing it had begun is marked.

    Args:
        run: whose.
        nodes: how many.
        tell: gets what cannot be marked.
    """

    def __init__(self, run: Run, nodes: int, tell: Callable[[str], None]) -> None:
        self._run, self._nodes, self._tell = run, nodes, tell
        self._lock = threading.Lock()
        self._parts = defaultdict[str, dict[int, Part]](dict)
        self._open = defaultdict[int, frozenset[str]](frozenset)
        self._due: dict[str, set[int]] = {}
        """Folders that are to be marked, and the nodes that were heard since the last part."""
        self._gone = False

    def heard(self, node: int, news: News) -> None:
        """What a node has told."""
        with self._lock:
            self._open[node] = news.open
            for heard in self._due.values():
                heard.add(node)
            for part in news.parts:
                self._parts[part.folder][node] = part
                self._due[part.folder] = {node}
            self._mark()

    def gone(self, _node: int) -> None:
        """A node does not answer any more: nobody knows what it had yet to send."""
        with self._lock:
            self._gone = True

    def close(self, *, complete: bool) -> None:
        """All nodes have sent what they had. `complete`: their processes ended well."""
        with self._lock:
            if complete and not self._gone:
                for heard in self._due.values():
                    heard.update(range(self._nodes))
                self._mark()

    def _mark(self) -> None:
        for folder, heard in list(self._due.items()):
            parts = self._parts[folder]
            waits = any(folder in self._open[node] for node in range(self._nodes) if node not in parts)
            if self._gone or waits or len(heard) < self._nodes:
                continue
            members = [member for part in parts.values() for member in part.members]
            note = max((part.note for part in parts.values()), key=lambda one: sorted(one.items()))
            try:
                commit(self._run.store, self._run.prefix + folder, members, note={**note, "by": "headrace run"})
            except HeadraceError as error:
                self._tell(f"{folder} cannot be marked as complete, will be tried again: {error}")
                continue
            del self._due[folder]
