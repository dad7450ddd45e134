"""What a mount shows beside the bucket: files being written, folders that no object holds, and names that are gone.

The operations that write find paths and names here, and say here what the store has of a name once it has changed.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from headrace.base.errors import HeadraceError
from headrace.mount import mount_stats
from headrace.mount.kernel import wire
from headrace.mount.names.listing_pages import FILE, FOLDER, LINK
from headrace.mount.names.nodes import FolderNode, NamedNode, OwnNode
from headrace.mount.write_back.object_metadata import LINK_SUFFIX, Attributes, is_link, link_path
from headrace.mount.write_back.publish_file import outlives_copy

if TYPE_CHECKING:
    from headrace.mount.kernel.kernel_requests import Request
    from headrace.mount.mount_parts import MountParts
    from headrace.mount.write_back.staged_file import StagedFile
    from headrace.mount.write_back.staging import Staging


class WriteOverlay:
    """The `Overlay` of a mount that can be written. Any thread."""

    def __init__(self, parts: MountParts, staging: Staging) -> None:
        self._table = parts.table
        self._names = parts.names
        self._backings = parts.reads.backings
        self._notices = parts.notices
        self._staging = staging
        self._ttl = parts.attributes.ttl

    # for `NameLookup`

    @property
    def hides_any(self) -> bool:
        """Whether any name is gone though its object may still be there."""
        return self._staging.hides_any

    def hides(self, folder: str, name: bytes) -> bool:
        """Whether a name in `folder` is."""
        return self._staging.hides(f"{folder.rstrip('/')}/{name.decode('utf-8', 'surrogateescape')}")

    def find(self, folder: FolderNode, name: bytes) -> OwnNode | None:
        """The node of a staged file, or of a folder that no object holds, under a name that the store lacks."""
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

    def enter(self, folder: FolderNode) -> None:
        """Make nodes for all that is staged in a folder, so that it is listed."""
        for each in self._staging.below(folder.path):
            name = each.path.rpartition("/")[2].encode("utf-8", "surrogateescape")
            if name not in folder.own:
                self.find(folder, name)

    def settle(self, node: OwnNode) -> None:
        """Let a node whose staged file was retired stand for the object that the file has become.

        Where it was renamed after it was published, the store has to say which version that is (`OwnNode.copied`).
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
                node.learn(file.base, self._ttl)
            else:
                node.size, node.attrs = file.shown()
                node.mtime_us, node.etag, node.until = (node.attrs.mtime_ns or 0) // 1000, None, 0.0
                node.copied = node.linked
            node.staged = None
        self._backings.drop(node.id)
        if by_kernel:
            self._notices.pages(node.id)

    # for the operations that write

    def target(self, number: int, name: bytes) -> tuple[FolderNode, str]:
        """A folder and the path of a name to be made in it."""
        folder = self._table.folder(number)
        if number == wire.ROOT and name == mount_stats.FOLDER:
            raise OSError(errno.EACCES, "the mount's own")
        self._names.places.of(folder)
        return folder, folder.child(name)

    def existing(self, request: Request, name: bytes) -> tuple[FolderNode, NamedNode]:
        """The folder of a request, and what a name in it is. Raises OSError ENOENT, WouldBlock, HeadraceError."""
        folder = self._table.folder(request.node)
        self._names.places.of(folder)
        found, _ = self._names.lookup(folder, name, request)
        if found is None:
            raise OSError(errno.ENOENT, "no such name")
        return folder, found

    def hold(self, node: OwnNode) -> StagedFile | None:
        """The staged file of a node, with a handle on it; None: it has just been retired."""
        file = self._staging.hold(store_path(NamedNode.of(node)))
        if file is not None and file is not node.staged:
            file.release()
            file = None
        if file is None:
            self.settle(node)
        return file

    def keep(self, folder: FolderNode) -> None:
        """Give a folder whose last object may just have gone a node of its own, since no listing will have it."""
        if folder.parent is not None and self._staging.made(folder.path) is not None:
            with self._table.lock:
                self._table.promote(self._table.get(folder.id), self._ttl)

    def learn(self, node: OwnNode) -> None:
        """Ask the store which version a name stands for now."""
        found = NamedNode.of(node)
        place = self._names.places.of(found.folder)
        if place is None:
            return
        try:
            info = place.store.head(found.key)
        except HeadraceError:
            node.until = 0.0  # asked again at the next lookup
            return
        with self._table.lock:
            node.learn(info, self._ttl)

    def learn_copied(self, node: OwnNode) -> None:
        """As `learn`, after the store has copied an object to this name, unless the copy has the same ETag."""
        if node.kind != FOLDER and node.staged is None and not outlives_copy(node.etag):
            self.learn(node)


def store_path(found: NamedNode) -> str:
    """The path at which the object of a name is stored."""
    return link_path(found.path) if found.kind == LINK else found.path


def storable_name(name: bytes, kind: int = FILE) -> bytes:
    """A name that can be stored and shown again; `Staging` asks whether its store can hold it.

    Raises:
        OSError: ENAMETOOLONG; EILSEQ, it is not UTF-8; EINVAL, it would be taken for a symbolic link.
    """
    if len(name) > wire.LONGEST_NAME - (len(LINK_SUFFIX) if kind == LINK else 0):
        raise OSError(errno.ENAMETOOLONG, "name too long")
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "a key is Unicode text") from None
    if is_link(text):
        raise OSError(errno.EINVAL, "the ending of symbolic links")
    return name
