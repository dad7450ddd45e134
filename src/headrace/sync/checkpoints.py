"""Folders that count as one: ``COMMITTED`` is written when all of a folder is in the store, and is gone before any of
it is sent again. So whoever looks for the marker never meets half of a checkpoint.

That a folder is finished its writer says, by a file ``COMMITTED`` of its own; else it counts as finished when nothing
in it has changed for a while and the job still runs. What was seen to be finished is remembered beyond a crash, so that
what a killed job left half written is never taken for a whole. So is the order in which folders were finished. The
markers tell it, since neither what is sent first nor the clock does.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping

from headrace.store.protocol import Store
from headrace.sync.ledger import Ledger, Sent
from headrace.sync.options import Mark
from headrace.sync.scan import Stamp
from headrace.upload import FINISHED, MARKER, commit, retract, time_text


class Checkpoints:
    """The markers below one prefix. `mark`: see `SyncOptions.mark`.

    Any thread; who asks does not send and commit one folder at once.
    """

    def __init__(self, store: Store, prefix: str, ledger: Ledger, mark: Mark | None = None) -> None:
        self._store = store
        self._prefix = prefix
        self._mark = mark
        self._ledger = ledger
        self._lock = threading.Lock()
        self._written = ledger.commits()
        self._ready = ledger.ready()
        self._finished = ledger.finished()
        self._last = max((at for _, at in self._finished.values()), default=0)
        self._open: set[str] = set()

    def begin(self, folder: str) -> None:
        """Something of a folder is about to be sent: its marker must go first. Raises as `Store.delete`."""
        with self._lock:
            if folder in self._open:
                return
            retract(self._store, self._prefix + folder)
            self._ledger.commit(folder, None)
            self._written.pop(folder, None)
            self._open.add(folder)

    def is_written(self, folder: str, files: Mapping[str, Sent]) -> bool:
        """Whether the marker is there, over just these files."""
        return self._written.get(folder) == _content(files)

    def is_committed(self, folder: str) -> bool:
        """Whether its marker is there, over whatever."""
        return folder in self._written

    def ready(self, folder: str, stamps: Mapping[str, Stamp]) -> None:
        """It is finished as it is."""
        self._ready[folder] = _digest(_written(stamps))
        self._ledger.make_ready(folder, self._ready[folder])

    def is_ready(self, folder: str, stamps: Mapping[str, Stamp]) -> bool:
        """Whether it was seen to be finished, just as it is."""
        return folder in self._ready and self._ready[folder] == _digest(_written(stamps))

    def finished(self, folder: str, stamps: Mapping[str, Stamp]) -> None:
        """It is finished, after all that were before. Said again, of what has not changed, it is nothing new."""
        digest = _digest(_written(stamps))
        with self._lock:
            if folder in self._finished and self._finished[folder][0] == digest:
                return
            self._last = max(self._last + 1, time.time_ns() // 1000)
            self._finished[folder] = (digest, self._last)
            self._ledger.finish(folder, digest, self._last)

    def write(self, folder: str, files: Mapping[str, Sent]) -> None:
        """All of a folder is sent. Raises as `Store.put`."""
        note = {"by": "headrace sync"}
        if folder in self._finished:
            note[FINISHED] = time_text(self._finished[folder][1])
        members = [sent.info for sent in files.values()]
        if self._mark is None:
            commit(self._store, self._prefix + folder, members, note=note)
        else:
            self._mark(folder, members, note)
        with self._lock:
            self._written[folder] = _content(files)
            self._ledger.commit(folder, self._written[folder])
            self._open.discard(folder)


def is_marker(name: str) -> bool:
    """Whether a file in a checkpoint folder is the writer's word that the folder is finished."""
    return name.rpartition("/")[2] == MARKER


def _content(files: Mapping[str, Sent]) -> str:
    return _digest({name: (sent.info.size, sent.info.version) for name, sent in files.items()})


def _written(stamps: Mapping[str, Stamp]) -> dict[str, tuple[object, ...]]:
    """Without what a mode or a hard link changes: they do not make another checkpoint."""
    return {name: stamp.written for name, stamp in stamps.items()}


def _digest(told: Mapping[str, tuple[object, ...]]) -> str:
    lines = "\n".join(f"{name}\t{told[name]!r}" for name in sorted(told))
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()
