"""What a rename does to the nodes, once the names have changed in the store."""

from __future__ import annotations

import errno

from headrace.mount.names.listing_pages import FOLDER
from headrace.mount.names.name_lookup import NameLookup
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, NamedNode, OwnNode


def check_rename(found: NamedNode, there: NamedNode | None, *, replace: bool) -> None:
    """Refuse what rename(2) refuses by the kinds of the two names.

    Raises:
        OSError: EEXIST, EISDIR, ENOTDIR.
    """
    if there is None:
        return
    if not replace:
        raise OSError(errno.EEXIST, "exists")
    if there.kind == FOLDER and found.kind != FOLDER:
        raise OSError(errno.EISDIR, "a folder")
    if found.kind == FOLDER and there.kind != FOLDER:
        raise OSError(errno.ENOTDIR, "not a folder")


def move(table: NodeTable, names: NameLookup, found: NamedNode, folder: FolderNode, name: bytes, ttl: float) -> OwnNode:
    """`found` is called `name` in `folder` now. Its node stays, so open files and folders stay what they are."""
    with table.lock:
        node = table.promote(found, ttl)
        table.remove(found.folder, found.name)
        folder.own[name] = node
        node.linked = True
        folder.gone.pop(name, None)
        folder.touched()
        node.folder, node.name = folder, name
        node.trust(ttl)
        if node.kind != FOLDER:
            return node
        moved = table.folders.setdefault(node.id, FolderNode(node.id, folder, name, table.born_ns))
        moved.parent, moved.name = folder, name
        if table.record is not None and node.count > 0:
            table.record.folder(node.id, folder.id, name)
        below = [each for each in table.folders.values() if _is_below(each, moved)]
        for each in below:
            each.attached = None
            if each.listing is not None:
                each.listing.doubt()  # the copies may have other versions
    for each in below:
        names.places.of(each)
    return node


def _is_below(folder: FolderNode, top: FolderNode) -> bool:
    each: FolderNode | None = folder
    while each is not None:
        if each is top:
            return True
        each = each.parent
    return False
