"""The operations that only read: each a few lines over the parts that do the work. Writing is in `writing`."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.base.errors import ChangedError, HeadraceError, NotFoundError
from headrace.fetch import Read
from headrace.mount import stats
from headrace.mount.kernel import wire
from headrace.mount.kernel.kernel_requests import Answer
from headrace.mount.kernel.session import Handler, Quick
from headrace.mount.kernel.wire import Attr, Fopen, Op
from headrace.mount.names.folders import Folders
from headrace.mount.names.kernel_notices import Notices
from headrace.mount.names.listing_pages import FOLDER, LINK
from headrace.mount.names.node_table import Known, Table
from headrace.mount.names.open_folders import Directories
from headrace.mount.names.stat_attributes import Shown
from headrace.mount.read.pending_reads import fetch
from headrace.mount.read.read_handles import Reading

if TYPE_CHECKING:
    from headrace.fetch import Fetcher
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.names.full_attributes import Details
    from headrace.mount.stats import Stats

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND
_TRIES = 8
_PETABYTE_BLOCKS = 1 << 38


class FileSystem:
    """The read-only operations. Any thread; raises what `session` makes an errno of."""

    def __init__(
        self,
        table: Table,
        folders: Folders,
        attributes: Shown,
        directories: Directories,
        reading: Reading,
        fetcher: Fetcher,
        told: Stats,
        notices: Notices,
        details: Details | None,
    ) -> None:
        self.table = table
        self.folders = folders
        self.attributes = attributes
        self.directories = directories
        self.reading = reading
        self._fetcher = fetcher
        self._stats = told
        self._details = details
        self._notices = notices
        self._virtual: dict[int, bytes] = {}
        self._versions = stats.Versions(told)
        self._numbers = itertools.count(table.first_number | 1 << 62)

    def handlers(self) -> Mapping[int, Handler]:
        """Operations by opcode."""
        if not self.reading.opens:
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
            Op.OPENDIR: self.directories.open,
            Op.READDIR: self.directories.read,
            Op.READDIRPLUS: lambda request: self.directories.read(request, plus=True),
            Op.RELEASEDIR: self.release_folder,
            Op.FSYNCDIR: lambda request: wire.reply(request.unique),
            Op.STATFS: self.statfs,
        }

    def quick(self) -> Mapping[int, Quick]:
        """What is asked most once everything is warm. IOCTL: Python asks of every file whether it is a terminal."""
        ioctl: Mapping[int, Quick] = {Op.IOCTL: lambda unique, _, __: wire.failure(unique, errno.ENOTTY)}
        if not self.reading.opens:
            return ioctl
        return {
            **ioctl,
            Op.OPEN: lambda unique, node, _: self.reading.reopen(unique, node),
            Op.RELEASE: self.reading.end_passed,
        }

    def lookup(self, request: Request) -> Answer:
        """LOOKUP."""
        name = wire.name_of(request.body)
        if request.node <= stats.FOLDER_NODE and (request.node == stats.FOLDER_NODE or name == stats.FOLDER):
            return self._lookup_virtual(request, name)
        if len(name) > 255:
            raise OSError(errno.ENAMETOOLONG, "name too long")
        folder = self.table.folder(request.node)
        for _ in range(_TRIES):
            refreshed = self.folders.refreshed
            found, valid = self.folders.lookup(folder, name, request)
            if found is None:
                valid = valid if self.folders.refreshed == refreshed else 0.0
                return wire.absent(request.unique, self._notices.absent(folder.id, name, valid))
            found, attr, kept = self._attr(found, request)
            with self.table.lock:
                if not self.table.has(found):
                    continue  # it went while we looked: a new listing is there
                self.table.looked_up(found.id)
            if self.folders.refreshed != refreshed:  # what came may be from before
                self.folders.doubt(found)
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
        node = request.node
        if node <= stats.FOLDER_NODE + len(stats.NODES):
            if node == wire.ROOT:
                return wire.attributes(request.unique, self.attributes.folder(self.table.root), self.attributes.ttl)
            return wire.attributes(request.unique, self._virtual_attr(node), 1.0)
        version = self._versions.get(node)
        if version is not None:
            return wire.attributes(request.unique, self._virtual_attr(node, version), self.attributes.lasting)
        refreshed = self.folders.refreshed
        _, attr, kept = self._attr(self.table.get(node), request)
        return wire.attributes(request.unique, attr, kept if self.folders.refreshed == refreshed else 0.0)

    def readlink(self, request: Request) -> Answer:
        """READLINK: the object's content is the target."""
        found = self.table.get(request.node)
        if found.kind != LINK or found.folder.place is None:
            raise OSError(errno.EINVAL, "not a link")
        request.must_wait()
        info = found.info
        blob = fetch(self._fetcher, Read(found.folder.place.store, info.key, info.size, info.version), request)
        return wire.reply(request.unique, bytes(blob.data))

    def open(self, request: Request) -> Answer:
        """OPEN for reading."""
        answer = self.reading.reopen(request.unique, request.node)
        if answer is not None:
            return answer
        if request.node in stats.NODES:
            number = next(self._numbers)
            self._virtual[number] = self._stats.content(request.node)
            return wire.opened(request.unique, number, Fopen.DIRECT_IO | Fopen.NOFLUSH)
        found = self.table.to_open(request.node)
        if found.kind == FOLDER:
            raise OSError(errno.EISDIR, "a folder")
        return self.open_to_read(found, request)

    def open_to_read(self, found: Known, request: Request) -> Answer:
        """Open one object version; where it is gone, the kernel looks the name up again and comes back."""

        def failed(error: HeadraceError) -> Exception:
            if not isinstance(error, (ChangedError, NotFoundError)):
                return error
            self.distrust(found)
            return OSError(errno.ESTALE, str(error))

        try:
            return self.reading.open(found, request, failed)
        except HeadraceError as error:
            raise failed(error) from error

    def distrust(self, found: Known) -> None:
        """What was known of a name is no longer so. Without OPEN the kernel must be told: it asks for no name again."""
        with self.table.lock:
            if found.folder.listing is not None:
                found.folder.listing.doubt()
        self.folders.doubt(found)
        if not self.reading.opens:
            self._notices.name(found)

    def read(self, request: Request) -> Answer:
        """READ."""
        try:
            return self.reading.read(request)
        except KeyError:
            number, start, count, *_ = wire.READ_IN.unpack_from(request.body)
            version = self._versions.get(request.node)
            content = self._virtual.get(number) if version is None else version.content
            if content is not None:
                return wire.reply(request.unique, content[start : start + count])
            if self.reading.opens:
                return self._read_on(number, request)
            return self.open_to_read(self.table.get(request.node), request)
        except ChangedError:
            self.distrust(self.table.get(request.node))
            raise

    def _read_on(self, number: int, request: Request) -> Answer:
        """READ by a handle that an earlier server gave, of a file that is known still."""
        found = self.table.get(request.node) if self.reading.is_earlier(number) else None
        if found is None or found.node is None or not found.node.before:
            raise OSError(errno.EBADF, "unknown handle")
        request.must_wait()
        self.folders.place(found.folder)
        self.reading.open_again(number, found)
        return self.reading.read(request)

    def release(self, request: Request) -> Answer:
        """RELEASE."""
        try:
            self.reading.release(request)
        except KeyError:
            self._virtual.pop(wire.RELEASE_IN.unpack_from(request.body)[0], None)
        return wire.reply(request.unique)

    def release_folder(self, request: Request) -> Answer:
        """RELEASEDIR."""
        for node in self.directories.release(request):
            self._forget(node, 1)
        return wire.reply(request.unique)

    def statfs(self, request: Request) -> Answer:
        """STATFS: a bucket has no size; a petabyte is shown."""
        return wire.statfs(request.unique, blocks=_PETABYTE_BLOCKS, free=_PETABYTE_BLOCKS, files=_PETABYTE_BLOCKS)

    @property
    def open_count(self) -> int:
        """Open files and folders."""
        return self.reading.open_count + len(self.directories) + len(self._virtual)

    def _attr(self, found: Known, request: Request) -> tuple[Known, Attr, float]:
        """What is shown of a name, and for how many seconds. Raises as `Details.of`."""
        if self._details is not None:
            return self._details.of(found, request)
        return found, self.attributes.of(found), self.attributes.valid(found)

    def _forget(self, node: int, times: int) -> None:
        if self._versions.forget(node, times):
            return
        with self.table.lock:
            self.table.forget(node, times)
            forgotten = node not in self.table.nodes and node >> 12 not in self.table.pages
        if forgotten:
            self.reading.forget(node)

    def _lookup_virtual(self, request: Request, name: bytes) -> Answer:
        node = stats.FOLDER_NODE if request.node == wire.ROOT else stats.IDS.get(name)
        if node is None:
            return wire.absent(request.unique, 1.0)
        if self.reading.opens or node == stats.FOLDER_NODE:
            return wire.entry(request.unique, self._virtual_attr(node), self.attributes.ttl, 1.0)
        number, version = self._versions.looked_up(node)
        return wire.entry(request.unique, self._virtual_attr(number, version), 0.0, self.attributes.lasting)

    def _virtual_attr(self, node: int, version: stats.Version | None = None) -> Attr:
        attributes = self.attributes
        if node == stats.FOLDER_NODE:
            return Attr(node, 4096, self.table.born_ns, stat.S_IFDIR | 0o555, 2, attributes.uid, attributes.gid)
        size, mtime_ns = (0, self.table.born_ns) if version is None else (len(version.content), version.made_ns)
        return Attr(node, size, mtime_ns, stat.S_IFREG | 0o444, 1, attributes.uid, attributes.gid)


def wants_to_write(flags: int) -> bool:
    """Whether an OPEN's flags ask for more than reading."""
    return bool(flags & _WRITES)
