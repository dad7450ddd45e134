"""The nodes that an earlier server of a mount gave to the kernel, put into the table of the server that takes over."""

from __future__ import annotations

from headrace.mount.names.listing_pages import FILE, FOLDER
from headrace.mount.names.node_record import NodeRecord
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, OwnNode
from headrace.store.protocol import ObjectInfo


def restore_nodes(record: NodeRecord, table: NodeTable) -> None:
    """Give the nodes of earlier servers back to a new table. Call it before any request is answered."""
    with table.lock:
        for number in record.earlier:
            _folder(number, record, table)
        _files(record, table)
    record.earlier = {}


def _folder(number: int, record: NodeRecord, table: NodeTable) -> FolderNode | None:
    """Restore a folder, its ancestors first. None: not all of them are known."""
    if number in table.folders:
        return table.folders[number]
    noted = record.earlier.get(number)
    parent = _folder(noted["parent"], record, table) if noted is not None and "parent" in noted else None
    if noted is None or parent is None:
        return None
    name = noted["name"].encode("utf-8", "surrogateescape")
    node = table.add(parent, name, FOLDER, number)
    node.count = 1  # what the kernel forgets of it is at least that, and all of it
    record.restored(number)
    folder = table.folders[number] = FolderNode(number, parent, name, table.born_ns)
    return folder


def _files(record: NodeRecord, table: NodeTable) -> None:
    """Each file's folder is one beside the tree, of the path that it had: the tree shows new files under new ids."""
    folders: dict[str, FolderNode] = {}
    for number, noted in record.earlier.items():
        if "folder" not in noted:
            continue
        path: str = noted["folder"]
        folder = folders.get(path)
        if folder is None:
            folder = folders[path] = FolderNode(table.number(), None, b"", table.born_ns, path)
        node = OwnNode(number, folder, noted["name"].encode("utf-8", "surrogateescape"), FILE)
        node.learn(ObjectInfo("", noted["size"], noted["etag"], noted["mtime_us"]), 0.0)
        node.earlier, node.count = True, 1
        table.nodes[number] = node
        record.restored(number)
