"""Notices to the kernel, so that it looks names up again.

A name is *expired*: the kernel looks it up at its next use, and keeps what it has of the name where the node is still
the same. The kernel would forget a name that is invalidated, by itself or by a new epoch, where nobody holds it, and
the name might come back under another inode number. So every name gets a notice of its own, absent names included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.mount.kernel import wire
from headrace.mount.names.listing_pages import FOLDER
from headrace.mount.names.negative_cache import NegativeCache

if TYPE_CHECKING:
    from headrace.mount.kernel.session import FuseSession
    from headrace.mount.names.node_table import NodeTable
    from headrace.mount.names.nodes import NamedNode


class KernelNotices:
    """Any thread. A thread that answers requests sends no notice: the kernel may be waiting for just that thread."""

    def __init__(self, table: NodeTable, session: FuseSession) -> None:
        self._table = table
        self._session = session
        self.absent = NegativeCache()

    def refresh(self) -> None:
        """Have the kernel look every name up again, and drop what it keeps of folders' contents. Returns at once."""
        self._session.waiters.add(self._tell_all)

    def forget(self) -> None:
        """Have the kernel forget the oldest files that take a node of their own, where there are too many."""
        with self._table.lock:
            names = [(node.folder.id, node.name) for node in self._table.sweep()]
        if names:
            self._session.waiters.add(lambda: self._invalidate(names))

    def name(self, found: NamedNode) -> None:
        """Have the kernel look one file up again."""
        notice = wire.inval_entry(found.folder.id, found.name)
        self._session.waiters.add(lambda: self._session.notify(notice))

    def pages(self, node: int) -> bool:
        """Have the kernel drop the pages it holds of a file. False where it does not know the file."""
        return self._session.notify(wire.inval_inode(node, 0, 0))

    def _tell_all(self) -> None:
        later: dict[int, list[bytes]] = {}
        for folder, name, kind in self._names():
            if not self._session.agreed.expires and kind == FOLDER:
                continue  # before Linux 6.2 a folder's own name has to wait for its `ttl`
            if self._is_being_read(folder):
                later.setdefault(folder, []).append(name)
            else:
                self._expire(folder, name)
        for folder in list(self._table.folders):
            self._session.notify(wire.inval_inode(folder))
        for folder, names in later.items():
            self._session.waiters.add(partial(self._expire, folder, *names))

    def _is_being_read(self, number: int) -> bool:
        """Whether a READDIR may be waiting for the store: until its end the kernel takes no notice of the folder."""
        folder = self._table.folders.get(number)
        return folder is not None and folder.listing is not None and not folder.listing.ended

    def _expire(self, folder: int, *names: bytes) -> None:
        for name in names:
            self._session.notify(wire.inval_entry(folder, name, expire=self._session.agreed.expires))

    def _invalidate(self, names: Sequence[tuple[int, bytes]]) -> None:
        for folder, name in names:
            self._session.notify(wire.inval_entry(folder, name))

    def _names(self) -> Iterator[tuple[int, bytes, int]]:
        """All names that the kernel knows something of: the folder's id, the name, and its kind (absent: -1)."""
        table = self._table
        for folder, name in self.absent.take():
            yield folder, name, -1
        with table.lock:
            nodes = [(node.folder.id, node.name, node.kind) for node in table.nodes.values() if node.count > 0]
            pages = list(table.pages.values())
        yield from nodes
        for page, folder in pages:
            with table.lock:
                known = [index for index, count in enumerate(page.counts) if count]
            for index in known:
                yield folder.id, page.name(index), page.kinds[index]
