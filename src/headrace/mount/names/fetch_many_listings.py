"""Many small folders filled from one LIST of all keys below them, instead of a LIST each.

A page of a LIST holds a thousand keys whatever folders they are in. A store lists the keys of one folder together, in
byte order or (SeaweedFS) folder by folder: a folder is whole once another one's key has come, or the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from headrace.base.errors import HeadraceError
from headrace.mount.names.fetch_listing import fetch_listing
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, FolderPlace
from headrace.store import protocol
from headrace.store.protocol import ObjectInfo

PAGE = 1000
"""Keys that stores answer with at once."""
_MOST_PAGES = 3  # of one LIST: longer ones are of folders that are not small


def fetch_many_listings(
    table: NodeTable, place: FolderPlace, names: Collection[str], begun: Sequence[tuple[FolderNode, FolderListing]]
) -> None:
    """Fetch listings of folders below `place`, as far as it goes; on a thread that may wait. The others have not ended.

    Args:
        table: the mount's nodes.
        place: where the parent's keys begin.
        names: folders of the parent, without the slash: the LIST ends at the first that is not one of these.
        begun: some of them, each with a listing that nobody has fetched yet.
    """
    waiting = {folder.name.decode("utf-8", "surrogateescape"): (folder, listing) for folder, listing in begun}
    with suppress(HeadraceError):  # a folder that is then listed by itself meets the error again, and reports it
        for name, content in _folders(place, names):
            if name in waiting:
                folder, listing = waiting.pop(name)
                fetch_listing(table, folder, listing, place._replace(prefix=f"{place.prefix}{name}/"), content)
            if not waiting:
                return


def _folders(place: FolderPlace, names: Collection[str]) -> Iterator[tuple[str, protocol.Folder]]:
    """The folders that are whole, as they come. Raises HeadraceError."""
    cut = len(place.prefix)
    now, below, objects = "", dict[str, None](), list[ObjectInfo]()
    first = min(names, key=lambda name: f"{name}/".encode("utf-8", "surrogateescape"))
    pages = 0
    for page in place.store.list(place.prefix, start_after=f"{place.prefix}{first}/"):
        for one in page:
            name, slash, rest = one.key[cut:].partition("/")
            if not slash:
                continue  # a file beside the folders
            if name != now:
                if now:
                    yield now, protocol.Folder(tuple(below), tuple(objects))
                if name not in names:
                    return
                now, below, objects = name, {}, []
            deeper, slash, _ = rest.partition("/")
            if slash:
                below[f"{place.prefix}{name}/{deeper}/"] = None
            else:
                objects.append(one)
        pages += 1
        if pages == _MOST_PAGES:
            return
    if now:
        yield now, protocol.Folder(tuple(below), tuple(objects))
