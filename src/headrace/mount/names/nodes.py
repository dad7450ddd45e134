"""Names with node ids: folders, nodes of their own, and what a name is now.

A node id stands for one version of one name in one folder. A name whose object changes gets a new id. So the pages that
the kernel keeps under an id are always of one version, and an open handle never mixes two.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from headrace.mount.names.listing_pages import FILE, FOLDER, LINK, ListingPage
from headrace.mount.write_back.object_metadata import LINK_SUFFIX
from headrace.store.protocol import ObjectInfo, Store

if TYPE_CHECKING:
    from headrace.mount.names.folder_listing import FolderListing
    from headrace.mount.write_back.object_metadata import Attributes
    from headrace.mount.write_back.staged_file import StagedFile


class FolderPlace(NamedTuple):
    """Where a folder's keys begin: a store and a prefix ("" or ending in ``/``). `read_only`: as it is attached."""

    store: Store
    prefix: str
    read_only: bool


class FolderNode:
    """A folder that something was looked up in. `path` is that of the namespace, or a URL.

    `own`: nodes that say more than the listing does. `gone`: names we deleted that the listing has, or still may get,
    and when (monotonic seconds): a listing begun before that does not count for them. Changes are made under the
    table's lock.
    """

    __slots__ = (
        "__weakref__", "asked", "attached", "changed_ns", "gone", "id", "listing", "mtime_ns", "name", "own", "parent",
        "place", "root",
    )  # fmt: skip

    def __init__(self, number: int, parent: FolderNode | None, name: bytes, mtime_ns: int, root: str = "") -> None:
        self.id = number
        self.parent = parent
        self.name = name
        self.root = root
        self.place: FolderPlace | None = None
        self.attached: frozenset[str] | None = None
        self.listing: FolderListing | None = None
        self.own: dict[bytes, OwnNode] = {}
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


class OwnNode:
    """A name that no listing's page has, or of which more is known than a page says.

    `learned`, `until`: when the store said so, and how long that is trusted (monotonic seconds). `staged`: the local
    file that is being written under this name. `attrs`: mode, owner and times of its own. `linked`: False: the name is
    gone, by our own doing, and what it stood for is still open. `copied`: the store has copied to this name what was
    written, and has not said yet which version that is. `earlier`: a file that an earlier server of this mount has
    opened; it is read on, and not opened again.
    """

    __slots__ = (
        "attrs",
        "copied",
        "count",
        "earlier",
        "etag",
        "folder",
        "id",
        "kind",
        "learned",
        "linked",
        "mtime_us",
        "name",
        "size",
        "staged",
        "until",
    )  # fmt: skip

    def __init__(self, number: int, folder: FolderNode, name: bytes, kind: int) -> None:
        self.id = number
        self.folder = folder
        self.name = name
        self.kind = kind
        self.linked = True
        self.copied = False
        self.earlier = False
        self.size = self.mtime_us = self.count = 0
        self.etag: str | None = None
        self.learned = self.until = 0.0
        self.staged: StagedFile | None = None
        self.attrs: Attributes | None = None

    def learn(self, info: ObjectInfo, ttl: float) -> None:
        """Take over what the store has just said of the object."""
        self.size, self.mtime_us, self.etag = info.size, info.mtime_us, info.etag
        self.copied = False
        self.trust(ttl)

    def trust(self, ttl: float) -> None:
        """It is so now, and is trusted for `ttl` seconds."""
        self.learned = time.monotonic()
        self.until = self.learned + ttl


class NamedNode(NamedTuple):
    """A name as it is now. `node`: its object, where it has one."""

    id: int
    folder: FolderNode
    name: bytes
    kind: int
    size: int
    mtime_us: int
    etag: str | None
    node: OwnNode | None

    @staticmethod
    def of(node: OwnNode) -> NamedNode:
        """What a node of its own stands for."""
        return NamedNode(node.id, node.folder, node.name, node.kind, node.size, node.mtime_us, node.etag, node)

    @staticmethod
    def on_page(folder: FolderNode, page: ListingPage, index: int, number: int) -> NamedNode:
        """What a name of a listing's page stands for."""
        kind = page.kinds[index]
        return NamedNode(
            number, folder, page.name(index), FILE if kind not in (FOLDER, LINK) else kind,
            page.sizes[index], page.mtimes[index], page.etag(index), None,
        )  # fmt: skip

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
