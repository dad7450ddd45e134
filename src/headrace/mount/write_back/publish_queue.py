"""The queue of staged files: each is published when it is due, and tried again when that fails.

A file that failed is in the journal. A file that is done with goes to the cache (`cache_handover`).
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import random
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, InputError, InternalError, ReadOnlyError, TryAgainError
from headrace.mount.write_back.background_threads import BackgroundThreads, Task
from headrace.mount.write_back.cache_handover import CacheHandover
from headrace.mount.write_back.object_metadata import Attributes
from headrace.mount.write_back.orphans import Orphans
from headrace.mount.write_back.publish_file import SMALL, send
from headrace.mount.write_back.recent_objects import RecentObjects
from headrace.mount.write_back.record_journal import RecordJournal
from headrace.mount.write_back.renames import Rename, Renames
from headrace.mount.write_back.staged_file import PublishFailure, StagedFile
from headrace.mount.write_back.staged_tree import MadeFolder, StagedTree
from headrace.upload import Uploader, UploadOptions

if TYPE_CHECKING:
    from headrace.namespace import Location, Namespace

_log = logging.getLogger("headrace.mount")
_HURRY_S = 0.3
"""Seconds between tries while an unmount waits for them."""
_MAPPED_S = 1.0  # seconds between looks whether programs still map a file
_FLAGS = struct.Struct("=ixxxx")
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS, FS_IOC_SETFLAGS (linux/fs.h): a long by their numbers, an int by what they read and write."""
_TOP_OF_TREE = 0x00020000
"""FS_TOPDIR_FL, `chattr +T`."""


@dataclass(frozen=True, slots=True)
class StagingOptions:
    """How a mount writes. `period_s`: a file that stays open is published that often; 0: only on close and fsync.

    `retry_s`, `retry_most_s`: the pause after a first failure, doubled after each, up to the second. `whole`: objects
    up to that many bytes are fetched when they are opened for writing, larger ones as far as they are touched.
    `settle_s`: see `Orphans`.
    """

    period_s: float = 30.0
    read_only: bool = False
    retry_s: float = 1.0
    retry_most_s: float = 60.0
    whole: int = SMALL
    settle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Something that is not in the bucket yet. `age_s`: since it first failed, or since its first try began; `tries`:
    that failed; `error`: of the last, or that it is under way, for people.
    """

    path: str
    bytes: int
    age_s: float
    tries: int
    error: str


class PublishQueue:
    """Publishes staged files. Any thread. Used by `Staging` only; see there for what is promised."""

    def __init__(self, folder: str, ns: Namespace, options: StagingOptions) -> None:
        """Raises CorruptError, OSError: the journal cannot be opened."""
        self.folder = folder
        self.files = os.path.join(folder, "files")
        spread(self.files)
        self.ns = ns
        self.options = options
        self.tree = StagedTree()
        self.recent = RecentObjects()
        self.journal = RecordJournal(os.path.join(folder, "journal"))
        self.orphans = Orphans(folder, ns, self.journal, options.settle_s)
        self.threads = BackgroundThreads(self._due)
        self.renames = Renames(ns, self.journal, self.tree, self._pause, self.moved, self.threads.wake)
        most = UploadOptions()
        memory = min(most.memory, max(ns.fetcher.settings.fetch.memory // 2, 2 * most.part))
        self.uploader = Uploader(UploadOptions(memory=memory))
        self.handover = CacheHandover(ns, self.uploader, self.threads.wake)
        first = max([0, *self.journal.live, *self.on_disk()]) + 1
        self.numbers = itertools.count(first)
        self._mapped: dict[int, float] = {}
        """Files that only mappings past us hold, and when to look whether they still do: monotonic seconds."""
        self._busy: set[int] = set()
        self._hurry = False

    def local(self, number: int) -> str:
        """The local file of that number.

        In one of 256 folders, far from each other (`spread`): ext4 looks for room near a file's folder, and takes ten
        times as long for a new file once the neighbourhood is full, or many were deleted there in the last minutes.
        """
        return f"{self.files}/{number % 256:02x}/{number}"

    def on_disk(self) -> list[int]:
        """The numbers of all local files. Raises OSError."""
        folders = [f"{self.files}/{name}" for name in os.listdir(self.files)]
        return [int(name) for folder in folders for name in os.listdir(folder) if name.isdigit()]

    def writable(self, path: str) -> Location:
        """Where `path` is stored.

        Raises:
            ReadOnlyError: it may not be written, before any request. NotFoundError: no store is attached there.
        """
        place = self.ns.resolve(path)
        if place.read_only or self.options.read_only:
            where = "the mount" if self.options.read_only else "what is attached there"
            raise ReadOnlyError(f"{where} is read-only", path=path)
        return place

    def nameable(self, path: str) -> Location:
        """As `writable`, for a new name: a name that the store cannot hold is refused now, not once all is written.

        Raises:
            NameTooLongError, NameRefusedError.
        """
        place = self.writable(path)
        with suppress(TryAgainError):  # a server that has to be asked, and is away: the publish will show
            place.store.check_key(place.key)
        return place

    def largest(self, path: str) -> int:
        """Bytes that an object there may have. Raises NotFoundError: no store is attached there."""
        return self.ns.resolve(path).store.largest

    # publishing

    def publish(self, file: StagedFile, *, sync: bool) -> None:
        """See `StagedFile.publish`. `sync`: somebody waits for it."""
        if file.gone:
            return
        try:
            while True:
                path = file.path
                with self.renames.steady(path):
                    if file.path != path:
                        continue
                    with file.lock:
                        self._publish(file)
                    return
        except HeadraceError as error:
            self._failed(file, error, sync=sync)
            raise

    def _publish(self, file: StagedFile) -> None:
        try:
            snapshot = None if file.gone else file.begin()
            if snapshot is None:
                return
            file.sending_since = time.monotonic()
            try:
                known = self.recent.take(file.path)
                info, known, checksum = send(file, snapshot, self.writable(file.path), self.uploader, known)
            except BaseException:
                file.undo(snapshot)
                raise
            finally:
                file.sending_since = None
        except OSError as error:
            raise InternalError(f"the staged file cannot be read: {error.strerror}", path=file.path) from error
        file.finish(snapshot, info, checksum)
        file.pending = False
        self.journaled(file)
        if known is not None:
            self.recent.keep(file.path, known)
        self.ns.forget(file.path)  # nobody here asks it: what a name stands for is the mount's own to know
        if self.orphans.published(file.path):
            self.threads.wake()

    def journaled(self, file: StagedFile, *, sync: bool = False) -> None:
        """Note the state of `file` in the journal. A full disk is only logged: what is in memory goes on."""
        trouble = file.trouble
        try:
            if sync:
                os.fsync(file.fd)
            self.journal.set(file.number, file.record(trouble.error.reason if trouble else ""), sync=sync)
        except (HeadraceError, OSError) as error:
            _log.warning("%s: cannot be journaled: %s", file.path, error)

    def _failed(self, file: StagedFile, error: HeadraceError, *, sync: bool) -> None:
        with file.lock:
            if file.gone or not file.dirty:  # another thread has published it since
                return
            before = file.trouble
            now = time.monotonic()
            tries = before.tries + 1 if before is not None else 1
            file.trouble = PublishFailure(error, before.since if before else now, tries, now, now + self._pause(tries))
            first = not file.pending
            file.pending = True
            if first or sync:
                self.journaled(file, sync=True)
        if first:
            _log.warning("%s: not published, kept and tried again: %s", file.path, error)
        self.threads.wake()

    def _pause(self, tries: int) -> float:
        longest = min(self.options.retry_most_s, self.options.retry_s * 2 ** min(tries - 1, 30))
        return longest * random.uniform(0.5, 1.0)

    # the end of a staged file

    def released(self, file: StagedFile) -> None:
        """See `StagedFile.release`."""
        with self.tree.lock:
            file.handles -= 1
            if file.handles > 0:
                return
        self.retire(file)

    def retire(self, file: StagedFile) -> None:
        """Let a file go that nobody has open or can write to, once all of it is published."""
        tried = False
        while True:
            with file.lock, self.tree.lock:
                if file.handles > 0 or file.fd < 0:
                    return
                mapped = file.mapped and not file.gone and not file.end_mappings()
                if mapped:
                    self._mapped[file.number] = time.monotonic() + _MAPPED_S
                else:
                    self._mapped.pop(file.number, None)
                if file.gone or not (mapped or file.trouble or file.dirty):
                    info = None if file.gone else file.base
                    self.forget(file)
                    break
                if tried and file.trouble is not None:
                    return
            if mapped and (tried or not self._is_due(file)):
                self.threads.wake()
                return
            tried = True
            with suppress(HeadraceError):
                self.publish(file, sync=False)
        self.handover.dispose(file, info)

    def _is_due(self, file: StagedFile) -> bool:
        """Whether a file that only mappings write to has to be published meanwhile."""
        if file.trouble is not None:
            return True
        since, period = file.dirty_since, self.options.period_s
        return file.dirty and since is not None and 0 < period <= time.monotonic() - since

    def forget(self, file: StagedFile) -> None:
        """Neither show nor publish a file any more: unlinked, replaced, or done. Its lock and the tree's are held."""
        file.gone = True
        file.trouble = None
        self.tree.drop(file.path, file)
        with suppress(HeadraceError, OSError):
            self.journal.drop(file.number)






    def moved(self, old: str, new: str) -> None:
        """A rename has moved what is staged at and below `old` to `new`, in place of what was there. The tree's lock is
        held.
        """
        displaced = self.tree.get(new)
        if isinstance(displaced, StagedFile):
            self.forget(displaced)
            if displaced.handles == 0:
                self.handover.later(displaced)
        elif displaced is not None:
            self.tree.drop(new)
            self.journal.drop(displaced.number)
        for node in self.tree.move(old, new):
            if isinstance(node, StagedFile):
                node.unbase()
                self.journaled(node)
            elif node.number:
                self.note_folder(node)

    def keep_folder(self, folder: str) -> None:
        """Keep a folder that may just have lost its last object, until it is removed or this mount ends."""
        with self.tree.lock:
            if self.tree.get(folder) is None and folder != "/" and self.ns.resolve(folder).key:
                self.tree.put(folder, MadeFolder(folder, Attributes()))

    def note_folder(self, made: MadeFolder) -> None:
        """Journal a folder that only this mount knows. Raises NoRoomError."""
        record = {"kind": "made", "path": made.path, "attrs": [made.attrs.mode, made.attrs.uid, made.attrs.gid]}
        self.journal.set(made.number, record)

    # in the background

    def _due(self) -> Task | float:
        now = time.monotonic()
        handover = self.handover.due(now)
        if callable(handover):
            return handover
        soonest = min(now + (min(60.0, self.options.period_s) or 60.0), handover)
        for rename in self.renames.waiting():
            when = self._hurried(rename)
            if when <= now:
                return partial(self.renames.retry, rename)
            soonest = min(soonest, when)
        with self.tree.lock:
            for file in self.tree.files():
                if file.number in self._busy:
                    continue
                when = self._when(file, now)
                if when <= now:
                    self._busy.add(file.number)
                    return partial(self._work, file)
                soonest = min(soonest, when)
        look = self.orphans.due(now)
        return look if callable(look) else max(min(soonest, look) - now, 0.001)

    def _when(self, file: StagedFile, now: float) -> float:
        """When `file` is to be published next, on the monotonic clock; at the latest in a period."""
        if file.trouble is not None:
            return self._hurried(file.trouble)
        if file.handles == 0 and (look_at := self._mapped.get(file.number)) is not None:
            return look_at
        period = self.options.period_s
        if self._hurry and file.dirty:
            return now
        if not period or file.handles == 0:
            return now + 60.0
        return file.dirty_since + period if file.dirty and file.dirty_since is not None else now + period

    def _hurried(self, failed: PublishFailure | Rename) -> float:
        return min(failed.retry_at, failed.tried_at + _HURRY_S) if self._hurry else failed.retry_at

    def _work(self, file: StagedFile) -> None:
        try:
            if file.handles == 0:
                self.retire(file)
            else:
                with suppress(HeadraceError):
                    self.publish(file, sync=False)
        finally:
            with self.tree.lock:
                self._busy.discard(file.number)

    # what is left to do

    def backlog(self) -> list[Unpublished]:
        """See `Staging.backlog`."""
        now = time.monotonic()
        found: list[Unpublished] = []
        for file in self.tree.files():
            trouble = file.trouble
            since = file.sending_since  # another thread may end it
            if trouble is not None:
                found.append(Unpublished(file.path, file.size, now - trouble.since, trouble.tries, str(trouble.error)))
            elif since is not None:
                found.append(Unpublished(file.path, file.size, now - since, 0, "being published"))
        for rename in self.renames.active:
            if rename.running and not rename.tries:
                continue  # under way for the first time: its caller waits for it
            error = f"renaming to {rename.new}: {rename.error or 'not finished'}"
            found.append(Unpublished(rename.old, 0, now - rename.since, rename.tries, error))
        return found

    def unfinished(self) -> bool:
        """Whether anything is still to be published, renamed, or handed to the cache."""
        if self.handover.busy or self._busy or self.renames.active or 0.0 in self._mapped.values():
            return True
        return any(file.dirty or file.trouble is not None for file in self.tree.files())

    def drain(self, timeout_s: float) -> bool:
        """See `Staging.drain`."""
        began = time.monotonic()
        self._hurry = True
        for file in self.tree.files():
            if file.handles == 0 and file.number in self._mapped:
                self._mapped[file.number] = 0.0  # to be looked at
        try:
            while self.unfinished():
                if time.monotonic() >= began + timeout_s or self._refused(began):
                    return False
                self.threads.wake()
                time.sleep(0.01)
            return not self._mapped
        finally:
            self._hurry = False

    def _refused(self, since: float) -> bool:
        """Whether everything left was tried `since` then, and refused for good: waiting longer helps nobody."""
        if self.handover.busy or self._busy or self.renames.active or any(self.renames.waiting()):
            return False
        troubles = [file.trouble for file in self.tree.files() if file.dirty or file.trouble is not None]
        return all(
            trouble is not None and isinstance(trouble.error, InputError) and trouble.tried_at >= since
            for trouble in troubles
        )

    def close(self) -> None:
        """Journal what is not published, close everything. No request is made."""
        self.orphans.close()
        self.threads.close(2.0)
        for file in self.tree.files():
            with file.lock:
                if file.dirty or file.mapped:
                    file.pending = True
                    self.journaled(file, sync=True)
                    _close(file.let_go())
                else:
                    file.handles = 0
                    with self.tree.lock:
                        self.forget(file)
                    self.handover.dispose(file)
        self.handover.close()
        self.uploader.close()
        self.journal.close()


def spread(folder: str) -> None:
    """Let ext4 put the folders made in `folder` all over the disk instead of beside it. Elsewhere nothing happens."""
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = bytearray(8)
            fcntl.ioctl(fd, _GET_FLAGS, flags, True)
            (known,) = _FLAGS.unpack_from(flags)
            if not known & _TOP_OF_TREE:
                fcntl.ioctl(fd, _SET_FLAGS, _FLAGS.pack(known | _TOP_OF_TREE))
        finally:
            os.close(fd)


def _close(fd: int) -> None:
    if fd >= 0:
        os.close(fd)
