"""The kernel's node ids: which names have one, how often the kernel knows each, and what goes once it forgets them.

Ids of names that a listing gave are arithmetic (see `listing_pages`). A `OwnNode` object exists only for what a listing
does not tell: names asked for singly, files that are being written, what was renamed.
"""

from __future__ import annotations

import errno
import itertools
import threading
import time
from typing import TYPE_CHECKING

from headrace.mount.kernel import wire
from headrace.mount.names.listing_pages import FOLDER, MOST, SHIFT, ListingPage
from headrace.mount.names.nodes import FolderNode, NamedNode, OwnNode
from headrace.store.protocol import ObjectInfo

if TYPE_CHECKING:
    from headrace.mount.names.folder_listing import FolderListing
    from headrace.mount.names.node_record import NodeRecord

_MASK = MOST - 1
_SWEPT = 4096  # nodes looked at in one sweep, under the lock
_NO_PAGE = (None, None)


class NodeTable:
    """All nodes of a mount. Any thread; `lock` is held for microseconds only, never while waiting.

    `most`: nodes of names that no listing has, before the kernel is asked to forget some (see `sweep`). `record`:
    of what the next server of this mount has to know; None: there will be none.
    """

    def __init__(self, root: str, most: int = 100_000, record: NodeRecord | None = None) -> None:
        self._most = most
        self.record = record
        self.lock = threading.RLock()
        self.born_ns = time.time_ns()
        self.root = FolderNode(wire.ROOT, None, b"", self.born_ns, root)
        self.folders: dict[int, FolderNode] = {wire.ROOT: self.root}
        self.nodes: dict[int, OwnNode] = {}
        self.pages: dict[int, tuple[ListingPage, FolderNode]] = {}
        """By serial number, each with the folder that it is of."""
        self._serial = record.first >> SHIFT if record is not None else 0
        self._idle: dict[int, OwnNode] = {}
        """Nodes that the kernel has forgotten and that stay, since no listing has them yet."""

    @property
    def first_number(self) -> int:
        """Handles count from here on, so that none equals a handle of an earlier server."""
        return self.record.first if self.record is not None else 0

    def number(self) -> int:
        """A new node id. Under the lock."""
        self._serial += 1
        return self._serial << SHIFT

    def enrol(self, page: ListingPage, folder: FolderNode) -> None:
        """Give a new page of a folder its serial number. Under the lock."""
        self._serial += 1
        page.serial = self._serial
        self.pages[page.serial] = page, folder

    def get(self, number: int) -> NamedNode:
        """What a node id stands for; not for the root.

        Raises:
            OSError: ESTALE, it stands for nothing (any more).
        """
        node = self.nodes.get(number)
        if node is not None:
            return NamedNode.of(node)
        page, folder = self.pages.get(number >> SHIFT, _NO_PAGE)
        index = number & _MASK
        if page is None or folder is None or index >= len(page):
            raise OSError(errno.ESTALE, "unknown node")
        return NamedNode.on_page(folder, page, index, number)

    def to_open(self, number: int) -> NamedNode:
        """As `get`, of what is to be opened.

        Raises:
            OSError: ESTALE, an earlier server had it open: how, only the kernel knows. It looks the name up again, and
                opens the node that it gets then.
        """
        found = self.get(number)
        if found.node is not None and found.node.earlier:
            raise OSError(errno.ESTALE, "opened by an earlier server")
        return found

    def folder(self, number: int) -> FolderNode:
        """The folder of a node id.

        Raises:
            OSError: ENOTDIR, or ESTALE as `get`.
        """
        folder = self.folders.get(number)
        if folder is not None:
            return folder
        found = self.get(number)
        if found.kind != FOLDER:
            raise OSError(errno.ENOTDIR, "not a folder")
        with self.lock:
            return self.folders.setdefault(number, FolderNode(number, found.folder, found.name, self.born_ns))

    def has(self, found: NamedNode) -> bool:
        """Whether its id still stands for the name. Under the lock."""
        if found.node is None:
            return found.id >> SHIFT in self.pages
        return self.nodes.get(found.id) is found.node

    def looked_up(self, number: int) -> None:
        """The kernel learns of a node once more. Under the lock."""
        node = self.nodes.get(number)
        if node is not None:
            node.count += 1
            if node.count == 1 and self.record is not None and node.kind == FOLDER:
                self.record.folder(number, node.folder.id, node.name)
            return
        (page, folder), index = self.pages[number >> SHIFT], number & _MASK
        page.counts[index] += 1
        page.known += 1
        if page.counts[index] == 1 and self.record is not None and page.kinds[index] == FOLDER:
            self.record.folder(number, folder.id, page.name(index))

    def node_of(self, folder: FolderNode, page: ListingPage, index: int) -> int:
        """The id of a name of a folder's page; the table has the page from now on. Under the lock."""
        number = page.node(index)
        if number in self.nodes or number >> SHIFT in self.pages:
            return number
        if number >> SHIFT != page.serial:  # the older page that it was carried from went meanwhile
            page.carry(index, page.serial << SHIFT | index)
            number = page.node(index)
        self.pages[page.serial] = page, folder
        return number

    def known(self, page: ListingPage) -> list[int]:
        """Indexes of the names that the kernel knows by the ids they have in this page. Under the lock."""
        if page.ids is None:
            return [index for index, count in enumerate(page.counts) if count]
        return [index for index, number in enumerate(page.ids) if self._count(number)]

    def _count(self, number: int) -> int:
        """How often the kernel knows a node of a page; a name that was carried over is counted in the older page."""
        page, _ = self.pages.get(number >> SHIFT, _NO_PAGE)
        return page.counts[number & _MASK] if page is not None else 0

    def show(self, folder: FolderNode, page: ListingPage, index: int) -> int:
        """The kernel is about to learn of a name of a folder's page; its node id. Under the lock."""
        number = self.node_of(folder, page, index)
        self.looked_up(number)
        return number

    def forget(self, number: int, times: int) -> None:
        """The kernel has dropped a node `times` times. Under the lock."""
        node = self.nodes.get(number)
        if node is not None:
            node.count -= times
            if node.count <= 0:
                if self.record is not None:
                    self.record.drop(number)
                self._drop_node(node)
            return
        page, _ = self.pages.get(number >> SHIFT, _NO_PAGE)
        if page is None or number == wire.ROOT:
            return
        index = number & _MASK
        times = min(times, page.counts[index])
        page.counts[index] -= times
        page.known -= times
        if page.counts[index] == 0 and self.record is not None:
            self.record.drop(number)
        if page.counts[index] == 0 and page.kinds[index] == FOLDER:
            self._drop_folder(number)
        self.retire(page)

    def retire(self, page: ListingPage) -> None:
        """Let go of a page that neither a listing nor the kernel knows. Under the lock."""
        if not page.live and page.known <= 0 and self.pages.pop(page.serial, None) is not None:
            for index, kind in enumerate(page.kinds):
                number = page.serial << SHIFT | index
                if kind == FOLDER and number not in self.nodes:  # listed ahead, and never asked for
                    self._drop_folder(number)

    def release(self, listing: FolderListing, successor: FolderListing | None = None) -> None:
        """A listing is no longer used; pages that its successor shares stay. Under the lock."""
        shared = {id(page) for page in successor.pages} if successor is not None else set[int]()
        for page in listing.pages:
            if id(page) not in shared:
                page.live = False
                self.retire(page)

    def add(self, folder: FolderNode, name: bytes, kind: int, number: int | None = None) -> OwnNode:
        """A node of its own for a name, in place of what was known of it. Under the lock.

        Its folder has one too from then on, and keeps it as long: what was just written must not be looked for below
        another id, in a listing that is older.
        """
        if folder.parent is not None and folder.id not in self.nodes:
            self._promote(folder.id, folder.parent, folder.name, FOLDER)
        node = OwnNode(self.number() if number is None else number, folder, name, kind)
        folder.own[name] = node
        folder.gone.pop(name, None)
        self.nodes[node.id] = node
        return node

    def promote(self, found: NamedNode, ttl: float) -> OwnNode:
        """Give a name a node object of its own under the id it has. Under the lock."""
        if found.node is not None:
            return found.node
        node = self._promote(found.id, found.folder, found.name, found.kind)
        node.learn(ObjectInfo("", found.size, found.etag, found.mtime_us), ttl)
        return node

    def _promote(self, number: int, folder: FolderNode, name: bytes, kind: int) -> OwnNode:
        node = self.add(folder, name, kind, number)
        page, _ = self.pages.get(number >> SHIFT, _NO_PAGE)
        if page is not None:  # what the kernel knows of it is counted here from now on
            index = number & _MASK
            node.count, page.counts[index] = page.counts[index], 0
            page.known -= node.count
        return node

    def remove(self, folder: FolderNode, name: bytes) -> None:
        """We have removed a name; open handles on its node go on. Under the lock."""
        node = folder.own.pop(name, None)
        if node is not None:
            node.linked = False
        if _may_tell(folder.listing, name):
            folder.gone[name] = time.monotonic()
        folder.touched()

    def tidy(self, folder: FolderNode, started: float) -> None:
        """A listing begun at `started` is complete: drop nodes that only repeat it. Under the lock."""
        for name in [n for n, when in folder.gone.items() if when < started or not _may_tell(folder.listing, n)]:
            del folder.gone[name]
        for node in list(folder.own.values()):
            if node.count <= 0 and node.staged is None and node.learned < started and not self._anchors(node):
                self._let_go(node)
        self._release(folder)

    def size(self) -> int:
        """Names held in pages."""
        return sum(len(page) for page, _ in list(self.pages.values()))

    def sweep(self) -> list[OwnNode]:
        """Let nodes go that the kernel has forgotten, once their folder's listing is not trusted any more: all in turn,
        a few at a time. Returns those that it has to forget before there are no more than there may be: the oldest, of
        files that nobody writes to. Now and then; under the lock.
        """
        for node in list(itertools.islice(self._idle.values(), _SWEPT)):
            del self._idle[node.id]  # it comes last where it is kept
            if self.nodes.get(node.id) is node and node.count <= 0:
                self._drop_node(node)
        known = (node for node in self.nodes.values() if node.count > 0 and node.kind != FOLDER and node.staged is None)
        return list(itertools.islice(known, max(len(self.nodes) - len(self._idle) - self._most, 0)))

    def _drop_node(self, node: OwnNode) -> None:
        """The kernel does not know it. While a listing that is trusted is older than what we did ourselves it stays all
        the same, until there is a newer one, or there are too many.
        """
        listing = node.folder.listing
        if node.folder.own.get(node.name) is node:
            lacking = listing if listing is not None and node.learned >= listing.started else None
            written = node.staged is not None and node.staged.fd >= 0
            if written or (lacking is not None and lacking.fresh and len(self.nodes) <= self._most):
                self._idle[node.id] = node
                return
            if lacking is not None and not self._anchors(node):
                lacking.lacks()
        if not self._anchors(node):
            self._let_go(node)
            self._release(node.folder)

    def _anchors(self, node: OwnNode) -> bool:
        """Whether names of our own lie below a folder: they are found by the folder's id."""
        folder = self.folders.get(node.id) if node.kind == FOLDER else None
        return folder is not None and bool(folder.own)

    def _let_go(self, node: OwnNode) -> None:
        self.nodes.pop(node.id, None)
        self._idle.pop(node.id, None)
        if node.folder.own.get(node.name) is node:
            del node.folder.own[node.name]
        if node.kind == FOLDER:
            self._drop_folder(node.id)

    def _release(self, folder: FolderNode) -> None:
        """Drop a folder's node, where only a name of our own below it was a reason to keep it."""
        node = self.nodes.get(folder.id)
        if not folder.own and node is not None and node.count <= 0:
            self._drop_node(node)

    def _drop_folder(self, number: int) -> None:
        folder = self.folders.get(number)
        if folder is None or folder.own:
            return
        del self.folders[number]
        listing, folder.listing = folder.listing, None
        if listing is not None:
            self.release(listing)


def _may_tell(listing: FolderListing | None, name: bytes) -> bool:
    """Whether a folder's listing shows a name, or is under way and may. Under the table's lock."""
    return listing is not None and (not listing.ended or listing.find(name) is not None)
