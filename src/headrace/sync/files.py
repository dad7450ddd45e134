"""What is known of every file of a folder: as it is here, as it was sent, and what is gone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from headrace.sync.checkpoints import is_marker
from headrace.sync.due import Tracked
from headrace.sync.ledger import Sent
from headrace.sync.options import SyncOptions
from headrace.sync.scan import Folder, Stamp
from headrace.upload import MARKER


class Files:
    """One thread. All times are seconds on the monotonic clock.

    `dirty`: files that are not sent as they are here. `checkpoints`: their folders, with their files; `finished`: those
    whose writer says so; `settled`: those whose marker is there, over what is here, which any change takes back.
    """

    def __init__(self, folder: Folder, options: SyncOptions) -> None:
        self._folder = folder
        self._options = options
        self._all: dict[str, Tracked] = {}
        self._gone: dict[str, tuple[Sent, float]] = {}
        self._by_written: dict[tuple[int, int, int, int], Sent] = {}
        self._scanned = False
        self.dirty: dict[str, Tracked] = {}
        self.checkpoints: dict[str, dict[str, Tracked]] = {}
        self.finished: set[str] = set()
        self.settled: set[str] = set()

    def __iter__(self) -> Iterator[Tracked]:
        return iter(list(self._all.values()))

    def remember(self, sent: Mapping[str, Sent], now: float) -> None:
        """What an earlier sync has sent: gone, until it is seen."""
        self._gone = {name: (one, now) for name, one in sent.items()}
        self._by_written = {one.stamp.written: one for one in sent.values()}

    def holds(self, file: Tracked) -> bool:
        """Whether it is still here, and no other of its name."""
        return self._all.get(file.name) is file

    def twin(self, stamp: Stamp) -> Sent | None:
        """What was sent of the same file under whatever name: as it seems, see `Sender.send`."""
        return self._by_written.get(stamp.written)

    # what is here

    def scan(self, now: float) -> None:
        """Look at everything."""
        found = self._folder.scan()
        for name, stamp in found.items():
            self._see(name, stamp, now)
        if not self._scanned:
            self._scanned = True
            young = time.time() - self._options.quiet
            for file in self._all.values():
                file.rested = file.stamp.mtime_ns / 1e9 < young
        for name in [name for name in self._all if name not in found]:
            self.lose(name, now)
        self.finished = {folder for folder in self.finished if f"{folder}/{MARKER}" in found}

    def look(self, name: str, now: float) -> None:
        """Look at what is said to have changed: a file, or a folder, new, renamed or gone."""
        if name == "." or self._options.ignores(name):
            return
        stamp = self._folder.look(name)
        if stamp is not None:
            self._see(name, stamp, now)
        elif self._folder.is_folder(name):
            for below, found in self._folder.scan(name).items():  # they may have come before it was watched
                self._see(below, found, now)
        elif name in self._all:
            self.lose(name, now)
        else:
            if is_marker(name):
                self.finished.discard(name.rpartition("/")[0])
            for below in [known for known in self._all if known.startswith(f"{name}/")]:
                self.lose(below, now)

    def lose(self, name: str, now: float) -> None:
        """It is gone."""
        file = self._all.pop(name)
        self.dirty.pop(name, None)
        folder = self._options.checkpoint_of(name)
        if folder is not None:
            self.settled.discard(folder)
            files = self.checkpoints[folder]
            del files[name]
            if not files:
                del self.checkpoints[folder]
        if file.sent is not None:
            self._gone[name] = (file.sent, now)

    def _see(self, name: str, stamp: Stamp, now: float) -> None:
        folder = self._options.checkpoint_of(name)
        if folder is not None and is_marker(name):
            self.finished.add(folder)
            return
        file = self._all.get(name)
        if file is None or file.stamp != stamp:
            kind = self._options.class_of(name, stamp.size)
            if folder is not None:
                self.settled.discard(folder)
            if file is None:
                sent, _ = self._gone.pop(name, (None, 0.0))
                file = self._all[name] = Tracked(name, kind, stamp, now, now, sent)
                if folder is not None:
                    self.checkpoints.setdefault(folder, {})[name] = file
            else:
                if not file.dirty:
                    file.since = now
                file.stamp, file.kind, file.moved, file.stubborn, file.rested = stamp, kind, now, False, False
        if file.dirty:
            self.dirty.setdefault(name, file)
        elif not file.busy:
            self.dirty.pop(name, None)

    # what is sent

    def sent(self, file: Tracked, sent: Sent, now: float) -> None:
        """A file, or what it was when it was looked at, is in the store."""
        self._release(file.sent)
        file.sent, file.since = sent, now
        file.error, file.tries, file.stubborn = "", 0, False
        self._by_written[sent.stamp.written] = sent
        if self.holds(file):
            self.look(file.name, now)
        else:
            self._gone[file.name] = (sent, now)

    def perhaps_sent(self, file: Tracked, sent: Sent, now: float) -> None:
        """It is gone, and nobody knows what the store has of it: `sent` names the object."""
        if self.holds(file):
            self.lose(file.name, now)
        self._gone.setdefault(file.name, (sent, now))

    def distrust(self, file: Tracked, now: float) -> None:
        """What was sent of it is not what is here."""
        self._release(file.sent)
        file.sent, file.since = None, now
        self.dirty[file.name] = file

    # what is gone

    @property
    def missed(self) -> dict[str, Sent]:
        """What was sent and is gone, however short a time ago."""
        return {name: sent for name, (sent, _) in self._gone.items()}

    @property
    def kept(self) -> list[Stamp]:
        """What was sent and is here."""
        return [file.stamp for file in self._all.values() if file.sent is not None]

    def gone(self, before: float) -> list[str]:
        """What was seen, or sent, and has been gone since `before`."""
        return [name for name, (_, since) in self._gone.items() if since <= before]

    def forget(self, names: Iterable[str]) -> None:
        """Some of what is gone."""
        for name in names:
            self._release(self._gone.pop(name)[0])

    def _release(self, sent: Sent | None) -> None:
        if sent is not None and self._by_written.get(sent.stamp.written) is sent:
            del self._by_written[sent.stamp.written]
