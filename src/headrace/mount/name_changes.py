"""Changes of names and attributes: each finds its paths, calls `Staging`, and then says what the names stand for."""

from __future__ import annotations

import errno
import os
import stat
import time
from typing import TYPE_CHECKING

from headrace.mount import mount_stats
from headrace.mount.kernel import wire
from headrace.mount.kernel.kernel_requests import Answer
from headrace.mount.kernel.wire import Fattr
from headrace.mount.names.listing_pages import FILE, FOLDER, LINK
from headrace.mount.names.node_renames import check_rename, move
from headrace.mount.names.nodes import FolderNode, NamedNode
from headrace.mount.overlay import WriteOverlay, storable_name, store_path
from headrace.mount.write_back.object_metadata import Attributes, link_path

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.mount_parts import MountParts
    from headrace.mount.write_back.staging import Staging
    from headrace.mount.write_handles import WriteHandles
    from headrace.store.protocol import ObjectInfo


class NameChanges:
    """Makes, removes and renames names, and changes their attributes. Any thread."""

    def __init__(self, parts: MountParts, overlay: WriteOverlay, staging: Staging, handles: WriteHandles) -> None:
        self._table = parts.table
        self._names = parts.names
        self._attributes = parts.attributes
        self._overlay = overlay
        self._staging = staging
        self._handles = handles
        self._ttl = parts.attributes.ttl

    def mkdir(self, request: Request) -> Answer:
        """MKDIR."""
        mode, _ = wire.MKDIR_IN.unpack_from(request.body)
        name = storable_name(wire.name_of(request.body, wire.MKDIR_IN.size))
        request.must_wait()
        folder, path = self._overlay.target(request.node, name)
        attrs = Attributes(stat.S_IFDIR | mode & 0o7777, request.uid, request.gid, time.time_ns())
        self._staging.mkdir(path, attrs)
        return self._made(request, folder, name, FOLDER, attrs)

    def symlink(self, request: Request) -> Answer:
        """SYMLINK."""
        given, target = wire.names_of(request.body)
        name = storable_name(given, LINK)
        request.must_wait()
        folder, path = self._overlay.target(request.node, name)
        attrs = Attributes(stat.S_IFLNK | 0o777, request.uid, request.gid, time.time_ns())
        info = self._staging.symlink(path, os.fsdecode(target), attrs)
        return self._made(request, folder, name, LINK, attrs, info)

    def mknod(self, request: Request) -> Answer:
        """MKNOD: only regular files."""
        mode, *_ = wire.CREATE_IN.unpack_from(request.body)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EPERM, "no device nodes, sockets or pipes")
        name = storable_name(wire.name_of(request.body, wire.CREATE_IN.size))
        request.must_wait()
        folder, path = self._overlay.target(request.node, name)
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
        folder, found = self._overlay.existing(request, name)
        if found.kind == FOLDER:
            raise OSError(errno.EISDIR, "a folder")
        self._staging.unlink(store_path(found))
        with self._table.lock:
            self._table.promote(found, self._ttl)  # fstat of an open handle shows no links from now on
        self._removed(folder, name)
        return wire.reply(request.unique)

    def rmdir(self, request: Request) -> Answer:
        """RMDIR."""
        name = wire.name_of(request.body)
        request.must_wait()
        folder, found = self._overlay.existing(request, name)
        if found.kind != FOLDER:
            raise OSError(errno.ENOTDIR, "not a folder")
        if self._names.places.is_attached(folder, name):
            raise OSError(errno.EBUSY, "something is attached there")
        self._staging.rmdir(found.path)
        self._removed(folder, name)
        return wire.reply(request.unique)

    def rename(self, request: Request, size: int, flags: int) -> Answer:
        """RENAME, RENAME2."""
        target_folder = wire.RENAME_IN.unpack_from(request.body)[0]
        old_name, given = wire.names_of(request.body, size)
        new_name = storable_name(given)
        if flags & ~wire.RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, "names cannot be exchanged")
        request.must_wait()
        old_folder, found = self._overlay.existing(request, old_name)
        new_folder, new_path = self._overlay.target(target_folder, new_name)
        there, _ = self._names.lookup(new_folder, new_name, request)
        if self._names.places.is_attached(old_folder, old_name):
            raise OSError(errno.EBUSY, "something is attached there")
        storable_name(new_name, found.kind)
        check_rename(found, there, replace=not flags)
        displaced = None
        if there is not None and there.kind != FOLDER and there.kind != found.kind:
            displaced = store_path(there)
        self._staging.rename(
            store_path(found),
            link_path(new_path) if found.kind == LINK else new_path,
            folder=found.kind == FOLDER,
            replace=not flags,
            displaced=displaced,
        )
        node = move(self._table, self._names, found, new_folder, new_name, self._ttl)
        self._overlay.keep(old_folder)
        self._overlay.learn_copied(node)
        return wire.reply(request.unique)

    def setattr(self, request: Request) -> Answer:
        """SETATTR: truncation, mode, owner, times."""
        change = wire.setattr_of(request.body)
        asked = _attributes(change)
        if request.node == wire.ROOT and asked == Attributes(mtime_ns=asked.mtime_ns):
            root = self._table.folder(wire.ROOT)
            with self._table.lock:
                self._date(root, asked)  # nothing keeps it beyond this mount
            return wire.attributes(request.unique, self._attributes.folder(root), self._ttl)
        if request.node == wire.ROOT or request.node in mount_stats.NODES or request.node == mount_stats.FOLDER_NODE:
            raise OSError(errno.EPERM, "cannot be changed")
        found = self._table.get(request.node)
        if change.valid & Fattr.SIZE:
            request.must_wait()
            self._handles.truncate(found, change)
            found = self._table.get(request.node)
        if asked != Attributes():
            try:  # at once, of a file that is being written, as `create`
                self._set_attributes(found, asked, wait=request.may_wait)
            except BlockingIOError:
                request.must_wait()
                raise
            found = self._table.get(request.node)
        return wire.attributes(request.unique, self._attributes.of(found), self._ttl)

    def _removed(self, folder: FolderNode, name: bytes) -> None:
        with self._table.lock:
            self._table.remove(folder, name)
        self._overlay.keep(folder)

    def _made(
        self,
        request: Request,
        folder: FolderNode,
        name: bytes,
        kind: int,
        attrs: Attributes,
        info: ObjectInfo | None = None,
    ) -> bytes:
        """The answer for a name that was just made. `info`: the object that holds it."""
        with self._table.lock:
            node = self._table.add(folder, name, kind)
            node.attrs = attrs
            node.trust(self._ttl)
            if info is not None:
                node.learn(info, self._ttl)
            self._table.looked_up(node.id)
            folder.touched()
        found = NamedNode.of(node)
        return wire.entry(request.unique, self._attributes.of(found), self._ttl, self._ttl)

    def _set_attributes(self, found: NamedNode, asked: Attributes, *, wait: bool) -> None:
        self._staging.set_attributes(store_path(found), asked, folder=found.kind == FOLDER, wait=wait)
        with self._table.lock:
            node = self._table.promote(found, self._ttl)
            self._overlay.settle(node)  # before its release does, which knows of no attributes but the file's
            node.attrs = asked.over(node.attrs or Attributes())
            if not node.copied:
                node.trust(self._ttl)
            if (folder := self._table.folders.get(found.id)) is not None:
                self._date(folder, asked)
        if wait or not node.copied:
            self._overlay.learn_copied(node)

    def _date(self, folder: FolderNode, asked: Attributes) -> None:
        """A program sets a folder's time; the next change of its content gives it another. Under the lock."""
        if asked.mtime_ns is not None:
            folder.mtime_ns, folder.changed_ns = asked.mtime_ns, 0


def _attributes(change: wire.AttributeChange) -> Attributes:
    """What a SETATTR asks for, apart from the size; reading times are not kept."""
    valid = change.valid
    mtime = time.time_ns() if valid & Fattr.MTIME_NOW else change.mtime_ns if valid & Fattr.MTIME else None
    return Attributes(
        change.mode if valid & Fattr.MODE else None,
        change.uid if valid & Fattr.UID else None,
        change.gid if valid & Fattr.GID else None,
        mtime,
    )
