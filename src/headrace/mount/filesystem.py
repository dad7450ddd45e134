"""The operations that only read: a few lines each, over the parts that do the work. See `writable_filesystem` too."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.base.errors import ChangedError, HeadraceError, NotFoundError
from headrace.fetch import Read
from headrace.mount.kernel import wire
from headrace.mount.kernel.kernel_requests import Answer
from headrace.mount.kernel.session import Handler, Quick
from headrace.mount.kernel.wire import Attr, Op
from headrace.mount.names.listing_pages import FOLDER, LINK
from headrace.mount.names.nodes import NamedNode
from headrace.mount.stats_folder import StatsFolder

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.mount_parts import MountParts
    from headrace.mount.mount_stats import MountStats

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
_TRIES = 8  # looks at a name whose listing is replaced each time: nobody replaces it as often
_PETABYTE_BLOCKS = 1 << 38  # blocks of 4 KiB


class FileSystem:
    """The read-only operations. Any thread; raises what `session` makes an errno of."""

    def __init__(self, parts: MountParts, figures: MountStats) -> None:
        self._table = parts.table
        self._names = parts.names
        self._attributes = parts.attributes
        self._full_attributes = parts.full_attributes
        self._open_folders = parts.open_folders
        self._reads = parts.reads
        self._fetcher = parts.fetcher
        self._notices = parts.notices
        self._stats_folder = StatsFolder(
            figures, parts.attributes, parts.table.born_ns, parts.table.first_number | 1 << 62, opens=parts.reads.opens
        )

    def handlers(self) -> Mapping[int, Handler]:
        """Operations by opcode."""
        if not self._reads.opens:
            return {**self._handlers(), Op.OPEN: lambda request: wire.failure(request.unique, errno.ENOSYS)}
        return self._handlers()

    def _handlers(self) -> Mapping[int, Handler]:
        return {
            Op.LOOKUP: self.lookup,
            Op.FORGET: self.forget,
            Op.BATCH_FORGET: self.forget_many,
            Op.GETATTR: self.getattr,
            Op.READLINK: self.readlink,
            Op.OPEN: self.open,
            Op.READ: self.read,
            Op.RELEASE: self.release,
            Op.OPENDIR: self.open_folder,
            Op.READDIR: self.list_folder,
            Op.READDIRPLUS: lambda request: self.list_folder(request, plus=True),
            Op.RELEASEDIR: self.release_folder,
            Op.FSYNCDIR: lambda request: wire.reply(request.unique),
            Op.STATFS: self.statfs,
        }

    def quick(self) -> Mapping[int, Quick]:
        """What is asked most once everything is warm. IOCTL: Python asks of every file whether it is a terminal."""
        ioctl: Mapping[int, Quick] = {Op.IOCTL: lambda unique, _, __: wire.failure(unique, errno.ENOTTY)}
        if not self._reads.opens:
            return ioctl
        return {
            **ioctl,
            Op.OPEN: lambda unique, node, _: self._reads.reopen(unique, node),
            Op.RELEASE: self._reads.end_passed,
        }

    def lookup(self, request: Request) -> Answer:
        """LOOKUP."""
        name = wire.name_of(request.body)
        if self._stats_folder.is_here(request.node, name):
            return self._stats_folder.lookup(request, name)
        if len(name) > wire.LONGEST_NAME:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        folder = self._table.folder(request.node)
        for _ in range(_TRIES):
            refreshed = self._names.refreshed
            found, valid = self._names.lookup(folder, name, request)
            if found is None:
                valid = valid if self._names.refreshed == refreshed else 0.0
                return wire.absent(request.unique, self._notices.absent.note(folder.id, name, valid))
            found, attr, kept = self._attr(found, request)
            with self._table.lock:
                if not self._table.has(found):
                    continue  # it went while we looked: a new listing is there
                self._table.looked_up(found.id)
            if self._names.refreshed != refreshed:  # what came may be from before
                self._names.doubt(found)
                valid = kept = 0.0
            return wire.entry(request.unique, attr, min(valid, kept), kept)
        raise OSError(errno.ESTALE, "the name keeps changing")

    def forget(self, request: Request) -> Answer:
        """FORGET, which has no answer."""
        (times,) = wire.FORGET_IN.unpack_from(request.body)
        self._forget(request.node, times)

    def forget_many(self, request: Request) -> Answer:
        """BATCH_FORGET, which has no answer."""
        for node, times in wire.forgotten(request.body):
            self._forget(node, times)

    def getattr(self, request: Request) -> Answer:
        """GETATTR."""
        if request.node == wire.ROOT:
            return wire.attributes(request.unique, self._attributes.folder(self._table.root), self._attributes.ttl)
        answer = self._stats_folder.getattr(request)
        if answer is not None:
            return answer
        refreshed = self._names.refreshed
        _, attr, kept = self._attr(self._table.get(request.node), request)
        return wire.attributes(request.unique, attr, kept if self._names.refreshed == refreshed else 0.0)

    def readlink(self, request: Request) -> Answer:
        """READLINK: the object's content is the target."""
        found = self._table.get(request.node)
        if found.kind != LINK or found.folder.place is None:
            raise OSError(errno.EINVAL, "not a link")
        request.must_wait()
        info = found.info
        read = Read(found.folder.place.store, info.key, info.size, info.version)
        return wire.reply(request.unique, bytes(self._fetcher.start([read]).blob(request.check).data))

    def open(self, request: Request) -> Answer:
        """OPEN for reading."""
        answer = self._reads.reopen(request.unique, request.node)
        if answer is not None:
            return answer
        answer = self._stats_folder.open(request)
        if answer is not None:
            return answer
        found = self._table.to_open(request.node)
        if found.kind == FOLDER:
            raise OSError(errno.EISDIR, "a folder")
        return self.open_to_read(found, request)

    def open_to_read(self, found: NamedNode, request: Request) -> Answer:
        """Open one object version; where it is gone, the kernel looks the name up again and comes back."""

        def failed(error: HeadraceError) -> Exception:
            if not isinstance(error, (ChangedError, NotFoundError)):
                return error
            self.distrust(found)
            return OSError(errno.ESTALE, str(error))

        try:
            return self._reads.open(found, request, failed)
        except HeadraceError as error:
            raise failed(error) from error

    def distrust(self, found: NamedNode) -> None:
        """Trust nothing known of a name. Without OPEN the kernel gets a notice, since it would not look the name up
        again.
        """
        with self._table.lock:
            if found.folder.listing is not None:
                found.folder.listing.doubt()
        self._names.doubt(found)
        if not self._reads.opens:
            self._notices.name(found)

    def read(self, request: Request) -> Answer:
        """READ."""
        try:
            return self._reads.read(request)
        except KeyError:
            answer = self._stats_folder.read(request)
            if answer is not None:
                return answer
            if self._reads.opens:
                return self._read_on(wire.READ_IN.unpack_from(request.body)[0], request)
            return self.open_to_read(self._table.get(request.node), request)
        except ChangedError:
            self.distrust(self._table.get(request.node))
            raise

    def _read_on(self, number: int, request: Request) -> Answer:
        """READ by a handle that an earlier server gave, of a file that is known still."""
        found = self._table.get(request.node) if self._reads.is_earlier(number) else None
        if found is None or found.node is None or not found.node.earlier:
            raise OSError(errno.EBADF, "unknown handle")
        request.must_wait()
        self._names.places.of(found.folder)
        self._reads.open_again(number, found)
        return self._reads.read(request)

    def release(self, request: Request) -> Answer:
        """RELEASE."""
        try:
            self._reads.release(request)
        except KeyError:
            self._stats_folder.release(wire.RELEASE_IN.unpack_from(request.body)[0])
        return wire.reply(request.unique)

    def open_folder(self, request: Request) -> Answer:
        """OPENDIR."""
        return self._stats_folder.open_folder(request) or self._open_folders.open(request)

    def list_folder(self, request: Request, *, plus: bool = False) -> Answer:
        """READDIR, READDIRPLUS."""
        return self._stats_folder.list(request, plus=plus) or self._open_folders.read(request, plus=plus)

    def release_folder(self, request: Request) -> Answer:
        """RELEASEDIR."""
        for node in self._open_folders.release(request):
            self._forget(node, 1)
        return wire.reply(request.unique)

    def statfs(self, request: Request) -> Answer:
        """STATFS: a bucket has no size; a petabyte is shown."""
        return wire.statfs(request.unique, blocks=_PETABYTE_BLOCKS, free=_PETABYTE_BLOCKS, files=_PETABYTE_BLOCKS)

    @property
    def open_count(self) -> int:
        """Open files and folders."""
        return self._reads.open_count + len(self._open_folders) + len(self._stats_folder)

    def _attr(self, found: NamedNode, request: Request) -> tuple[NamedNode, Attr, float]:
        """What is shown of a name, and for how many seconds. Raises as `FullAttributes.of`."""
        if self._full_attributes is not None:
            return self._full_attributes.of(found, request)
        return found, self._attributes.of(found), self._attributes.valid(found)

    def _forget(self, node: int, times: int) -> None:
        if self._stats_folder.forget(node, times):
            return
        with self._table.lock:
            self._table.forget(node, times)
            forgotten = node not in self._table.nodes and node >> 12 not in self._table.pages
        if forgotten:
            self._reads.forget(node)


def wants_to_write(flags: int) -> bool:
    """Whether an OPEN's flags ask for more than reading."""
    return bool(flags & _WRITES)
