"""The operations that change something: each finds its paths, calls `Staging`, and then says what the names stand for.

While a file is being written its node has a staged file. Where the kernel may, it writes into that file by itself; not
where it is opened for appending, so that what was appended is known and only that is sent, and not where it is opened
for reading and writing, since it may then be mapped: of what a mapping writes, and of ``msync``, the kernel tells only
whom it asks for the bytes.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.mount import stats
from headrace.mount.filesystem import FileSystem, wants_to_write
from headrace.mount.kernel import wire
from headrace.mount.kernel.kernel_requests import Answer, Waiters
from headrace.mount.kernel.session import Handler, Quick
from headrace.mount.kernel.wire import Fattr, Fopen, Op
from headrace.mount.names.listing_pages import FILE, FOLDER, LINK
from headrace.mount.names.node_renames import check_rename, move
from headrace.mount.names.node_table import Folder, Known, Node, known
from headrace.mount.write_back.object_metadata import Attributes, link_path
from headrace.mount.write_back.publish_file import outlives_copy

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.write_back.staging import StagedFile, Staging
    from headrace.store.protocol import ObjectInfo

_FIRST_HANDLE = 1 << 61
_LONGEST_NAME = 255
_ENDERS = 2
"""Threads that hand closed files on: no faster with more, which would only take turns."""


class _Handle:
    """One open staged file. `by_kernel`: read and written by the kernel itself; `writes`: opened for writing."""

    __slots__ = ("by_kernel", "file", "node", "writes")

    def __init__(self, file: StagedFile, node: Node, *, writes: bool, by_kernel: bool) -> None:
        self.file = file
        self.node = node
        self.writes = writes
        self.by_kernel = by_kernel


_SLOWEST = 128 << 10
"""Bytes a second that a publication may go down to before who waits for it is told."""


class Writing:
    """Adds what writes to a `FileSystem`. Any thread.

    `invalidate`: drops the kernel's pages of a node. `deadline`: seconds that a publication may keep who closes a file
    waiting, and another for each 128 KiB.
    """

    def __init__(
        self,
        files: FileSystem,
        staging: Staging,
        ttl: float,
        invalidate: Callable[[int], object],
        deadline: float,
    ) -> None:
        self._files = files
        self._table = files.table
        self._folders = files.folders
        self._reading = files.reading
        self._staging = staging
        self._ttl = ttl
        self._invalidate = invalidate
        self._deadline = deadline
        self._handles: dict[int, _Handle] = {}
        self._ends = Waiters(_ENDERS)
        self._numbers = itertools.count(_FIRST_HANDLE | self._table.first_number)

    def handlers(self) -> Mapping[int, Handler]:
        """All operations by opcode."""
        return {
            **self._files.handlers(),
            Op.OPEN: self.open,
            Op.CREATE: self.create,
            Op.READ: self.read,
            Op.WRITE: self.write,
            Op.FLUSH: self.flush,
            Op.FSYNC: self.flush,
            Op.RELEASE: self.release,
            Op.SETATTR: self.setattr,
            Op.UNLINK: self.unlink,
            Op.RMDIR: self.rmdir,
            Op.MKDIR: self.mkdir,
            Op.SYMLINK: self.symlink,
            Op.RENAME: lambda request: self.rename(request, wire.RENAME_IN.size, 0),
            Op.RENAME2: lambda request: self.rename(
                request, wire.RENAME2_IN.size, wire.RENAME2_IN.unpack_from(request.body)[1]
            ),
            Op.FALLOCATE: self.fallocate,
            Op.MKNOD: self.mknod,
            Op.LINK: lambda request: wire.failure(request.unique, errno.EPERM),
        }

    def quick(self) -> Mapping[int, Quick]:
        """What is asked most once everything is warm."""
        return {**self._files.quick(), Op.OPEN: self._reopen}

    def _reopen(self, unique: int, number: int, message: memoryview) -> bytes | None:
        flags, _ = wire.OPEN_IN.unpack_from(message, wire.HEADER)
        node = self._table.nodes.get(number)
        if wants_to_write(flags) or (node is not None and node.staged is not None):
            return None
        return self._reading.reopen(unique, number)

    def __len__(self) -> int:
        return len(self._handles)

    # open files

    def open(self, request: Request) -> Answer:
        """OPEN, for reading or writing."""
        flags, _ = wire.OPEN_IN.unpack_from(request.body)
        node = self._table.nodes.get(request.node)
        if not wants_to_write(flags):
            file = self._held(node) if node is not None and node.staged is not None else None
            if node is not None and file is not None:
                return self._opened(request, file, node, flags)
            if node is not None and node.copied:
                request.must_wait()
                self._learn(node)
            return self._files.open(request)
        if request.node in stats.NODES:
            raise OSError(errno.EACCES, "cannot be written")
        request.must_wait()
        found = self._table.to_open(request.node)
        file, node = self._to_write(found, truncate=bool(flags & os.O_TRUNC))
        return self._opened(request, file, node, flags)

    def create(self, request: Request) -> Answer:
        """CREATE: a new file, opened."""
        flags, mode, _, _ = wire.CREATE_IN.unpack_from(request.body)
        name = _checked(wire.name_of(request.body, wire.CREATE_IN.size))
        folder, path = self._target(request.node, name)
        attrs = Attributes(stat.S_IFREG | mode & 0o7777, request.uid, request.gid)
        try:  # at once: the kernel lets nobody else into the folder meanwhile, and another thread costs more than this
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
        attr = self._files.attributes.of(known(node))
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
            self._reading.backings.release(handle.node.id)
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

    # names

    def mkdir(self, request: Request) -> Answer:
        """MKDIR."""
        mode, _ = wire.MKDIR_IN.unpack_from(request.body)
        name = _checked(wire.name_of(request.body, wire.MKDIR_IN.size))
        request.must_wait()
        folder, path = self._target(request.node, name)
        attrs = Attributes(stat.S_IFDIR | mode & 0o7777, request.uid, request.gid, time.time_ns())
        self._staging.mkdir(path, attrs)
        return self._made(request, folder, name, FOLDER, attrs)

    def symlink(self, request: Request) -> Answer:
        """SYMLINK."""
        given, target = wire.names_of(request.body)
        name = _checked(given, LINK)
        request.must_wait()
        folder, path = self._target(request.node, name)
        attrs = Attributes(stat.S_IFLNK | 0o777, request.uid, request.gid, time.time_ns())
        info = self._staging.symlink(path, os.fsdecode(target), attrs)
        return self._made(request, folder, name, LINK, attrs, info)

    def mknod(self, request: Request) -> Answer:
        """MKNOD: only regular files."""
        mode, *_ = wire.CREATE_IN.unpack_from(request.body)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EPERM, "no device nodes, sockets or pipes")
        name = _checked(wire.name_of(request.body, wire.CREATE_IN.size))
        request.must_wait()
        folder, path = self._target(request.node, name)
        attrs = Attributes(stat.S_IFREG | mode & 0o7777, request.uid, request.gid)
        file = self._staging.create(path, attrs)
        try:
            file.publish(sync=True)
            info = file.base
        finally:
            file.release()
        return self._made(request, folder, name, FILE, attrs, info)

    def unlink(self, request: Request) -> Answer:
        """UNLINK."""
        name = wire.name_of(request.body)
        request.must_wait()
        folder, found = self._existing(request, name)
        if found.kind == FOLDER:
            raise OSError(errno.EISDIR, "a folder")
        self._staging.unlink(self._path(found))
        with self._table.lock:
            self._table.promote(found, self._ttl)  # who has it open is told that it has no name
        self._removed(folder, name)
        return wire.reply(request.unique)

    def rmdir(self, request: Request) -> Answer:
        """RMDIR."""
        name = wire.name_of(request.body)
        request.must_wait()
        folder, found = self._existing(request, name)
        if found.kind != FOLDER:
            raise OSError(errno.ENOTDIR, "not a folder")
        if self._folders.is_attached(folder, name):
            raise OSError(errno.EBUSY, "something is attached there")
        self._staging.rmdir(found.path)
        self._removed(folder, name)
        return wire.reply(request.unique)

    def rename(self, request: Request, size: int, flags: int) -> Answer:
        """RENAME, RENAME2."""
        target_folder = wire.RENAME_IN.unpack_from(request.body)[0]
        old_name, given = wire.names_of(request.body, size)
        new_name = _checked(given)
        if flags & ~wire.RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, "names cannot be exchanged")
        request.must_wait()
        old_folder, found = self._existing(request, old_name)
        new_folder, new_path = self._target(target_folder, new_name)
        there, _ = self._folders.lookup(new_folder, new_name, request)
        if self._folders.is_attached(old_folder, old_name):
            raise OSError(errno.EBUSY, "something is attached there")
        _checked(new_name, found.kind)
        check_rename(found, there, replace=not flags)
        displaced = None
        if there is not None and there.kind != FOLDER and there.kind != found.kind:
            displaced = self._path(there)
        self._staging.rename(
            self._path(found),
            link_path(new_path) if found.kind == LINK else new_path,
            folder=found.kind == FOLDER,
            replace=not flags,
            displaced=displaced,
        )
        node = move(self._table, self._folders, found, new_folder, new_name, self._ttl)
        self._keep(old_folder)
        self._learn_copied(node)
        return wire.reply(request.unique)

    def setattr(self, request: Request) -> Answer:
        """SETATTR: truncation, mode, owner, times."""
        change = wire.setattr_of(request.body)
        asked = _attributes(change)
        if request.node == wire.ROOT and asked == Attributes(mtime_ns=asked.mtime_ns):
            root = self._table.folder(wire.ROOT)
            with self._table.lock:
                self._date(root, asked)  # nothing keeps it beyond this mount
            return wire.attributes(request.unique, self._files.attributes.folder(root), self._ttl)
        if request.node == wire.ROOT or request.node in stats.NODES or request.node == stats.FOLDER_NODE:
            raise OSError(errno.EPERM, "cannot be changed")
        found = self._table.get(request.node)
        if change.valid & Fattr.SIZE:
            request.must_wait()
            self._truncate(found, change)
            found = self._table.get(request.node)
        if asked != Attributes():
            try:  # at once, of a file that is being written, as `create`
                self._set_attributes(found, asked, wait=request.may_wait)
            except BlockingIOError:
                request.must_wait()
                raise
            found = self._table.get(request.node)
        return wire.attributes(request.unique, self._files.attributes.of(found), self._ttl)

    # what `Folders` shows beside the bucket (`Overlay`)

    @property
    def hides_any(self) -> bool:
        """Whether any name is gone though its object may still be there."""
        return self._staging.hides_any

    def hides(self, folder: str, name: bytes) -> bool:
        """Whether this one is."""
        return self._staging.hides(f"{folder.rstrip('/')}/{name.decode('utf-8', 'surrogateescape')}")

    def find(self, folder: Folder, name: bytes) -> Node | None:
        """A staged file, or a folder kept here, under a name that the store does not show."""
        path = folder.child(name)
        file = self._staging.find(path)
        made = self._staging.made(path) if file is None else None
        if file is None and made is None:
            return None
        with self._table.lock:
            node = folder.own.get(name)
            kind = FILE if file is not None else FOLDER
            if node is None or node.kind != kind or node.staged is not file:
                node = self._table.add(folder, name, kind)
                node.staged = file
                node.attrs = made.attrs if made is not None and made.attrs != Attributes() else None
            node.trust(self._ttl)
            return node

    def enter(self, folder: Folder) -> None:
        """Make nodes for all that is staged in a folder, so that it is listed."""
        for each in self._staging.below(folder.path):
            name = each.path.rpartition("/")[2].encode("utf-8", "surrogateescape")
            if name not in folder.own:
                self.find(folder, name)

    def settle(self, node: Node) -> None:
        """A staged file that is retired has become an object: the node stands for that now.

        Where it was renamed after it was published, the store has to tell which version that is (`Node.copied`).
        """
        file = node.staged
        if file is None or (file.fd >= 0 and not (file.gone and file.handles <= 0)):
            return
        by_kernel = file.passthrough
        with self._table.lock:
            if node.staged is not file:
                return
            if file.base is not None:
                node.attrs = file.attrs
                node.tells(file.base, self._ttl)
            else:
                node.size, node.attrs = file.shown()
                node.mtime_us, node.etag, node.until = (node.attrs.mtime_ns or 0) // 1000, None, 0.0
                node.copied = node.linked
            node.staged = None
        self._reading.backings.drop(node.id)
        if by_kernel:
            self._invalidate(node.id)

    # inside

    def _end(self, handle: _Handle) -> None:
        """A handle is closed: with the last one, its file goes to the cache."""
        if handle.file.mapped:
            self._reading.backings.drop(handle.node.id)  # so that whoever still writes is a mapping
        handle.file.release()
        self.settle(handle.node)
        if handle.node.copied:
            self._learn(handle.node)

    def _to_write(self, found: Known, *, truncate: bool) -> tuple[StagedFile, Node]:
        """The staged file to write a node's content to, with a handle on it.

        Raises:
            OSError: ESTALE, the name has got another node: whoever reads the old one keeps what it stands for.
        """
        if found.kind != FILE:
            raise OSError(errno.EISDIR if found.kind == FOLDER else errno.EINVAL, "not a file")
        if found.node is not None:
            self.settle(found.node)
            if found.node.copied:
                self._learn(found.node)
            found = known(found.node)
        staged = found.node.staged if found.node is not None else None
        if staged is None and self._reading.is_open(found.id):
            self._renew(found)
        attrs = _shown(self._files.attributes.of(found))
        info = found.info if found.folder.place is not None and staged is None else None
        try:
            file = self._staging.open(self._path(found), info, truncate=truncate, attrs=attrs)
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
                self._reading.backings.drop(node.id)
                return file, node
        file.release()
        self._renew(found)
        raise AssertionError

    def _keep_time(self, found: Known, file: StagedFile, *, truncate: bool) -> None:
        """A time that was set outranks the object's own, until something is written."""
        own = found.node.attrs if found.node is not None else None
        if own is not None and own.mtime_ns is not None and file.handles == 1 and not truncate and not file.dirty:
            os.utime(file.fd, ns=(own.mtime_ns, own.mtime_ns))
            file.clean_stamp()

    def _renew(self, found: Known) -> None:
        """Give a name a new node; raises ESTALE, so that the kernel looks it up again and comes back."""
        with self._table.lock:
            node = self._table.add(found.folder, found.name, FILE)
            node.tells(found.info, self._ttl)
        raise OSError(errno.ESTALE, "the name has a new node")

    def _opened(self, request: Request, file: StagedFile, node: Node, flags: int) -> bytes:
        number, open_flags, backing = self._handle(file, node, flags)
        return wire.opened(request.unique, number, open_flags, backing)

    def _handle(self, file: StagedFile, node: Node, flags: int) -> tuple[int, int, int]:
        """A handle on a staged file: its number, flags for the kernel, and the id of the backing file."""
        writes = wants_to_write(flags)
        number = next(self._numbers)
        backings = self._reading.backings
        noflush = 0 if writes else Fopen.NOFLUSH
        backing = None
        if backings.enabled and file.complete:
            with self._reading.lock:
                ours = any(each.node is node and not each.by_kernel for each in list(self._handles.values()))
                backing = backings.reuse(node.id, writable=True)
                heard = flags & os.O_APPEND or _may_map(flags)  # by us, of each write
                heard = heard and not file.mapped  # the kernel's pages for us would not be those of a mapping past us
                if backing is None and not ours and not heard and not self._reading.is_open(node.id):
                    file.passthrough = True
                    backing = backings.open(node.id, file.fd, writable=True)
                if backing is not None and _may_map(flags):  # all opens of a node are of one kind
                    file.mapped = True
                self._handles[number] = _Handle(file, node, writes=writes, by_kernel=backing is not None)
        else:
            self._handles[number] = _Handle(file, node, writes=writes, by_kernel=False)
        if backing is not None:
            return number, Fopen.PASSTHROUGH | noflush, backing.id
        keep = 0 if file.passthrough else Fopen.KEEP_CACHE  # what was written past the kernel's pages is not in them
        return number, keep | noflush, 0

    def _handle_of(self, number: int) -> _Handle:
        handle = self._handles.get(number)
        if handle is None:
            raise OSError(errno.EBADF, "not open for writing")
        return handle

    def _target(self, number: int, name: bytes) -> tuple[Folder, str]:
        """A folder and the path of a name to be made in it."""
        folder = self._table.folder(number)
        if number == wire.ROOT and name == stats.FOLDER:
            raise OSError(errno.EACCES, "the mount's own")
        self._folders.place(folder)
        return folder, folder.child(name)

    def _existing(self, request: Request, name: bytes) -> tuple[Folder, Known]:
        folder = self._table.folder(request.node)
        self._folders.place(folder)
        found, _ = self._folders.lookup(folder, name, request)
        if found is None:
            raise OSError(errno.ENOENT, "no such name")
        return folder, found

    def _removed(self, folder: Folder, name: bytes) -> None:
        with self._table.lock:
            self._table.remove(folder, name)
        self._keep(folder)

    def _keep(self, folder: Folder) -> None:
        """A folder whose last object may just have gone: what it is called by no longer depends on a listing."""
        if folder.parent is not None and self._staging.made(folder.path) is not None:
            with self._table.lock:
                self._table.promote(self._table.get(folder.id), self._ttl)

    def _path(self, found: Known) -> str:
        """Where a name is stored."""
        return link_path(found.path) if found.kind == LINK else found.path

    def _made(
        self,
        request: Request,
        folder: Folder,
        name: bytes,
        kind: int,
        attrs: Attributes,
        info: ObjectInfo | None = None,
    ) -> bytes:
        """A name of our own making, and the answer that tells of it. `info`: the object that holds it."""
        with self._table.lock:
            node = self._table.add(folder, name, kind)
            node.attrs = attrs
            node.trust(self._ttl)
            if info is not None:
                node.tells(info, self._ttl)
            self._table.looked_up(node.id)
            folder.touched()
        found = known(node)
        return wire.entry(request.unique, self._files.attributes.of(found), self._ttl, self._ttl)

    def _learn(self, node: Node) -> None:
        """Ask the store which version a name stands for now."""
        found = known(node)
        place = self._folders.place(found.folder)
        if place is None:
            return
        try:
            info = place.store.head(found.key)
        except HeadraceError:
            node.until = 0.0  # asked again at the next lookup
            return
        with self._table.lock:
            node.tells(info, self._ttl)

    def _learn_copied(self, node: Node) -> None:
        """The store has copied what a name stands for."""
        if node.kind != FOLDER and node.staged is None and not outlives_copy(node.etag):
            self._learn(node)

    def _held(self, node: Node) -> StagedFile | None:
        """The staged file of a node, with a handle on it; None: it has just been retired."""
        file = self._staging.hold(self._path(known(node)))
        if file is not None and file is not node.staged:
            file.release()
            file = None
        if file is None:
            self.settle(node)
        return file

    def _truncate(self, found: Known, change: wire.Change) -> None:
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
            self.settle(node)
            if node.copied:
                self._learn(node)
            if node.staged is not None:
                self._invalidate_if_kernels(node)

    def _invalidate_if_kernels(self, node: Node) -> None:
        if node.staged is not None and node.staged.passthrough:
            self._invalidate(node.id)

    def _set_attributes(self, found: Known, asked: Attributes, *, wait: bool) -> None:
        self._staging.set_attributes(self._path(found), asked, folder=found.kind == FOLDER, wait=wait)
        with self._table.lock:
            node = self._table.promote(found, self._ttl)
            self.settle(node)  # before its release does, which knows of no attributes but the file's
            node.attrs = asked.over(node.attrs or Attributes())
            if not node.copied:
                node.trust(self._ttl)
            if (folder := self._table.folders.get(found.id)) is not None:
                self._date(folder, asked)
        if wait or not node.copied:
            self._learn_copied(node)

    def _date(self, folder: Folder, asked: Attributes) -> None:
        """Somebody gives a folder a time; the next change of its content gives it another. Under the lock."""
        if asked.mtime_ns is not None:
            folder.mtime_ns, folder.changed_ns = asked.mtime_ns, 0


def _may_map(flags: int) -> bool:
    """Whether a file so opened can be mapped to be written (mmap(2): shared, for which it must be readable too)."""
    return flags & os.O_ACCMODE == os.O_RDWR


def _checked(name: bytes, kind: int = FILE) -> bytes:
    """A name that can be stored, and shown again; whether its store can hold it, `Staging` asks.

    Raises:
        OSError: ENAMETOOLONG; EILSEQ, it is not UTF-8; EINVAL, it would be taken for a symbolic link.
    """
    if len(name) > _LONGEST_NAME - (len(link_path("")) if kind == LINK else 0):
        raise OSError(errno.ENAMETOOLONG, "name too long")
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "a key is Unicode text") from None
    if text != link_path("") and text.endswith(link_path("")):
        raise OSError(errno.EINVAL, "the ending of symbolic links")
    return name


def _attributes(change: wire.Change) -> Attributes:
    """What a SETATTR asks for, apart from the size; reading times are not kept."""
    valid = change.valid
    mtime = time.time_ns() if valid & Fattr.MTIME_NOW else change.mtime_ns if valid & Fattr.MTIME else None
    return Attributes(
        change.mode if valid & Fattr.MODE else None,
        change.uid if valid & Fattr.UID else None,
        change.gid if valid & Fattr.GID else None,
        mtime,
    )


def _shown(attr: wire.Attr) -> Attributes:
    return Attributes(attr.mode, attr.uid, attr.gid)
