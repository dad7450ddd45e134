"""What is gone here goes there too, where that is wanted: but an absence alone does not tell that anybody deleted it.

A folder that another file system covers, that was made anew, or that could not be read, looks as if all had been
deleted. So names are looked up one by one before they go, and nothing goes where too much of what was sent is gone, or
where the folder is another than the one that was sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping

from headrace.store.protocol import Store
from headrace.sync.checkpoints import Checkpoints
from headrace.sync.ledger import Ledger, Sent
from headrace.sync.options import Deletion, SyncOptions
from headrace.sync.scan import Folder, Stamp

_AGAIN_S = 60.0
"""After a listing that failed: a store that is away is asked no more often."""


class Deleting:
    """One thread. `prefix`: what keys begin with."""

    def __init__(
        self, folder: Folder, store: Store, prefix: str, options: SyncOptions, checkpoints: Checkpoints, ledger: Ledger
    ) -> None:
        self._folder, self._store, self._prefix, self._options = folder, store, prefix, options
        self._checkpoints, self._ledger = checkpoints, ledger
        self._known = ledger.identity()
        self._again_at = 0.0
        self.refused = ""
        """Why what is gone here stays there; empty: it does not. For people, without the folder."""
        self.deleted = 0
        """Objects."""

    def accept(self) -> None:
        """All that was sent lies in the folder: it is the one to be remembered, whichever it is."""
        here = self._folder.scanned
        if here is not None and here != self._known:
            self._known = here
            self._ledger.identify(here)
        self.refused = ""

    def rests(self, now: float) -> bool:
        """Whether what is gone was looked at a moment ago, and nothing came of it."""
        return now < self._again_at

    def delete(self, gone: Mapping[str, Sent], due: Collection[str], here: Collection[Stamp]) -> Collection[str]:
        """Delete there what is due. Returns which names need not be remembered: these, and what stays there for good.

        Args:
            gone: all that was sent and is not found in the folder.
            due: those of them that may go now.
            here: files that were sent, and are found.

        Raises:
            HeadraceError: the store could not; nothing is to be forgotten.
        """
        wanted = self._options.delete
        if wanted is None:
            return due
        lost = {name: sent for name, sent in gone.items() if self._is_absent(name)}
        if not lost:
            self.accept()
        absent = [name for name in due if name in lost]
        self.refused = "" if wanted.force or not absent else self._reason(wanted, lost, here)
        if self.refused or len(absent) < len(due):
            self._again_at = time.monotonic() + _AGAIN_S
        if self.refused or not absent:
            return ()
        going = [name for name in absent if not self._stays(wanted, name)]
        for folder in {f for f in map(self._options.checkpoint_of, going) if f is not None}:
            self._checkpoints.begin(folder)
        self._store.delete([self._prefix + name for name in going])
        self.deleted += len(going)
        return absent

    def _is_absent(self, name: str) -> bool:
        """Whether nothing is there: neither left out by the options, nor where the disk, or a right, hides it."""
        try:
            os.lstat(self._folder.local(name))
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False
        return False

    def _reason(self, wanted: Deletion, lost: Mapping[str, Sent], here: Collection[Stamp]) -> str:
        identity = self._folder.identity()
        if identity is None:
            return "the folder is gone"
        if self._known is not None and identity != self._known:
            return "the folder is another than the one that was sent: replaced, or covered by a mount"
        devices = {stamp.device for stamp in here} | {0}
        elsewhere = (name for name, sent in lost.items() if sent.stamp.device not in devices)
        if (name := next((name for name in elsewhere if self._moved(name, lost[name])), None)) is not None:
            return f"the file system on which {name} lay is not there"
        if not here:
            return f"nothing is left of what was sent ({len(lost):,} files)"
        if len(lost) > wanted.most * (total := len(lost) + len(here)):
            return f"{len(lost):,} of {total:,} files that were sent are gone, more than {wanted.most:.0%}"
        return ""

    def _moved(self, name: str, sent: Sent) -> bool:
        """Whether the folder it was in, or what is left above, is on another device than the file was."""
        above = name
        while above := above.rpartition("/")[0]:
            try:
                found = os.lstat(self._folder.local(above))
            except OSError:
                continue
            return sent.stamp.device != found.st_dev
        return False  # in the folder itself, whose identity is looked at

    def _stays(self, wanted: Deletion, name: str) -> bool:
        """Whether it is of a committed checkpoint that nobody has named."""
        folder = self._options.checkpoint_of(name)
        return folder is not None and self._checkpoints.is_committed(folder) and not wanted.names(folder)
