"""One file that is being written: its local content, what of it is published, and how many handles it has."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import threading
import time
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.base.errors import HeadraceError, NoRoomError
from headrace.mount.write_back.missing_blocks import MissingBlocks
from headrace.mount.write_back.object_metadata import NAMES, Attributes, from_metadata
from headrace.store.protocol import LARGEST_OBJECT, ObjectInfo

if TYPE_CHECKING:
    from collections.abc import Generator

_NOWHERE = 1 << 62
"""Above every offset: nothing has been touched."""
_TICK_S = 0.011
"""No kernel's clock for file times is coarser. From Linux 6.13 on, a time once looked at is of one state only."""
_FINE = tuple(int("".join(filter(str.isdigit, part)) or 0) for part in platform.release().split(".")[:2]) >= (6, 13)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class StagedFileOwner(Protocol):
    """What a staged file asks of the staging around it."""

    def publish(self, file: StagedFile, *, sync: bool) -> None: ...
    def released(self, file: StagedFile) -> None: ...
    def journaled(self, file: StagedFile) -> None: ...
    def largest(self, path: str) -> int: ...


@dataclass(frozen=True, slots=True)
class PublishSnapshot:
    """What a publish sends. `same`: bytes at the start that are those of the object `base`. `data` False: only
    attributes have changed. `mtime_ns`: of the last write.
    """

    generation: int
    size: int
    mtime_ns: int
    low: int
    same: int
    base: ObjectInfo | None
    data: bool
    attributes: bool


@dataclass(slots=True)
class PublishFailure:
    """A publish that failed. `since`, `tried_at`, `retry_at`: seconds on the monotonic clock."""

    error: HeadraceError
    since: float
    tries: int = 1
    tried_at: float = 0.0
    retry_at: float = 0.0


class StagedFile:
    """Any thread. Made by `Staging.create` and `Staging.open`; each of these, and `hold`, is undone by one `release`.

    `path`: where it will be published; a rename changes it. `fd`: the local file. `passthrough`: set by who hands `fd`
    to the kernel; then every look at the file's times finds out whether it was written to. `mapped`: set as well, where
    it may be mapped past us: then the times show only the first write to a page, and a mapping outlives all handles.
    """

    def __init__(self, owner: StagedFileOwner, number: int, path: str, fd: int, local: str, attrs: Attributes) -> None:
        self.number = number
        self.path = path
        self.fd = fd
        self.local = local
        self.passthrough = self.mapped = False
        self.sending_since: float | None = None
        """When the publication under way began, on the monotonic clock."""
        self.lock = threading.RLock()
        """Held while it is published, renamed, unlinked or retired."""
        self.handles = 1
        """Guarded by the tree's lock."""
        self.gone = False
        """Unlinked, replaced or retired: it is never published again."""
        self.fresh = True
        """No object is known at `path`."""
        self.base: ObjectInfo | None = None
        self.checksum: int | None = None
        """Of the bytes that `base` has (`headrace.cache.entry.checksum`), where it is known."""
        self.missing: MissingBlocks | None = None
        self.kept: Mapping[str, str] | None = {}
        """Metadata of the object it was opened on; None: not asked for yet."""
        self.trouble: PublishFailure | None = None
        self.pending = False
        """The journal says that this has to be published."""
        self.dirty_since: float | None = None
        self._owner = owner
        self._given = attrs
        self._changed = Attributes()
        self._state = threading.Lock()
        self._generation = self._clean = 0
        self._low = _NOWHERE
        self._new_attributes = False
        self._stamp: tuple[int, int] | None = None
        self._as_published: tuple[int, int] | None = None
        """Size and time of the local file in the state that `base` is of."""
        self._last = (0, 0)

    # what it is

    @property
    def size(self) -> int:
        """Bytes."""
        return self._status()[0]

    @property
    def attrs(self) -> Attributes:
        """Mode, owner, and the time of the last write."""
        return self.shown()[1]

    def shown(self) -> tuple[int, Attributes]:
        """`size` and `attrs` of one moment."""
        size, mtime_ns = self._status()
        return size, self._changed.over(self._given).over(Attributes(mtime_ns=mtime_ns))

    @property
    def complete(self) -> bool:
        """Whether the local file has everything: then the kernel may read and write it."""
        return self.missing is None

    @property
    def dirty(self) -> bool:
        """Whether it differs from what is published."""
        with self._state:
            if self.passthrough and self.fd >= 0:
                self._look(os.fstat(self.fd))
            return self._generation != self._clean or self._new_attributes

    # reading and writing

    def read(self, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size), fewer at the end. Raises as `ensure`, OSError."""
        self.ensure(offset, offset + size)
        return os.pread(self.fd, size, offset)

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> int:
        """Write all of `data`; returns its length.

        Raises:
            NoRoomError: the staging disk is full. As `ensure`. OSError: it fails.
        """
        view = memoryview(data)
        self._refuse_larger(offset + len(view))
        self.ensure(offset, offset + len(view))
        done = 0
        try:
            with room(self.path):
                while done < len(view):
                    done += os.pwrite(self.fd, view[done:] if done else view, offset + done)
        finally:
            self.touched(offset)
        return done

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros. Raises NoRoomError, OSError."""
        self._refuse_larger(size)
        with room(self.path):
            if self.missing is not None:
                self.missing.cut(size)
                self._finish_missing(self.missing, journal=True)  # what is no hole from now on, but zeros
            os.ftruncate(self.fd, size)
        self.touched(size)

    def _refuse_larger(self, size: int) -> None:
        """Raise OSError (EFBIG) where no object of its store is so large: now, not once all has been written."""
        if size > LARGEST_OBJECT and size > self._owner.largest(self.path):
            raise OSError(errno.EFBIG, "larger than the store's largest object", self.path)

    def touched(self, offset: int = 0) -> None:
        """The local file was just written to, at `offset` or above."""
        with self._state:
            self._generation += 1
            self._low = min(self._low, offset)
            if self.dirty_since is None:
                self.dirty_since = time.monotonic()

    def ensure(self, start: int, stop: int) -> None:
        """Bring bytes [start, stop) into the local file, if they still lie in the object it was opened on.

        Raises:
            ChangedError, NotFoundError: that object is another one by now, or gone. TryAgainError, DeniedError,
            NoRoomError.
        """
        missing = self.missing
        if missing is None:
            return
        with room(self.path):
            before = os.fstat(self.fd).st_mtime_ns
            fetched = missing.fetch(start, stop)
            if fetched and self.dirty_since is None:  # the file is still as old as its object
                os.utime(self.fd, ns=(before, before))
        if fetched or not missing.blocks:
            self._finish_missing(missing)

    def set_attributes(self, attrs: Attributes) -> None:
        """Change those that are not None; published with the next publish, which this makes needed. Raises OSError."""
        with self._state:
            if self.passthrough and self.fd >= 0:
                self._look(os.fstat(self.fd))
            if attrs.mtime_ns is not None:
                os.utime(self.fd, ns=(attrs.mtime_ns, attrs.mtime_ns))
                self._stamp = _stamp(os.fstat(self.fd))
            self._changed = Attributes(attrs.mode, attrs.uid, attrs.gid).over(self._changed)
            self._new_attributes = True
            if self.dirty_since is None:
                self.dirty_since = time.monotonic()

    # mappings past us

    def end_mappings(self) -> bool:
        """With no handle open: whether nobody can write to it any more. Then what mappings may have written is still to
        be published, and `mapped` is False. Returns False too where that cannot be found out, since no descriptor is
        left.
        """
        try:
            self._open_as(os.O_RDONLY)
            try:
                over = self._is_read_only()
            finally:
                self._open_as(os.O_RDWR)
        except OSError:
            return False
        if over:
            self.mapped = False
            self.touched()
        return over

    def _is_read_only(self) -> bool:
        """Whether nobody has it open, or mapped, for writing: a read lease is granted just then (fcntl(2), F_SETLEASE),
        and our own descriptor is for reading only meanwhile. Where the file system has no leases, nobody is taken to.
        """
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return True

    def _open_as(self, way: int) -> None:
        """Reopen the descriptor under its number, since other threads may be reading by it."""
        fd = os.open(self.local, way | os.O_CLOEXEC)
        try:
            os.dup2(fd, self.fd, inheritable=False)
        finally:
            os.close(fd)

    # its life

    def publish(self, *, sync: bool = True) -> None:
        """Make what it holds the object, if that has changed.

        Raises:
            HeadraceError: it was not published; it stays here, in the journal, and is tried again in the background.
        """
        self._owner.publish(self, sync=sync)

    def release(self) -> None:
        """Close a handle. With the last one, what is not published yet is, and the local file becomes the cache's.

        Never raises: a failure is kept, tried again, and listed.
        """
        self._owner.released(self)

    def __repr__(self) -> str:
        return f"StagedFile({self.path!r}, {self.number})"

    # for publishing

    def begin(self) -> PublishSnapshot | None:
        """What is to be published; None when nothing is. `lock` is held; `finish` or `undo` must follow."""
        with self._state:
            if self.mapped and self.fd >= 0:
                os.fdatasync(self.fd)  # cleans its pages: a write to one after this moves the times again
            if self.passthrough and not _FINE:
                self._settle_clock()
            if self.fd < 0 and self._generation == self._clean and not self._new_attributes:
                return None
            status = os.fstat(self.fd)
            self._look(status)
            data = self._generation != self._clean
            if not data and not self._new_attributes:
                return None
            size = status.st_size
            same = min(self._low, size, self.base.size) if self.base is not None else 0
            found = PublishSnapshot(
                self._generation, size, status.st_mtime_ns, self._low, same, self.base, data, self._new_attributes
            )
            self._low = _NOWHERE
            self._new_attributes = False
            return found

    def finish(self, snapshot: PublishSnapshot, info: ObjectInfo, checksum: int | None) -> None:
        """The snapshot is published as `info`."""
        with self._state:
            self.base, self.fresh = info, False
            if snapshot.data:
                self.checksum = checksum
            self._clean = snapshot.generation
            self._as_published = (snapshot.size, snapshot.mtime_ns)
            if self.missing is not None:
                self.missing.follow(info)
            later = self._generation != self._clean or self._new_attributes
            self.dirty_since = time.monotonic() if later else None
        self.trouble = None

    def undo(self, snapshot: PublishSnapshot) -> None:
        """The snapshot could not be published."""
        with self._state:
            self._low = min(self._low, snapshot.low)
            self._new_attributes |= snapshot.attributes

    def unbase(self, *, dirty: bool = False) -> None:
        """The object that it was compared with is no longer known: the next publish sends everything."""
        with self._state:
            self.base = None
            if dirty:
                self._generation += 1
                self.dirty_since = self.dirty_since or time.monotonic()

    def metadata(self, mtime_ns: int) -> dict[str, str]:
        """The object's metadata: what it had, what was changed, and the time of the last write."""
        kept = self.kept or {}
        others = {name: value for name, value in kept.items() if name not in NAMES}
        stored = from_metadata(kept)
        own = Attributes(stored.mode, stored.uid, stored.gid)
        written = Attributes(mtime_ns=mtime_ns)
        return others | self._changed.over(own).over(self._given).over(written).metadata()

    def clean_stamp(self) -> None:
        """Count what is in the file now as unchanged."""
        with self._state:
            status = os.fstat(self.fd)
            self._stamp = _stamp(status)
            self._as_published = (status.st_size, status.st_mtime_ns)

    def record(self, error: str = "") -> dict[str, Any]:
        """As the journal keeps it."""
        attrs, changed = self._given, self._changed
        record: dict[str, Any] = {
            "kind": "file",
            "path": self.path,
            "state": "pending" if self.pending else "open",
            "attrs": [attrs.mode, attrs.uid, attrs.gid],
            "changed": [changed.mode, changed.uid, changed.gid],
            "fresh": self.kept is not None and not self.kept,
        }
        if error:
            record["error"] = error
        if self.missing is not None:
            record["absent"] = self.missing.record()
        with self._state:
            # Not as the file is now: the kernel may have written to it since, and that is not published.
            if self.base is not None and self._as_published is not None and self._generation == self._clean:
                record["published"] = list(self._as_published)
        return record

    def restore(self, record: Mapping[str, Any]) -> None:
        """What `record` gave, after a crash: all of it is to be published. A program that had it open through
        the kernel may still write to it, even through a mount that is gone.
        """
        self.passthrough = self.mapped = True
        self._given = Attributes(*record["attrs"])
        self._changed = Attributes(*record["changed"])
        self.kept = {} if record["fresh"] else None
        self.fresh = False
        self.pending = True
        self.handles = 0
        self.touched(0)

    def let_go(self) -> int:
        """Give up the descriptor, which the caller closes; -1 where it is closed already."""
        with self._state:
            if self.fd >= 0:
                status = os.fstat(self.fd)
                self._last = (status.st_size, status.st_mtime_ns)
            fd, self.fd = self.fd, -1
            return fd

    # inside

    def _status(self) -> tuple[int, int]:
        with self._state:
            if self.fd < 0:
                return self._last
            status = os.fstat(self.fd)
            return status.st_size, status.st_mtime_ns

    def _look(self, status: os.stat_result) -> None:
        """With passthrough the kernel writes without a request: the file's times show it."""
        if not self.passthrough:
            return
        stamp = _stamp(status)
        if stamp != self._stamp:
            self._stamp = stamp
            self._generation += 1
            self._low = 0
            if self.dirty_since is None:
                self.dirty_since = time.monotonic()

    def _settle_clock(self) -> None:
        """Before Linux 6.13 two writes within a tick have one time: look only once the last one's tick is over."""
        left = _TICK_S - (time.time_ns() - os.fstat(self.fd).st_ctime_ns) / 1e9
        if 0 < left <= _TICK_S:
            time.sleep(left)

    def _finish_missing(self, missing: MissingBlocks, *, journal: bool = False) -> None:
        if not missing.blocks:
            self.missing = None
        if self.pending or journal:
            self._owner.journaled(self)


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_ctime_ns, status.st_size


@contextmanager
def room(path: str) -> Generator[None]:
    """Raise NoRoomError for a full disk inside."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        hint = "free some room, or mount with -o staging=FOLDER"
        raise NoRoomError("the staging disk is full", path=path, hint=hint) from error
