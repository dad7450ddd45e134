"""NameLookup listed ahead: when the folders of a folder are read one after another, the next ones are asked for too.

A walk over many small folders otherwise waits for one LIST at a time. Only small neighbours are evidence, so that
whoever looks into two folders of a million keys does not cause the listing of a third. Where a page of a LIST holds
several such folders, they are asked for together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from headrace.mount.names.fetch_many_listings import PAGE
from headrace.mount.names.listing_pages import FOLDER

if TYPE_CHECKING:
    from headrace.mount.names.folder_listing import FolderListing
    from headrace.mount.names.name_lookup import NameLookup
    from headrace.mount.names.node_table import NodeTable
    from headrace.mount.names.nodes import FolderNode

_EVIDENCE = 2
"""Small folders read one after another before the next are asked for."""
_SMALL = 2000
"""Names in a folder that is small: what stores answer with at once, and some."""
_MOST = 8
"""NameLookup listed ahead, each by itself."""
_LOOK = 512
"""Names looked at for the next folders."""
_MOST_WALKS = 256  # folders whose folders are being read; the one begun first is forgotten
_WORTH = 4
"""Folders whose names fill a page, from which on they are asked for together."""
_MOST_TOGETHER = 256  # folders asked for by one LIST
_MOST_LOTS = 4
"""Such LISTs ahead of the reader, a page each."""


class _FolderWalk:
    """How the folders of one folder are being read.

    `last`: the one opened before. `names`: in the small ones read one after another. `begun`: nodes of those listed
    together and not opened yet; `reached`: the last of them.
    """

    __slots__ = ("begun", "last", "lots", "names", "reached", "small", "window")

    def __init__(self) -> None:
        self.last: FolderNode | None = None
        self.small = self.names = 0
        self.window = self.lots = 1
        self.begun: set[int] = set()
        self.reached: FolderNode | None = None

    def forget(self) -> None:
        self.small = self.names = 0
        self.window = self.lots = 1
        self.begun, self.reached = set(), None


class ListAhead:
    """Called by the thread that answers OPENDIR; never blocks."""

    def __init__(self, names: NameLookup) -> None:
        self._names = names
        self._table: NodeTable = names.table
        self._walks: OrderedDict[int, _FolderWalk] = OrderedDict()

    def opened(self, folder: FolderNode) -> None:
        """A folder is being read; its own listing has begun."""
        parent = folder.parent
        if parent is None or parent.listing is None or not parent.listing.fresh:
            return
        walk = self._walk(parent)
        last, walk.last = walk.last, folder
        if last is None or last is folder:
            return
        count = _names_of_small(last.listing)
        if count < 0:
            walk.forget()
            return
        walk.small += 1
        walk.names += count
        if folder.id in walk.begun:
            walk.begun.discard(folder.id)
        else:
            walk.begun, walk.reached = set(), None
        if walk.small < _EVIDENCE:
            return
        at_once = min(PAGE * walk.small // max(walk.names, 1), _MOST_TOGETHER)
        if at_once >= _WORTH and self._in_order_of_keys(parent):
            self._together(walk, parent, parent.listing, folder, at_once)
            return
        walk.window = min(walk.window * 2, _MOST)
        for following in self._next(parent.listing, folder, walk.window):
            if following.listing is None or not following.listing.fresh:
                self._names.listing(following)

    def _together(
        self, walk: _FolderWalk, parent: FolderNode, listing: FolderListing, folder: FolderNode, at_once: int
    ) -> None:
        """Ask for the next folders by one LIST for each page full of them, so that some are always under way."""
        while len(walk.begun) <= (walk.lots - 1) * at_once:
            some = self._next(listing, walk.reached or folder, at_once)
            plain = [each for each in some if self._is_plain(parent, each)]
            if not plain:
                return
            walk.reached = some[-1]
            walk.begun.update(each.id for each in some)
            self._names.together(parent, plain)
        walk.lots = min(walk.lots + 1, _MOST_LOTS)

    def _in_order_of_keys(self, parent: FolderNode) -> bool:
        """Whether the store lists keys without delimiter from some key on, for one LIST; S3 stores do."""
        place = self._names.places.of(parent)
        return place is not None and place.store.url.startswith("s3:")

    def _is_plain(self, parent: FolderNode, folder: FolderNode) -> bool:
        """Whether all keys of a folder are those of its parent's store below its name."""
        above, place = self._names.places.of(parent), self._names.places.of(folder)
        return above is not None and place is not None and place.store is above.store and not folder.attached

    def _walk(self, parent: FolderNode) -> _FolderWalk:
        walk = self._walks.get(parent.id)
        if walk is None:
            walk = self._walks[parent.id] = _FolderWalk()
            if len(self._walks) > _MOST_WALKS:
                self._walks.popitem(last=False)
        return walk

    def _next(self, listing: FolderListing, folder: FolderNode, count: int) -> list[FolderNode]:
        """The folders that follow."""
        with self._table.lock:
            numbers = list(islice(self._following(listing, folder), count))
        return [self._table.folder(number) for number in numbers]

    def _following(self, listing: FolderListing, folder: FolderNode) -> Iterator[int]:
        found, parent = listing.find(folder.name), folder.parent
        if found is None or parent is None:
            return
        page, index = found
        left = _LOOK
        for each in listing.pages[listing.position(page) :]:
            for at in range(index + 1, min(len(each), index + 1 + left)):
                if each.kinds[at] == FOLDER:
                    own = self._names.own(parent, each, at)
                    yield own.id if own is not None else each.node(at)
            left -= len(each) - index - 1
            if left <= 0:
                return
            index = -1


def _names_of_small(listing: FolderListing | None) -> int:
    """How many names a small folder has; -1: it is not small, or not listed."""
    if listing is None or not listing.complete:
        return -1
    count = listing.count()
    return count if count <= _SMALL else -1
