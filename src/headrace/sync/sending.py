"""One file into the store: whole, by its new bytes only, or as a copy of what is there under another name."""

from __future__ import annotations

import hashlib
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import AlreadyExistsError, ChangedError, HeadraceError, NotFoundError, UnsupportedError
from headrace.base.progress import Progress
from headrace.store.protocol import ObjectInfo, Store
from headrace.sync.digest import Digests
from headrace.sync.ledger import Sent
from headrace.sync.options import FileClass
from headrace.sync.scan import Folder, Stamp
from headrace.upload import LARGEST_COPY, SMALLEST_PART, TICK_NS, Uploader

UNKNOWN: Final = Stamp(-1, 0, 0, 0)
"""Of what was sent of a file that has changed since: no file has it, so that it is sent again."""
TAKEN: Final = "another node has written this"
"""Why a file is not sent where several send below one prefix (`SyncOptions.shared`)."""
_COMPARED: Final = 4 << 20
"""Bytes that are read back where nothing else tells what an object holds."""


@dataclass(frozen=True, slots=True)
class Order:
    """One file to send. `sent`: what is there of it; `twin`: what is there of the same file under another name;
    `there`: an object of that name which nobody remembers sending, or of which only the file's `changed_ns` says that
    it may be another by now.
    """

    name: str
    kind: FileClass
    sent: Sent | None
    twin: Sent | None = None
    there: ObjectInfo | None = None
    tries: int = 0


class Sender:
    """Sends files of one folder below one prefix. Any thread. `cancel`: set, it ends what is under way; `shared`: see
    `SyncOptions.shared`.
    """

    def __init__(
        self, folder: Folder, store: Store, prefix: str, uploader: Uploader, cancel: threading.Event,
        progress: Progress, *, shared: bool = False,
    ) -> None:
        self._shared = shared
        self._folder = folder
        self._store = store
        self._prefix = prefix
        self._uploader = uploader
        self._cancel = cancel
        self.progress = progress

    def appends(self, sent: Sent | None, size: int) -> bool:
        """Whether only the new bytes of a file that grew to `size` have to be sent."""
        return (
            sent is not None
            and sent.digests is not None
            and size > sent.info.size
            and self._uploader.appends(self._store, sent.info)
        )

    def send(self, order: Order) -> Sent:
        """Send one.

        Raises:
            NotFoundError: it is gone. ChangedError: it changes all the time. AlreadyExistsError: another has written an
            object of that name. Else as `Uploader.put_file`.
        """
        stamp = self._at_rest(order.name)
        if order.twin is not None and not self._shared and self._is_twin(order.twin, order.name, stamp):
            with suppress(HeadraceError):
                return Sent(stamp, self._copied(order.name, order.twin.info), order.twin.digests)
        sent, path = order.sent, self._folder.local(order.name)
        growing = order.kind.growing and (stamp.size >= SMALLEST_PART or order.tries > 1)
        # Reading all of it once more pays for files that may grow, which those that are sent when closed seldom do.
        wanted = stamp.size >= SMALLEST_PART and (sent is not None or not order.kind.when_closed)
        try:
            if order.there is not None and _is_same(path, stamp.size, order.there, sent and sent.digests) is True:
                digests, info = Digests.of(path, stamp.size) if wanted else None, order.there
            elif sent is not None and self._continues(order, sent, stamp):
                digests = Digests.of(path, stamp.size, sent.digests)
                info = self._append(order, sent.info, stamp, growing=growing)
            else:
                digests = Digests.of(path, stamp.size) if wanted else None
                info = self._put(order, stamp, growing=growing)
        except FileNotFoundError:
            raise NotFoundError("no such file", path=path) from None
        except (OSError, EOFError) as error:
            raise ChangedError(f"the file cannot be read to its end: {error}", path=path) from error
        if not growing and self._folder.look(order.name) != stamp:
            return Sent(UNKNOWN, info)  # it was whole, but of which moment, nobody knows
        return Sent(stamp, info, digests)

    def _is_twin(self, twin: Sent, name: str, stamp: Stamp) -> bool:
        """Whether a file under another name is what was sent. Its bytes tell, since a rename changes `changed_ns` too;
        of an object by parts that nobody has digests of, its times have to do.
        """
        if twin.stamp.written != stamp.written:
            return False
        try:
            return twin.stamp == stamp or _is_same(self._folder.local(name), stamp.size, twin.info, twin.digests) in (
                True, None
            )  # fmt: skip
        except (OSError, EOFError):
            return False

    def _at_rest(self, name: str) -> Stamp:
        stamp = self._folder.look(name)
        if stamp is not None and abs(time.time() - stamp.mtime_ns / 1e9) < TICK_NS / 1e9:
            time.sleep(TICK_NS / 1e9)
            stamp = self._folder.look(name)
        if stamp is None:
            raise NotFoundError("no such file", path=self._folder.local(name))
        return stamp

    def _continues(self, order: Order, sent: Sent, stamp: Stamp) -> bool:
        """Whether the file still begins with what was sent: for a log by samples, else by all of it."""
        return (
            self.appends(sent, stamp.size)
            and sent.digests is not None
            and (sent.stamp.device, sent.stamp.inode) == (stamp.device, stamp.inode)
            and sent.digests.hold(self._folder.local(order.name), every=not order.kind.growing)
        )

    def _append(self, order: Order, base: ObjectInfo, stamp: Stamp, *, growing: bool) -> ObjectInfo:
        try:
            return self._uploader.append(
                self._store, base.key, base, self._folder.local(order.name), stamp.size,
                growing=growing, progress=self.progress, cancel=self._cancel,
            )  # fmt: skip
        except (ChangedError, NotFoundError):  # somebody else wrote the object, or deleted it
            return self._put(order, stamp, growing=growing)

    def _put(self, order: Order, stamp: Stamp, *, growing: bool) -> ObjectInfo:
        put, key, path = self._uploader.put_file, self._prefix + order.name, self._folder.local(order.name)
        if not self._shared:
            return put(
                self._store, key, path, stamp.size, growing=growing, progress=self.progress, cancel=self._cancel
            )
        base = order.sent.info if order.sent is not None else order.there
        try:
            return put(
                self._store, key, path, stamp.size, create=base is None,
                if_match=base.version if base is not None else None,
                growing=growing, progress=self.progress, cancel=self._cancel,
            )  # fmt: skip
        except UnsupportedError:  # a store without conditions: the last to write wins
            return put(
                self._store, key, path, stamp.size, growing=growing, progress=self.progress, cancel=self._cancel
            )
        except (AlreadyExistsError, ChangedError) as error:
            found = self._store.head(key)
            if self._holds(found, path, stamp.size):  # it was ours, and the answer lost; or another wrote the same
                return found
            if base is not None and found.version == base.version:
                raise
            hint = "have the rank in the names of what each process writes"
            raise AlreadyExistsError(TAKEN, path=order.name, hint=hint) from error

    def _holds(self, info: ObjectInfo, path: str, size: int) -> bool:
        """Whether an object is the file; a large one of which its ETag tells nothing is taken for another."""
        same = _is_same(path, size, info)
        if same is None and size <= _COMPARED:
            with open(path, "rb") as file:
                return file.read() == bytes(self._store.get(info.key).data)
        return same is True

    def _copied(self, name: str, source: ObjectInfo) -> ObjectInfo:
        """Raises HeadraceError: it could not be copied, or is not the object it was."""
        if source.size > LARGEST_COPY:
            raise ChangedError("too large to be copied in one request")
        key = self._prefix + name
        self._store.copy(source.key, key)
        info = self._store.head(key)
        if self._store.head(source.key).version != source.version or info.size != source.size:
            raise ChangedError("the object has changed", path=source.key)
        self.progress.advance(1, 0)
        return info


def _is_same(path: str, size: int, info: ObjectInfo, digests: Digests | None = None) -> bool | None:
    """Whether an object holds a file's bytes: by what was kept of them, or its ETag where that is their MD5, as for
    objects sent in one request. None: nothing tells.
    """
    if info.size != size:
        return False
    if digests is not None and digests.size == size:
        return digests.hold(path, every=True)
    if info.etag is None or len(info.etag) != 32:
        return None
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest() == info.etag
