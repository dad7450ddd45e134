"""Fetching a folder's listing from its store, page by page; names that the kernel knows keep their node ids."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.base.errors import HeadraceError
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.listing_pages import MOST, ListingPage
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, FolderPlace
from headrace.store import protocol


def fetch_listing(
    table: NodeTable,
    folder: FolderNode,
    listing: FolderListing,
    place: FolderPlace | None,
    found: protocol.Folder | None = None,
) -> None:
    """Bring all pages of a listing, on a thread that may wait; what goes wrong is the listing's `error`.

    Args:
        table: the mount's nodes.
        folder: whose listing it is.
        listing: one that nobody has fetched yet.
        place: where the folder's keys are; None: it only leads to attachments.
        found: the folder's part of a LIST of several folders that began after the listing was made; None: the
            folder is listed now.
    """
    before = listing.before
    try:
        for part in _parts(folder, place) if found is None else _pieces(found):
            page = ListingPage(place.prefix if place else "", part.folders, part.objects)
            with table.lock:
                _append(table, folder, listing, page, before)
            listing.grown()
        listing.complete = True
    except HeadraceError as error:
        listing.error = error
    finally:
        if not listing.ended:
            listing.error = HeadraceError("the listing broke off", path=folder.path)
        _end(table, folder, listing)
        listing.over()


def _append(
    table: NodeTable, folder: FolderNode, listing: FolderListing, page: ListingPage, before: FolderListing | None
) -> None:
    """Add a page; the one at its place in the listing before is used on, where both are the same. Under the lock."""
    number = len(listing.pages)
    old = before.pages[number] if before is not None and number < len(before.pages) else None
    if old is not None and old.same(page):
        old.live = True
        page = old
    else:
        table.enrol(page, folder)
        if before is not None:
            _carry(table, page, before)
    listing.append(page)


def _end(table: NodeTable, folder: FolderNode, listing: FolderListing) -> None:
    with table.lock:
        before = listing.replaced()
        stands, unused = (listing, before) if listing.complete else (before, listing)
        if folder.listing is listing:
            folder.listing = stands  # after a failure the old one, so that node ids outlive an outage
        if unused is not None:
            table.release(unused, stands)
        if not listing.complete:
            return
        if before is not None and [id(page) for page in before.pages] != [id(page) for page in listing.pages]:
            folder.touched()
        table.tidy(folder, listing.started)


def _carry(table: NodeTable, page: ListingPage, before: FolderListing) -> None:
    """Names that the kernel knows keep their ids while they stand for the same version. Under the table's lock."""
    for old in before.pages:
        if (not old.known and old.ids is None) or old.last < page.first or old.first > page.last:
            continue
        for at in table.known(old):
            index = page.find(old.name(at))
            if index >= 0 and page.same_entry(index, old, at):
                page.carry(index, old.node(at))


def _parts(folder: FolderNode, place: FolderPlace | None) -> Iterator[protocol.Folder]:
    """What the store lists, in pieces that fit a page, less what attachments hide; they come first themselves."""
    attached = folder.attached or frozenset()
    prefix = place.prefix if place else ""
    if attached:
        yield protocol.Folder(tuple(f"{prefix}{name}/" for name in sorted(attached)), ())
    if place is None:
        return
    for part in place.store.list_pages(prefix):
        folders, objects = part.folders, part.objects
        if attached:
            cut = len(prefix)
            folders = tuple(each for each in folders if each[cut:-1] not in attached)
            objects = tuple(each for each in objects if each.key[cut:] not in attached)
        yield from _pieces(protocol.Folder(folders, objects))


def _pieces(part: protocol.Folder) -> Iterator[protocol.Folder]:
    """The same in pieces that fit a page."""
    folders, objects = part.folders, part.objects
    for start in range(0, max(len(folders), 1), MOST // 2):
        some = objects[: MOST // 2] if start == 0 else ()
        yield protocol.Folder(folders[start : start + MOST // 2], some)
    for start in range(MOST // 2, len(objects), MOST // 2):
        yield protocol.Folder((), objects[start : start + MOST // 2])
