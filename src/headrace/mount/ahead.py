"""Folders listed ahead: when the folders of a folder are read one after another, the next ones are asked for too.

A walk over many small folders otherwise waits for one LIST at a time. Only small neighbours are evidence, so that
whoever looks into two folders of a million keys does not cause the listing of a third.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.mount.pages import FOLDER

if TYPE_CHECKING:
    from headrace.mount.folders import Folders
    from headrace.mount.inodes import Folder, Table
    from headrace.mount.listing import Listing

_EVIDENCE = 2
"""Small folders read one after another before the next are asked for."""
_SMALL = 2000
"""Names in a folder that is small: what stores answer with at once, and some."""
_MOST = 8
_LOOK = 512
"""Names looked at for the next folders."""
_MOST_WALKS = 256


class _Walk:
    """How the folders of one folder are being read. `last`: the one opened before."""

    __slots__ = ("last", "small", "window")

    def __init__(self) -> None:
        self.last: Folder | None = None
        self.small = 0
        self.window = 1


class Ahead:
    """Called by the thread that answers OPENDIR; never blocks."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._table: Table = folders.table
        self._walks: OrderedDict[int, _Walk] = OrderedDict()

    def opened(self, folder: Folder) -> None:
        """A folder is being read; its own listing has begun."""
        parent = folder.parent
        if parent is None or parent.listing is None or not parent.listing.fresh:
            return
        walk = self._walk(parent)
        last, walk.last = walk.last, folder
        if last is None or last is folder:
            return
        if not _is_small(last.listing):
            walk.small, walk.window = 0, 1
            return
        walk.small += 1
        if walk.small < _EVIDENCE:
            return
        walk.window = min(walk.window * 2, _MOST)
        for number in self._next(parent.listing, folder, walk.window):
            following = self._table.folder(number)
            if following.listing is None or not following.listing.fresh:
                self._folders.listing(following)

    def _walk(self, parent: Folder) -> _Walk:
        walk = self._walks.get(parent.id)
        if walk is None:
            walk = self._walks[parent.id] = _Walk()
            if len(self._walks) > _MOST_WALKS:
                self._walks.popitem(last=False)
        return walk

    def _next(self, listing: Listing, folder: Folder, count: int) -> list[int]:
        """The nodes of the folders that follow."""
        with self._table.lock:
            return [number for number, _ in zip(self._following(listing, folder), range(count), strict=False)]

    def _following(self, listing: Listing, folder: Folder) -> Iterator[int]:
        found = listing.find(folder.name)
        if found is None:
            return
        page, index = found
        left = _LOOK
        for each in listing.pages[listing.position(page) :]:
            for at in range(index + 1, min(len(each), index + 1 + left)):
                if each.kinds[at] == FOLDER:
                    own = self._folders.own(each, at)
                    yield own.id if own is not None else each.node(at)
            left -= len(each) - index - 1
            if left <= 0:
                return
            index = -1


def _is_small(listing: Listing | None) -> bool:
    return listing is not None and listing.complete and listing.count() <= _SMALL
