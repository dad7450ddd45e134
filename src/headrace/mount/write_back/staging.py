"""Writing through the mount: `Staging`, what the file system's operations call.

A file that is being written is a local file here. It becomes one object on close and fsync, and every `period_s` while
it stays open. What cannot be published is kept, journaled and tried again, also by the next mount after a crash. The
bucket is the only thing that lasts, so everything else goes to it at once: unlink, rename, mkdir, symlink, attributes.

The room's README names the files that this stands on.

In the staging folder: ``lock`` (held by the live mount), ``journal``, ``files/<number>``, and ``left/`` with the
`orphans` of a crash.

Refusals that only the kernel has a word for are `OSError`: ENOTEMPTY, EXDEV, EINVAL, EISDIR, EBUSY.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    InputError,
)
from headrace.base.places import refused
from headrace.cache.entry import write_all
from headrace.fetch import Read
from headrace.mount.write_back.missing_blocks import MissingBlocks, bring_whole
from headrace.mount.write_back.object_attributes import ObjectAttributes
from headrace.mount.write_back.object_metadata import Attributes, link_path
from headrace.mount.write_back.orphans import Orphan
from headrace.mount.write_back.publish_file import stamped
from headrace.mount.write_back.publish_queue import PublishQueue, StagingOptions, Unpublished
from headrace.mount.write_back.recovery import RecoveredStaging, recover
from headrace.mount.write_back.staged_file import StagedFile, room
from headrace.mount.write_back.staged_renames import StagedRenames, refusal
from headrace.mount.write_back.staged_tree import MadeFolder, split
from headrace.store.protocol import ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.namespace import Entry, Location, Namespace

__all__ = [
    "Attributes", "MadeFolder", "Orphan", "RecoveredStaging", "StagedFile", "Staging", "StagingOptions", "Unpublished",
]  # fmt: skip

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_LINK: Final = stat.S_IFLNK | 0o777
_ODD: Final = re.compile(r"//|\\|(?:\A|/)\.{1,2}(?:/|\Z)|/\Z")
"""Paths whose keys `Store.check_key` may have to ask the store about."""


class Staging:
    """Everything a mount writes. Any thread. Make it after the last fork; `recover` before the first use.

    Paths are those of the namespace, without a ``/`` at the end; a symbolic link's is the one it is stored at
    (`link_path`). Every method that changes something raises ReadOnlyError before any request where it may not, and
    DeniedError, TryAgainError and NoRoomError as the store and the disk do.
    """

    def __init__(self, folder: str, ns: Namespace, options: StagingOptions | None = None) -> None:
        """Open `folder`, made (mode 0700) where it is missing.

        Raises:
            InputError: another live mount has it. CorruptError: its journal is of a later version. DeniedError.
        """
        self._lock = _hold(folder)
        try:
            self._queue = PublishQueue(folder, ns, options or StagingOptions())
        except BaseException:
            os.close(self._lock)
            raise
        self._ns = ns
        self._tree = self._queue.tree
        self._renames = self._queue.renames
        self._staged_renames = StagedRenames(self._queue)
        self._attributes = ObjectAttributes(self._queue.recent)

    def recover(self) -> RecoveredStaging:
        """Take up what a crashed mount left. What it had promised is being published when this returns; see `drain`."""
        return recover(self._queue)

    # files

    def create(self, path: str, attrs: Attributes, *, wait: bool = True) -> StagedFile:
        """A new, empty file, to be published even if nothing is written. Where one is being written, that one.

        Args:
            path: where.
            attrs: what it shows.
            wait: False: only if neither a store nor a rename under way has to be waited for.

        Raises:
            OSError: EISDIR. BlockingIOError: not `wait`, and there is something to be waited for.
            NameTooLongError, NameRefusedError: the store cannot hold such a key.
        """
        if not wait and _ODD.search(path.partition("://")[2] or path):
            raise BlockingIOError("the store may have to be asked whether it keeps such a key")
        self._queue.nameable(path)
        with self._renames.steady(path, wait=wait):
            with self._tree.lock:
                known = self._taken(path)
                if known is not None:
                    return known
            file = self._new(path, attrs)
            file.touched(0)
            file = self._enter(file)
        self._watch()
        return file

    def open(self, path: str, info: Entry | ObjectInfo | None, *, truncate: bool, attrs: Attributes) -> StagedFile:
        """Open an object for writing. `info`: what is known of it; None: it is asked for. `attrs`: what it shows.

        Up to `StagingOptions.whole` its content is fetched now, of one version; a larger one's as far as it is touched.

        Raises:
            NotFoundError: there is no such object.
        """
        place = self._queue.writable(path)
        with self._renames.steady(path):
            with self._tree.lock:
                file = self._taken(path)
            if file is None:
                file = self._enter(self._opened(path, place, info, truncate=truncate, attrs=attrs))
        if truncate and file.size:
            file.truncate(0)
        self._watch()
        return file

    def find(self, path: str) -> StagedFile | None:
        """The file that is being written at `path`, or waits there to be published. It may be retired at any moment."""
        node = self._tree.get(path)
        return node if isinstance(node, StagedFile) else None

    def hold(self, path: str) -> StagedFile | None:
        """As `find`, with a handle on it, which `release` gives back."""
        with self._tree.lock:
            node = self._tree.get(path)
            if not isinstance(node, StagedFile):
                return None
            node.handles += 1
            return node

    def unlink(self, path: str) -> None:
        """Delete the object at once. Programs that have the file open go on reading and writing; nothing of it is
        published.

        Raises:
            OSError: EISDIR.
        """
        place = self._queue.writable(path)
        with self._renames.steady(path):
            node = self._tree.get(path)
            if isinstance(node, MadeFolder):
                raise refusal(errno.EISDIR, path)
            if node is None:
                place.store.delete([place.key])
            else:
                self._unlink_staged(node, place)
            self._queue.recent.take(path)
            self._ns.forget(path)
            self._queue.keep_folder(split(path)[0])

    def set_attributes(self, path: str, attrs: Attributes, *, folder: bool = False, wait: bool = True) -> None:
        """Change those that are not None. A store that keeps no metadata forgets them, without an error.

        Raises:
            BlockingIOError: not `wait`, and it is no file that is being written: the store would have to be waited for.
        """
        place = self._queue.writable(path)
        with self._tree.lock:  # `retire` looks again under this lock
            node = self._tree.get(path)
            if isinstance(node, StagedFile):
                node.set_attributes(attrs)
        if isinstance(node, StagedFile):
            if not node.handles:  # else its close publishes them, or the next look in a period
                self._queue.threads.wake()
            return
        if not wait:
            raise BlockingIOError("the store has to be asked")
        with self._renames.steady(path):
            if isinstance(node, MadeFolder):
                self._tree.put(path, MadeFolder(path, attrs.over(node.attrs), node.number))
            if place.store.capabilities.metadata is not False and place.key:
                (self._attributes.store_folder if folder else self._attributes.store)(place, attrs)
                self._ns.forget(path)

    # folders and links

    def mkdir(self, path: str, attrs: Attributes) -> None:
        """Make a folder: its marker in the bucket, or, where the store keeps none, one of this mount and the next.

        Raises:
            AlreadyExistsError: this mount knows of something there. NameTooLongError, NameRefusedError.
        """
        place = self._queue.nameable(path)
        with self._renames.steady(path):
            if self._tree.get(path) is not None:
                raise AlreadyExistsError("exists already", path=path)
            if not self._attributes.mark_folder(place, attrs):
                made = MadeFolder(path, attrs, next(self._queue.numbers))
                self._queue.note_folder(made)
                self._tree.put(path, made)
            self._ns.forget(path)

    def rmdir(self, path: str) -> None:
        """Remove an empty folder.

        Raises:
            OSError: ENOTEMPTY; EBUSY where something is attached below.
        """
        place = self._queue.writable(path)
        self._refuse_mounts(path)
        with self._renames.steady(path):
            prefix = f"{place.key}/"
            if self._tree.below(path) or any(one.key != prefix for page in place.store.list(prefix) for one in page):
                raise refusal(errno.ENOTEMPTY, path)
            self._attributes.unmark_folder(place)
            self._queue.recent.take(path)
            made = self._tree.get(path)
            self._tree.drop(path)
            if isinstance(made, MadeFolder) and made.number:
                self._queue.journal.drop(made.number)
            self._ns.forget(path)
            self._queue.keep_folder(split(path)[0])

    def symlink(self, path: str, target: str, attrs: Attributes | None = None) -> ObjectInfo:
        """Make a symbolic link, shown at `path`; the object that it is. Raises as `mkdir`."""
        where = link_path(path)
        place = self._queue.nameable(where)
        with self._renames.steady(path, where):
            if self._tree.get(path) is not None or self._tree.get(where) is not None:
                raise AlreadyExistsError("exists already", path=path)
            given = Attributes(_LINK, mtime_ns=time.time_ns()).over(attrs or Attributes())
            metadata = given.metadata() if place.store.capabilities.metadata is not False else None
            info = place.store.put(place.key, os.fsencode(target), metadata=metadata)
            self._ns.forget(where)
            return stamped(info)

    # renaming

    def rename(
        self,
        old: str,
        new: str,
        *,
        folder: bool | None = None,
        replace: bool = True,
        displaced: str | None = None,
    ) -> None:
        """Move a file, or a folder with everything below it. When this returns, only the new name shows.

        Args:
            old: what to move.
            new: where to; a file there is replaced, an empty folder too.
            folder: what `old` is, where the caller knows.
            replace: False: refuse where there is something.
            displaced: what is stored under another path and shown as `new`: it goes too.

        Raises:
            OSError: EXDEV between two stores, ENOTEMPTY, EINVAL into itself, EBUSY where something is attached below.
            AlreadyExistsError: `replace` is False. NotFoundError: there is nothing to move. NameTooLongError,
            NameRefusedError: the store cannot hold the new name, or, of a folder, that of something below it.
        """
        here, there = self._queue.writable(old), self._queue.nameable(new)
        if old == new:
            return
        if new.startswith(old + "/"):
            raise refusal(errno.EINVAL, new)
        if here.store is not there.store:
            raise refusal(errno.EXDEV, new)
        if folder is None:
            node = self._tree.get(old)
            folder = isinstance(node, MadeFolder) if node is not None else not self._ns.stat(old).is_file
        if not replace and (self._tree.get(new) is not None or self._ns.exists(new, refresh=True)):
            raise AlreadyExistsError("exists already", path=new)
        for file in [one for one in self._tree.files() if not one.complete]:
            if file.path in (old, new) or (folder and file.path.startswith(old + "/")):
                file.ensure(0, file.size)  # the object it comes from goes, or gets another name
        if folder:
            self._queue.recent.clear()
            self._refuse_mounts(old)
            self._staged_renames.rename_folder(here, there)
        else:
            for path in (old, new):
                self._queue.recent.take(path)
            self._staged_renames.rename_file(here, there)
        if displaced is not None:
            self.unlink(displaced)
        with self._tree.lock:
            self._queue.keep_folder(split(old)[0])





    # looking

    def made(self, path: str) -> MadeFolder | None:
        """A folder of this mount that no object may hold: made where the store keeps no markers, or just emptied."""
        node = self._tree.get(path)
        return node if isinstance(node, MadeFolder) else None

    def below(self, folder: str) -> list[StagedFile | MadeFolder]:
        """What is staged directly in `folder`, to be shown beside what the bucket holds."""
        return self._tree.children(folder)

    @property
    def hides_any(self) -> bool:
        """Whether `hides` is true of any path."""
        return self._tree.hides_any

    def hides(self, path: str) -> bool:
        """Whether `path` is gone for this mount, or not yet there, whatever the bucket holds: a rename is under way."""
        return self._tree.hides(path)

    def renamed_late(self, call: Callable[[Iterable[str]], object]) -> None:
        """Have `call` called with both names of a rename that had failed at first, or was undone, just before they
        are no longer hidden: who listed them until then saw them half done. Set before the first rename.
        """
        self._renames.late = call

    def backlog(self) -> list[Unpublished]:
        """What is being published, or failed and is tried again: files by their paths, renames by the old one.

        No request.
        """
        return self._queue.backlog()

    def orphans(self) -> list[Orphan]:
        """What was being written when an earlier mount crashed, and is kept; see `orphans`. No request."""
        return self._queue.orphans.listed()

    # the end

    def drain(self, timeout_s: float) -> bool:
        """Publish everything now, open files too, and finish renames. False where something is left after that long, or
        where all that is left is what the store refuses for good (a key it cannot keep): it stays journaled and listed.
        """
        return self._queue.drain(timeout_s)

    def close(self) -> None:
        """Let the folder go; what is not published stays in it, journaled, for the next mount. Idempotent."""
        fd, self._lock = self._lock, -1
        if fd >= 0:
            self._queue.close()
            os.close(fd)

    # inside

    def _taken(self, path: str) -> StagedFile | None:
        """The file staged at `path`, with one more handle. The tree's lock is held. Raises OSError EISDIR."""
        node = self._tree.get(path)
        if isinstance(node, MadeFolder):
            raise refusal(errno.EISDIR, path)
        if node is not None:
            node.handles += 1
        return node

    def _new(self, path: str, attrs: Attributes) -> StagedFile:
        number = next(self._queue.numbers)
        local = self._queue.local(number)
        with room(path):
            try:
                fd = os.open(local, _NEW, 0o600)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(local), mode=0o700, exist_ok=True)
                fd = os.open(local, _NEW, 0o600)
        return StagedFile(self._queue, number, path, fd, local, attrs)

    def _enter(self, file: StagedFile) -> StagedFile:
        """Show a new file, unless another thread was quicker: then that one's."""
        try:
            self._queue.journal.set(file.number, file.record())
            with self._tree.lock:
                known = self._taken(file.path)
                if known is None:
                    self._tree.put(file.path, file)
                    return file
        except BaseException:
            self._discard(file)
            raise
        self._discard(file)
        return known

    def _discard(self, file: StagedFile) -> None:
        with suppress(OSError):
            self._queue.journal.drop(file.number)
        os.close(file.let_go())
        with suppress(OSError):
            os.unlink(file.local)

    def _opened(
        self, path: str, place: Location, info: Entry | ObjectInfo | None, *, truncate: bool, attrs: Attributes
    ) -> StagedFile:
        if info is None:
            info = place.store.head(place.key)
        known = ObjectInfo(place.key, info.size, info.etag, info.mtime_us)
        file = self._new(path, attrs)
        file.fresh, file.kept = False, None
        try:
            if not truncate and known.size:
                with room(path):
                    known = self._fill(file, place, known)
            file.base = None if truncate else known
            if truncate:
                file.touched(0)
            else:
                os.utime(file.fd, ns=(known.mtime_us * 1000, known.mtime_us * 1000))
            file.clean_stamp()
        except BaseException:
            self._discard(file)
            raise
        return file

    def _fill(self, file: StagedFile, place: Location, info: ObjectInfo) -> ObjectInfo:
        """Bring the object's content, or a promise of it, into the local file. Returns the version it is of."""
        fetcher = self._ns.fetcher
        for retried in (False, True):
            if info.size > self._queue.options.whole:
                if not bring_whole(fetcher, place.store, info, file.fd):
                    os.ftruncate(file.fd, info.size)
                    file.missing = MissingBlocks(fetcher, place.store, info, file.fd)
                return info
            try:
                blob = fetcher.get(Read(place.store, info.key, info.size, info.version))
                write_all(file.fd, blob.data)
                return info
            except ChangedError:
                if retried:
                    raise
            info = place.store.head(place.key)  # it changed since it was seen
            self._ns.forget(place.path)
            if info.size == 0:
                return info
        raise AssertionError

    def _unlink_staged(self, file: StagedFile, place: Location) -> None:
        with file.lock:
            if file.handles > 0:
                file.ensure(0, file.size)  # open handles go on reading
            if not file.fresh or file.trouble is not None:
                place.store.delete([place.key])
            with self._tree.lock:
                self._queue.forget(file)
        self._queue.handover.dispose(file)






    def _refuse_mounts(self, path: str) -> None:
        if any(mount.path == path or mount.path.startswith(path + "/") for mount in self._ns.mounts()):
            raise refusal(errno.EBUSY, path)

    def _watch(self) -> None:
        if not self._queue.threads.running:
            self._queue.threads.wake()


def _hold(folder: str) -> int:
    """The descriptor that keeps other mounts away from `folder`."""
    try:
        os.makedirs(os.path.join(folder, "files"), mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
        fd = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refused(folder, "HEADRACE_MOUNT_STAGING", error, "the staging folder") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        reason = "another live mount is writing through this staging folder"
        raise InputError(reason, path=folder, hint="unmount it, or mount with -o staging=FOLDER") from None
    return fd
