"""What `stat` shows of a name: modes, owners, times, sizes."""

from __future__ import annotations

import stat

from headrace.mount.kernel import wire
from headrace.mount.kernel.wire import Attr
from headrace.mount.mount_options import MountOptions
from headrace.mount.names.listing_pages import FOLDER, LINK, ListingPage
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, NamedNode
from headrace.mount.write_back.object_metadata import Attributes

_IMMUTABLE_S = 3600.0  # seconds for which the kernel need not ask again: what it was told never changes


class StatAttributes:
    """Modes, owners and times by the mount's options; a node's own `attrs` outrank them. Any thread."""

    def __init__(self, table: NodeTable, options: MountOptions) -> None:
        self._table = table
        self.ttl = options.ttl
        self.uid = options.uid
        self.gid = options.gid
        self.file_mode = stat.S_IFREG | 0o666 & ~options.umask
        self.folder_mode = stat.S_IFDIR | 0o777 & ~options.umask
        self.link_mode = stat.S_IFLNK | 0o777
        # A node is one version: where all attributes are from the listing, they never change.
        self.lasting = max(_IMMUTABLE_S, options.ttl) if options.metadata == "listing" else options.ttl

    def of(self, found: NamedNode) -> Attr:
        """Of any name."""
        node = found.node
        if found.kind == FOLDER:
            folder = self._table.folders.get(found.id)
            mtime = folder.mtime_ns if folder is not None else self._table.born_ns
            own = node.attrs if node is not None else None
            attr = self._with(Attr(found.id, 4096, mtime, self.folder_mode, 2, self.uid, self.gid), own)
            changed = folder.changed_ns if folder is not None else 0
            return attr if changed <= attr.mtime_ns else attr._replace(mtime_ns=changed)
        mode = self.link_mode if found.kind == LINK else self.file_mode
        if node is None:
            return Attr(found.id, found.size, self._time_ns(found.mtime_us), mode, 1, self.uid, self.gid)
        staged = node.staged  # another thread may take it away
        links = 1 if node.linked else 0
        plain = Attr(found.id, node.size, self._time_ns(node.mtime_us), mode, links, self.uid, self.gid)
        if staged is None:
            return self._with(plain, node.attrs)
        size, attrs = staged.shown()
        return self._with(plain._replace(size=size), attrs)

    def listed(self, page: ListingPage, index: int, number: int) -> Attr:
        """Of a file or link that has no node of its own; as `of`, without making objects for it."""
        mode = self.link_mode if page.kinds[index] == LINK else self.file_mode
        return Attr(number, page.sizes[index], self._time_ns(page.mtimes[index]), mode, 1, self.uid, self.gid)

    def folder(self, folder: FolderNode) -> Attr:
        """Of a folder that something was looked up in."""
        if folder.parent is None:
            return Attr(wire.ROOT, 4096, folder.mtime_ns, self.folder_mode, 2, self.uid, self.gid)
        return self.of(self._table.get(folder.id))

    def valid(self, found: NamedNode) -> float:
        """For how many seconds the kernel may trust the attributes."""
        return self.ttl if found.kind == FOLDER or found.node is not None else self.lasting

    def _time_ns(self, mtime_us: int) -> int:
        """A file for which the store has no time is as old as the mount, as a folder is."""
        return mtime_us * 1000 if mtime_us else self._table.born_ns

    def _with(self, attr: Attr, own: Attributes | None) -> Attr:
        """The same, where a file or folder has values of its own."""
        if own is None:
            return attr
        return attr._replace(
            mtime_ns=attr.mtime_ns if own.mtime_ns is None else own.mtime_ns,
            mode=attr.mode if own.mode is None else stat.S_IFMT(attr.mode) | own.mode & 0o7777,
            uid=attr.uid if own.uid is None else own.uid,
            gid=attr.gid if own.gid is None else own.gid,
        )
