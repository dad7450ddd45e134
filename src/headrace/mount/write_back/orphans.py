"""Orphans: files that were open, and neither closed nor synced, when a mount crashed. They lie in ``left/``.

Nobody was promised that they would be published, so they are not. One goes when nothing is lost by that: when its owner
takes the file away (``mv`` into the mount publishes it, ``rm`` gives it up), or when the object of its name begins with
the very same bytes. That is compared when the folder is mounted, and a while after something was published under that
name: a program that moves the file there has published it by then, and still has to remove it.
"""

from __future__ import annotations

import errno
import logging
import math
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.base.errors import HeadraceError
from headrace.mount.write_back.missing_blocks import BLOCK
from headrace.mount.write_back.publish_file import read_at
from headrace.mount.write_back.record_journal import RecordJournal

if TYPE_CHECKING:
    from headrace.mount.write_back.background_threads import Task
    from headrace.namespace import Location, Namespace

_log = logging.getLogger("headrace.mount")
_NAME: Final = 80
"""Bytes of the name that are kept."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """One file of ``left/``.

    `file`: where. `path`: the name it was being written under; empty where that is no longer known. `absent`: how many
    of its `bytes` were never fetched from the object it was opened on; they read as zeros. `since`: when it was last
    written, seconds since the epoch.
    """

    file: str
    path: str
    bytes: int
    absent: int
    since: float


@dataclass(frozen=True, slots=True)
class _OrphanRecord:
    """As the journal keeps it. `name`: of the file. `blocks`: of `BLOCK` bytes, absent up to byte `limit`."""

    name: str
    path: str
    blocks: frozenset[int] = field(default_factory=frozenset)
    limit: int = 0

    def record(self) -> dict[str, Any]:
        return {
            "kind": "left", "name": self.name, "path": self.path, "blocks": sorted(self.blocks), "limit": self.limit,
        }  # fmt: skip

    def present(self, size: int) -> Iterator[tuple[int, int]]:
        """The ranges of the file that somebody has written, or read."""
        for start in range(0, size, BLOCK):
            stop = min(start + BLOCK, size)
            first = max(start, min(self.limit, stop)) if start // BLOCK in self.blocks else start
            if first < stop:
                yield first, stop


class Orphans:
    """The folder ``left/`` of a staging folder. Any thread; `add` and `restore` before all others.

    `settle_s`: how long after a publish under its name a file is looked at.
    """

    def __init__(self, folder: str, ns: Namespace, journal: RecordJournal, settle_s: float) -> None:
        self.folder = os.path.join(folder, "left")
        self._ns = ns
        self._journal = journal
        self._lock = threading.Lock()
        self._entries: dict[int, _OrphanRecord] = {}
        self._settle_s = settle_s
        self._to_look: dict[int, float] = {}  # number → when, on the monotonic clock
        self._looking = self._closed = False

    def add(self, number: int, record: Mapping[str, Any], local: str) -> str:
        """Keep a local file that was open by its `record` in the journal. Returns where it is now. Raises OSError."""
        path = record["path"]
        name = os.path.basename(path).encode()[-_NAME:].decode(errors="ignore")
        absent: Mapping[str, Any] = record.get("absent") or {"blocks": (), "limit": 0}
        kept = f"{time.strftime('%Y%m%dT%H%M%S')}-{number}-{name}"
        entry = _OrphanRecord(kept, path, _still_absent(local, absent["blocks"]), absent["limit"])
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        with suppress(HeadraceError):  # where the journal is full only the path is forgotten
            self._journal.set(number, entry.record())
        os.rename(local, self._file(entry))  # the record first: a local file without one is taken for published
        self._enter(number, entry)
        _log.warning("%s: was being written when the mount ended; what it held is in %s", path, self._file(entry))
        return self._file(entry)

    def restore(self, number: int, record: Mapping[str, Any], local: str) -> None:
        """Take up an orphan of an earlier crash. `local`: where it is, if a crash came between. Raises OSError."""
        entry = _OrphanRecord(record["name"], record["path"], frozenset(record["blocks"]), record["limit"])
        if os.path.exists(local):
            os.rename(local, self._file(entry))
        if os.path.exists(self._file(entry)):
            self._enter(number, entry)
        else:
            self._drop(number)

    def published(self, path: str) -> bool:
        """The object of that name has changed. Returns whether an orphan will have to be compared with it."""
        if not self._entries:
            return False
        when = time.monotonic() + self._settle_s
        with self._lock:
            found = [number for number, entry in self._entries.items() if entry.path == path]
            self._to_look.update(dict.fromkeys(found, when))
        return bool(found)

    @property
    def busy(self) -> bool:
        """Whether an orphan is being compared, or is to be."""
        with self._lock:
            return bool(self._to_look) or self._looking

    def due(self, now: float) -> Task | float:
        """An orphan to compare, for a thread that may wait; or when there may be one, on the monotonic clock."""
        if not self._to_look:
            return math.inf
        with self._lock:
            when, number = min((when, number) for number, when in self._to_look.items())
            if when > now or self._looking or self._closed:  # one at a time: publishing has the same threads
                return max(when, now + 1.0)
            del self._to_look[number]
            entry = self._entries.get(number)
            self._looking = entry is not None
        return partial(self._look, number, entry) if entry is not None else now

    def listed(self) -> list[Orphan]:
        """All orphans, oldest first; also those of earlier versions, whose paths are not known."""
        with self._lock:
            known = {entry.name: entry for entry in self._entries.values()}
        found: list[Orphan] = []
        with suppress(FileNotFoundError), os.scandir(self.folder) as files:
            for file in files:
                with suppress(FileNotFoundError):
                    status = file.stat(follow_symlinks=False)
                    entry = known.get(file.name, _OrphanRecord(file.name, ""))
                    present = sum(stop - start for start, stop in entry.present(status.st_size))
                    absent = status.st_size - present
                    found.append(Orphan(file.path, entry.path, status.st_size, absent, status.st_mtime))
        return sorted(found, key=lambda one: one.since)

    def close(self) -> None:
        """Break off a comparison."""
        self._closed = True

    # inside

    def _file(self, entry: _OrphanRecord) -> str:
        return os.path.join(self.folder, entry.name)

    def _enter(self, number: int, entry: _OrphanRecord) -> None:
        with self._lock:
            self._entries[number] = entry
            self._to_look[number] = 0.0

    def _drop(self, number: int) -> None:
        with self._lock:
            self._entries.pop(number, None)
        with suppress(HeadraceError, OSError):  # then the next mount does
            self._journal.drop(number)

    def _look(self, number: int, entry: _OrphanRecord) -> None:
        """Remove an orphan that the store has. One that cannot be compared now is at the next publish or mount."""
        file = self._file(entry)
        try:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._looking = False
            if isinstance(error, FileNotFoundError):  # its owner has taken it
                self._drop(number)
            return
        try:
            if not self._is_held(self._ns.resolve(entry.path), entry, fd):
                return
            os.unlink(file)
        except (HeadraceError, OSError) as error:
            _log.info("%s stays: %s", file, error)
            return
        finally:
            os.close(fd)
            self._looking = False
        self._drop(number)
        _log.warning("%s: what was left of it is in the store now; removed %s", entry.path, file)

    def _is_held(self, place: Location, entry: _OrphanRecord, fd: int) -> bool:
        """Whether the object begins with what `fd` has of its own; read as far as they are the same.

        Raises:
            HeadraceError.
        """
        store, key = place.store, place.key
        info = store.head(key)
        size = os.fstat(fd).st_size
        if info.size < size:
            return False
        for start, stop in entry.present(size):
            blob = store.get(key, start, stop, if_match=info.etag)
            if self._closed or blob.info.version != info.version or bytes(blob.data) != read_at(fd, start, stop):
                return False
        return True


def _still_absent(local: str, blocks: Sequence[int]) -> frozenset[int]:
    """Those of `blocks` that are holes: never fetched, nor written to. The journal may be behind in that."""
    fd = os.open(local, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return frozenset(block for block in blocks if _next_data(fd, block * BLOCK) >= (block + 1) * BLOCK)
    finally:
        os.close(fd)


def _next_data(fd: int, start: int) -> int:
    try:
        return os.lseek(fd, start, os.SEEK_DATA)
    except OSError as error:  # a file system that knows no holes: all of it counts
        return 1 << 62 if error.errno == errno.ENXIO else start
