"""What the kernel's node ids stand for: one version of one name in one folder.

Ids of names that a listing gave are arithmetic (see `pages`); a `Node` object exists only for what a listing does
not tell: names asked for singly, files of our own that are being written, what was renamed. A name whose object
changes gets a new id, so pages that the kernel keeps under an id are always of one version, and an open handle never
mixes two.
"""

from __future__ import annotations

import errno
import itertools
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from headrace.mount.kernel import wire
from headrace.mount.names.listing_pages import FILE, FOLDER, LINK, LINK_SUFFIX, MOST, SHIFT, Page
from headrace.store.protocol import ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.mount.names.folder_listing import Listing
    from headrace.mount.names.node_record import Kept
    from headrace.mount.write_back.object_metadata import Attributes
    from headrace.mount.write_back.staged_file import StagedFile

_MASK = MOST - 1
_SWEPT = 4096


class Place(NamedTuple):
    """Where a folder's keys begin: a store and a prefix ("" or ending in ``/``). `read_only`: as it is attached."""

    store: Store
    prefix: str
    read_only: bool


class Folder:
    """A folder that something was looked up in. `path` is that of the namespace, or a URL.

    `own`: nodes that say more than the listing does. `gone`: names we deleted and the listing tells of, or still may,
    and when (monotonic seconds): a listing begun before that does not count for them. Changes are made under the
    table's lock.
    """

    __slots__ = (
        "__weakref__", "asked", "attached", "changed_ns", "gone", "id", "listing", "mtime_ns", "name", "own", "parent",
        "place", "root",
    )  # fmt: skip

    def __init__(self, number: int, parent: Folder | None, name: bytes, mtime_ns: int, root: str = "") -> None:
        self.id = number
        self.parent = parent
        self.name = name
        self.root = root
        self.place: Place | None = None
        self.attached: frozenset[str] | None = None
        self.listing: Listing | None = None
        self.own: dict[bytes, Node] = {}
        self.gone: dict[bytes, float] = {}
        self.asked = 0
        self.mtime_ns = mtime_ns
        self.changed_ns = 0
        """When its content has changed, as far as this mount has seen, since somebody gave it a time."""

    @property
    def path(self) -> str:
        """Its path or URL, without a slash at the end but for ``/`` itself."""
        if self.parent is None:
            return self.root
        return self.parent.child(self.name)

    def child(self, name: bytes) -> str:
        """The path of a name in here."""
        return f"{self.path.rstrip('/')}/{name.decode('utf-8', 'surrogateescape')}"

    def touched(self) -> None:
        """Its content has changed: the kernel sees so by its time."""
        self.mtime_ns = self.changed_ns = max(time.time_ns(), self.mtime_ns + 1)


class Node:
    """A name that no page tells of, or more than a page does.

    `told`, `until`: when that was learned and how long it is trusted (monotonic seconds). `staged`: the local file that
    is being written under this name. `attrs`: mode, owner and times of its own. `linked`: False: the name is gone, by
    our own doing, and what it stood for is still open. `copied`: the store has copied to this name what was written,
    and has not told yet which version that is. `before`: a file that an earlier server of this mount has opened; it is
    read on, and not opened again.
    """

    __slots__ = (
        "attrs", "before", "copied", "count", "etag", "folder", "id", "kind", "linked", "mtime_us", "name", "size",
        "staged", "told", "until",
    )  # fmt: skip

    def __init__(self, number: int, folder: Folder, name: bytes, kind: int) -> None:
        self.id = number
        self.folder = folder
        self.name = name
        self.kind = kind
        self.linked = True
        self.copied = False
        self.before = False
        self.size = self.mtime_us = self.count = 0
        self.etag: str | None = None
        self.told = self.until = 0.0
        self.staged: StagedFile | None = None
        self.attrs: Attributes | None = None

    def tells(self, info: ObjectInfo, ttl: float) -> None:
        """Take over what the store has just said."""
        self.size, self.mtime_us, self.etag = info.size, info.mtime_us, info.etag
        self.copied = False
        self.trust(ttl)

    def trust(self, ttl: float) -> None:
        """It is so now, and is trusted for `ttl` seconds."""
        self.told = time.monotonic()
        self.until = self.told + ttl


class Known(NamedTuple):
    """A name as it is now. `node`: its object, where it has one."""

    id: int
    folder: Folder
    name: bytes
    kind: int
    size: int
    mtime_us: int
    etag: str | None
    node: Node | None

    @property
    def path(self) -> str:
        """Its path in the namespace."""
        return self.folder.child(self.name)

    @property
    def key(self) -> str:
        """The object's key in the folder's store."""
        assert self.folder.place is not None
        name = self.name.decode("utf-8", "surrogateescape")
        return self.folder.place.prefix + name + (LINK_SUFFIX if self.kind == LINK else "")

    @property
    def info(self) -> ObjectInfo:
        """The object version."""
        return ObjectInfo(self.key, self.size, self.etag, self.mtime_us)


class Table:
    """All nodes of a mount. Any thread; `lock` is held for microseconds only, never while waiting.

    `most`: nodes of names that no listing tells of, before the kernel is asked to forget some (see `sweep`). `kept`:
    told of what the next server of this mount has to know; None: there will be none.
    """

    def __init__(self, root: str, most: int = 100_000, kept: Kept | None = None) -> None:
        self._most = most
        self.kept = kept
        self.lock = threading.RLock()
        self.born_ns = time.time_ns()
        self.root = Folder(wire.ROOT, None, b"", self.born_ns, root)
        self.folders: dict[int, Folder] = {wire.ROOT: self.root}
        self.nodes: dict[int, Node] = {}
        self.pages: dict[int, Page] = {}
        self._serial = kept.first >> SHIFT if kept is not None else 0
        self._idle: dict[int, Node] = {}
        """Nodes that the kernel has forgotten and that are kept, since no listing tells of them yet."""

    @property
    def first_number(self) -> int:
        """From which on handles count, so that none is one that an earlier server has given."""
        return self.kept.first if self.kept is not None else 0

    def number(self) -> int:
        """A new node id. Under the lock."""
        self._serial += 1
        return self._serial << SHIFT

    def enrol(self, page: Page) -> None:
        """Give a new page its serial number. Under the lock."""
        self._serial += 1
        page.serial = self._serial
        self.pages[page.serial] = page

    def get(self, number: int) -> Known:
        """What a node id stands for; not for the root.

        Raises:
            OSError: ESTALE, it stands for nothing (any more).
        """
        node = self.nodes.get(number)
        if node is not None:
            return known(node)
        page = self.pages.get(number >> SHIFT)
        index = number & _MASK
        if page is None or index >= len(page):
            raise OSError(errno.ESTALE, "unknown node")
        return at(page, index, number)

    def to_open(self, number: int) -> Known:
        """As `get`, of what is to be opened.

        Raises:
            OSError: ESTALE, an earlier server had it open: how, only the kernel knows. It looks the name up again, and
                opens the node that it gets then.
        """
        found = self.get(number)
        if found.node is not None and found.node.before:
            raise OSError(errno.ESTALE, "opened by an earlier server")
        return found

    def folder(self, number: int) -> Folder:
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
            return self.folders.setdefault(number, Folder(number, found.folder, found.name, self.born_ns))

    def has(self, found: Known) -> bool:
        """Whether its id still stands for it. Under the lock."""
        if found.node is None:
            return found.id >> SHIFT in self.pages
        return self.nodes.get(found.id) is found.node

    def looked_up(self, number: int) -> None:
        """The kernel was told of a node. Under the lock."""
        node = self.nodes.get(number)
        if node is not None:
            node.count += 1
            if node.count == 1 and self.kept is not None and node.kind == FOLDER:
                self.kept.folder(number, node.folder.id, node.name)
            return
        page, index = self.pages[number >> SHIFT], number & _MASK
        page.counts[index] += 1
        page.known += 1
        if page.counts[index] == 1 and self.kept is not None and page.kinds[index] == FOLDER:
            self.kept.folder(number, page.folder.id, page.name(index))

    def node_of(self, page: Page, index: int) -> int:
        """The id of a name of a page, which is in the table from now on. Under the lock."""
        number = page.node(index)
        if number in self.nodes or number >> SHIFT in self.pages:
            return number
        if number >> SHIFT != page.serial:  # the older page that it was carried from went meanwhile
            page.carry(index, page.serial << SHIFT | index)
            number = page.node(index)
        self.pages[page.serial] = page
        return number

    def known(self, page: Page) -> list[int]:
        """Where the names are that the kernel knows by the ids they have in this page. Under the lock."""
        if page.ids is None:
            return [index for index, count in enumerate(page.counts) if count]
        return [index for index, number in enumerate(page.ids) if self._count(number)]

    def _count(self, number: int) -> int:
        """How often the kernel knows a node that pages tell of; what is carried over is counted in the older page."""
        page = self.pages.get(number >> SHIFT)
        return page.counts[number & _MASK] if page is not None else 0

    def show(self, page: Page, index: int) -> int:
        """Tell the kernel of a name of a page; its node id. Under the lock."""
        number = self.node_of(page, index)
        self.looked_up(number)
        return number

    def forget(self, number: int, times: int) -> None:
        """The kernel has dropped a node as often as that. Under the lock."""
        node = self.nodes.get(number)
        if node is not None:
            node.count -= times
            if node.count <= 0:
                if self.kept is not None:
                    self.kept.drop(number)
                self._drop_node(node)
            return
        page = self.pages.get(number >> SHIFT)
        if page is None or number == wire.ROOT:
            return
        index = number & _MASK
        times = min(times, page.counts[index])
        page.counts[index] -= times
        page.known -= times
        if page.counts[index] == 0 and self.kept is not None:
            self.kept.drop(number)
        if page.counts[index] == 0 and page.kinds[index] == FOLDER:
            self._drop_folder(number)
        self.retire(page)

    def retire(self, page: Page) -> None:
        """Let go of a page that neither a listing nor the kernel knows. Under the lock."""
        if not page.live and page.known <= 0 and self.pages.pop(page.serial, None) is not None:
            for index, kind in enumerate(page.kinds):
                number = page.serial << SHIFT | index
                if kind == FOLDER and number not in self.nodes:  # listed ahead, and never asked for
                    self._drop_folder(number)

    def add(self, folder: Folder, name: bytes, kind: int, number: int | None = None) -> Node:
        """A node of its own for a name, in place of what was known of it. Under the lock.

        Its folder has one too from then on, and keeps it as long: what was just written must not be looked for below
        another id, in a listing that is older.
        """
        if folder.parent is not None and folder.id not in self.nodes:
            self._promote(folder.id, folder.parent, folder.name, FOLDER)
        node = Node(self.number() if number is None else number, folder, name, kind)
        folder.own[name] = node
        folder.gone.pop(name, None)
        self.nodes[node.id] = node
        return node

    def promote(self, found: Known, ttl: float) -> Node:
        """Give a name a node object of its own under the id it has. Under the lock."""
        if found.node is not None:
            return found.node
        node = self._promote(found.id, found.folder, found.name, found.kind)
        node.tells(ObjectInfo("", found.size, found.etag, found.mtime_us), ttl)
        return node

    def _promote(self, number: int, folder: Folder, name: bytes, kind: int) -> Node:
        node = self.add(folder, name, kind, number)
        page = self.pages.get(number >> SHIFT)
        if page is not None:  # what the kernel knows of it is counted here from now on
            index = number & _MASK
            node.count, page.counts[index] = page.counts[index], 0
            page.known -= node.count
        return node

    def remove(self, folder: Folder, name: bytes) -> None:
        """A name is gone, by our own doing; handles on what it stood for go on. Under the lock."""
        node = folder.own.pop(name, None)
        if node is not None:
            node.linked = False
        if _may_tell(folder.listing, name):
            folder.gone[name] = time.monotonic()
        folder.touched()

    def tidy(self, folder: Folder, started: float) -> None:
        """A listing begun then is complete: what it tells is not held twice. Under the lock."""
        for name in [n for n, when in folder.gone.items() if when < started or not _may_tell(folder.listing, n)]:
            del folder.gone[name]
        for node in list(folder.own.values()):
            if node.count <= 0 and node.staged is None and node.told < started and not self._anchors(node):
                self._let_go(node)
        self._release(folder)

    def size(self) -> int:
        """Names held in pages."""
        return sum(map(len, list(self.pages.values())))

    def sweep(self) -> list[Node]:
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

    def _drop_node(self, node: Node) -> None:
        """The kernel does not know it. While a listing that is trusted is older than what we did ourselves it stays all
        the same, until there is a newer one, or there are too many.
        """
        listing = node.folder.listing
        if node.folder.own.get(node.name) is node:
            lacking = listing if listing is not None and node.told >= listing.started else None
            written = node.staged is not None and node.staged.fd >= 0
            if written or (lacking is not None and lacking.fresh and len(self.nodes) <= self._most):
                self._idle[node.id] = node
                return
            if lacking is not None and not self._anchors(node):
                lacking.lacks()
        if not self._anchors(node):
            self._let_go(node)
            self._release(node.folder)

    def _anchors(self, node: Node) -> bool:
        """Whether names of our own lie below, which are found by its id."""
        folder = self.folders.get(node.id) if node.kind == FOLDER else None
        return folder is not None and bool(folder.own)

    def _let_go(self, node: Node) -> None:
        self.nodes.pop(node.id, None)
        self._idle.pop(node.id, None)
        if node.folder.own.get(node.name) is node:
            del node.folder.own[node.name]
        if node.kind == FOLDER:
            self._drop_folder(node.id)

    def _release(self, folder: Folder) -> None:
        """A folder that may just have lost its last name of our own need not be known for its sake."""
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
            for page in listing.pages:
                page.live = False
                self.retire(page)


def _may_tell(listing: Listing | None, name: bytes) -> bool:
    """Whether a folder's listing shows a name, or is under way and may. Under the table's lock."""
    return listing is not None and (not listing.ended or listing.find(name) is not None)


def known(node: Node) -> Known:
    """What a node of its own stands for."""
    return Known(node.id, node.folder, node.name, node.kind, node.size, node.mtime_us, node.etag, node)


def at(page: Page, index: int, number: int) -> Known:
    """What a name of a page stands for."""
    kind = page.kinds[index]
    return Known(
        number, page.folder, page.name(index), FILE if kind not in (FOLDER, LINK) else kind,
        page.sizes[index], page.mtimes[index], page.etag(index), None,
    )  # fmt: skip
