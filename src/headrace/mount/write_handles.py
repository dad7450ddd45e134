"""Files open for writing: each handle is on a staged file, which becomes an object on close and fsync.

Where the kernel may, it writes into the staged file by itself. It may not where the file is opened for appending, so
that only what was appended is sent. Nor may it where the file is opened for reading and writing, since it may then be
mapped: of what a mapping writes, and of ``msync``, the kernel tells only a server that it asks for the bytes.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from typing import TYPE_CHECKING

from headrace.base.errors import NotFoundError
from headrace.mount import mount_stats
from headrace.mount.filesystem import FileSystem, wants_to_write
from headrace.mount.kernel import wire
from headrace.mount.kernel.kernel_requests import Answer, Waiters
from headrace.mount.kernel.wire import Fattr, Fopen
from headrace.mount.names.listing_pages import FILE, FOLDER
from headrace.mount.names.nodes import NamedNode, OwnNode
from headrace.mount.overlay import WriteOverlay, storable_name, store_path
from headrace.mount.write_back.object_metadata import Attributes

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.mount_parts import MountParts
    from headrace.mount.write_back.staged_file import StagedFile
    from headrace.mount.write_back.staging import Staging

_FIRST_HANDLE = 1 << 61  # handles of files being written; those of files being read are smaller
_SLOWEST = 128 << 10
"""Bytes a second. Whoever waits for a publication that is slower is answered with an error; it goes on."""
_ENDERS = 2
"""Threads that hand closed files on. More would only take turns."""


class _WriteHandle:
    """One open staged file. `by_kernel`: read and written by the kernel itself; `writes`: opened for writing."""

    __slots__ = ("by_kernel", "file", "node", "writes")

    def __init__(self, file: StagedFile, node: OwnNode, *, writes: bool, by_kernel: bool) -> None:
        self.file = file
        self.node = node
        self.writes = writes
        self.by_kernel = by_kernel


class WriteHandles:
    """Opens, reads, writes and releases staged files; all else that is opened goes to the `FileSystem`. Any thread.

    `deadline`: seconds that close(2) may wait for a publication, and another second for each 128 KiB.
    """

    def __init__(
        self, parts: MountParts, files: FileSystem, overlay: WriteOverlay, staging: Staging, deadline: float
    ) -> None:
        self._table = parts.table
        self._names = parts.names
        self._attributes = parts.attributes
        self._reads = parts.reads
        self._notices = parts.notices
        self._files = files
        self._overlay = overlay
        self._staging = staging
        self._ttl = parts.attributes.ttl
        self._deadline = deadline
        self._handles: dict[int, _WriteHandle] = {}
        self._ends = Waiters(_ENDERS)
        self._numbers = itertools.count(_FIRST_HANDLE | self._table.first_number)

    def reopen(self, unique: int, number: int, message: memoryview) -> bytes | None:
        """The answer to OPEN for reading where the kernel has the file already (a `Quick`)."""
        flags, _ = wire.OPEN_IN.unpack_from(message, wire.HEADER)
        node = self._table.nodes.get(number)
        if wants_to_write(flags) or (node is not None and node.staged is not None):
            return None
        return self._reads.reopen(unique, number)

    def __len__(self) -> int:
        return len(self._handles)

    def open(self, request: Request) -> Answer:
        """OPEN, for reading or writing."""
        flags, _ = wire.OPEN_IN.unpack_from(request.body)
        node = self._table.nodes.get(request.node)
        if not wants_to_write(flags):
            file = self._overlay.hold(node) if node is not None and node.staged is not None else None
            if node is not None and file is not None:
                return self._opened(request, file, node, flags)
            if node is not None and node.copied:
                request.must_wait()
                self._overlay.learn(node)
            return self._files.open(request)
        if request.node in mount_stats.NODES:
            raise OSError(errno.EACCES, "cannot be written")
        request.must_wait()
        found = self._table.to_open(request.node)
        file, node = self._to_write(found, truncate=bool(flags & os.O_TRUNC))
        return self._opened(request, file, node, flags)

    def create(self, request: Request) -> Answer:
        """CREATE: a new file, opened."""
        flags, mode, _, _ = wire.CREATE_IN.unpack_from(request.body)
        name = storable_name(wire.name_of(request.body, wire.CREATE_IN.size))
        folder, path = self._overlay.target(request.node, name)
        attrs = Attributes(stat.S_IFREG | mode & 0o7777, request.uid, request.gid)
        try:  # at once: the kernel lets nobody else into the folder meanwhile, and a thread of its own costs more
            file = self._staging.create(path, attrs, wait=request.may_wait)
        except BlockingIOError:
            request.must_wait()
            raise
        with self._table.lock:
            node = folder.own.get(name)
            if node is None or node.staged is not file:
                node = self._table.add(folder, name, FILE)
                node.staged = file
                folder.touched()
            node.trust(self._ttl)
            self._table.looked_up(node.id)
        number, open_flags, backing = self._handle(file, node, flags)
        attr = self._attributes.of(NamedNode.of(node))
        return wire.created(request.unique, attr, self._ttl, number, open_flags, backing)

    def read(self, request: Request) -> Answer:
        """READ."""
        number, start, count, *_ = wire.READ_IN.unpack_from(request.body)
        handle = self._handles.get(number)
        if handle is None:
            return self._files.read(request)
        if not handle.file.complete:
            request.must_wait()
        return wire.reply(request.unique, handle.file.read(start, count))

    def write(self, request: Request) -> Answer:
        """WRITE."""
        number, start, count, *_ = wire.WRITE_IN.unpack_from(request.body)
        handle = self._handle_of(number)
        if not handle.file.complete:
            request.must_wait()
        data = request.body[wire.WRITE_IN.size : wire.WRITE_IN.size + count]
        return wire.written(request.unique, handle.file.write(start, data))

    def flush(self, request: Request) -> Answer:
        """FLUSH, at every close, and FSYNC: all that was written is in the store when this is answered."""
        number = wire.HANDLE_IN.unpack_from(request.body)[0]
        handle = self._handles.get(number)
        if handle is None and _FIRST_HANDLE <= number < _FIRST_HANDLE | self._table.first_number:
            raise OSError(errno.ESTALE, "was being written when an earlier server died")
        if handle is not None and handle.writes and (request.may_wait or handle.file.dirty):
            request.must_wait()
            request.limit = request.began + self._deadline + handle.file.shown()[0] / _SLOWEST
            handle.file.publish(sync=True)
        return wire.reply(request.unique)

    def release(self, request: Request) -> Answer:
        """RELEASE."""
        number = wire.RELEASE_IN.unpack_from(request.body)[0]
        if number not in self._handles:
            return self._files.release(request)
        if self._handles[number].file.dirty:
            request.must_wait()
        handle = self._handles.pop(number)
        if handle.by_kernel:
            self._reads.backings.release(handle.node.id)
        if request.may_wait:
            self._end(handle)
        else:  # nobody waits for the answer; behind it the file becomes the cache's
            self._ends.add(lambda: self._end(handle))
        return wire.reply(request.unique)

    def fallocate(self, request: Request) -> Answer:
        """FALLOCATE: room at the end; nothing else."""
        number, start, length, mode, _ = wire.FALLOCATE_IN.unpack_from(request.body)
        if mode:
            raise OSError(errno.EOPNOTSUPP, "only plain allocation")
        file = self._handle_of(number).file
        request.must_wait()
        if start + length > file.size:
            file.truncate(start + length)
        return wire.reply(request.unique)

    def truncate(self, found: NamedNode, change: wire.AttributeChange) -> None:
        """SETATTR of a size: by the handle where there is one, else published at once."""
        handle = self._handles.get(change.handle) if change.valid & Fattr.FH else None
        if handle is not None:
            handle.file.truncate(change.size)
            return
        file, node = self._to_write(found, truncate=change.size == 0)
        try:
            file.truncate(change.size)
            if not any(each.node is node and each.writes for each in list(self._handles.values())):
                file.publish(sync=True)
        finally:
            file.release()
            self._overlay.settle(node)
            if node.copied:
                self._overlay.learn(node)
            if node.staged is not None and node.staged.passthrough:
                self._notices.pages(node.id)

    def _end(self, handle: _WriteHandle) -> None:
        """A handle is closed: with the last one, its file goes to the cache."""
        if handle.file.mapped:
            self._reads.backings.drop(handle.node.id)  # so that only a mapping can still write
        handle.file.release()
        self._overlay.settle(handle.node)
        if handle.node.copied:
            self._overlay.learn(handle.node)

    def _to_write(self, found: NamedNode, *, truncate: bool) -> tuple[StagedFile, OwnNode]:
        """The staged file to write a node's content to, with a handle on it.

        Raises:
            OSError: ESTALE, the name has got another node: programs that read the old one keep what it stands for.
        """
        if found.kind != FILE:
            raise OSError(errno.EISDIR if found.kind == FOLDER else errno.EINVAL, "not a file")
        if found.node is not None:
            self._overlay.settle(found.node)
            if found.node.copied:
                self._overlay.learn(found.node)
            found = NamedNode.of(found.node)
        staged = found.node.staged if found.node is not None else None
        if staged is None and self._reads.is_open(found.id):
            self._renew(found)
        attrs = _shown(self._attributes.of(found))
        info = found.info if found.folder.place is not None and staged is None else None
        try:
            file = self._staging.open(store_path(found), info, truncate=truncate, attrs=attrs)
        except NotFoundError as error:
            self._files.distrust(found)
            raise OSError(errno.ESTALE, str(error)) from error
        self._keep_time(found, file, truncate=truncate)
        with self._table.lock:
            other = file.base is not None and info is not None and file.base.version != info.version
            if not other:
                node = self._table.promote(found, self._ttl)
                node.staged = file
                found.folder.own[found.name] = node
                self._reads.backings.drop(node.id)
                return file, node
        file.release()
        self._renew(found)
        raise AssertionError

    def _keep_time(self, found: NamedNode, file: StagedFile, *, truncate: bool) -> None:
        """A time that was set outranks the object's own, until something is written."""
        own = found.node.attrs if found.node is not None else None
        if own is not None and own.mtime_ns is not None and file.handles == 1 and not truncate and not file.dirty:
            os.utime(file.fd, ns=(own.mtime_ns, own.mtime_ns))
            file.clean_stamp()

    def _renew(self, found: NamedNode) -> None:
        """Give a name a new node; raises ESTALE, so that the kernel looks it up again and comes back."""
        with self._table.lock:
            node = self._table.add(found.folder, found.name, FILE)
            node.learn(found.info, self._ttl)
        raise OSError(errno.ESTALE, "the name has a new node")

    def _opened(self, request: Request, file: StagedFile, node: OwnNode, flags: int) -> bytes:
        number, open_flags, backing = self._handle(file, node, flags)
        return wire.opened(request.unique, number, open_flags, backing)

    def _handle(self, file: StagedFile, node: OwnNode, flags: int) -> tuple[int, int, int]:
        """A handle on a staged file: its number, flags for the kernel, and the id of the backing file."""
        writes = wants_to_write(flags)
        number = next(self._numbers)
        backings = self._reads.backings
        noflush = 0 if writes else Fopen.NOFLUSH
        backing = None
        if backings.enabled and file.complete:
            with self._reads.lock:
                ours = any(each.node is node and not each.by_kernel for each in list(self._handles.values()))
                backing = backings.reuse(node.id, writable=True)
                asked = flags & os.O_APPEND or _may_map(flags)  # the kernel has to ask us for each write
                asked = asked and not file.mapped  # its pages for us would not be those of a mapping of the file
                if backing is None and not ours and not asked and not self._reads.is_open(node.id):
                    file.passthrough = True
                    backing = backings.open(node.id, file.fd, writable=True)
                if backing is not None and _may_map(flags):  # all opens of a node are of one kind
                    file.mapped = True
                self._handles[number] = _WriteHandle(file, node, writes=writes, by_kernel=backing is not None)
        else:
            self._handles[number] = _WriteHandle(file, node, writes=writes, by_kernel=False)
        if backing is not None:
            return number, Fopen.PASSTHROUGH | noflush, backing.id
        keep = 0 if file.passthrough else Fopen.KEEP_CACHE  # what was written past the kernel's pages is not in them
        return number, keep | noflush, 0

    def _handle_of(self, number: int) -> _WriteHandle:
        handle = self._handles.get(number)
        if handle is None:
            raise OSError(errno.EBADF, "not open for writing")
        return handle


def _may_map(flags: int) -> bool:
    """Whether a file so opened can be mapped to be written (mmap(2): shared, for which it must be readable too)."""
    return flags & os.O_ACCMODE == os.O_RDWR


def _shown(attr: wire.Attr) -> Attributes:
    return Attributes(attr.mode, attr.uid, attr.gid)
