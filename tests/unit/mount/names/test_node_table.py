"""Node ids when the kernel forgets, and what is kept of names that are gone."""

from __future__ import annotations

from headrace.mount.names.fetch_listing import fetch_listing
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.listing_pages import FILE, ListingPage
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import OwnNode
from headrace.store.protocol import Folder, ObjectInfo


def _listed(table: NodeTable) -> ListingPage:
    page = ListingPage("", ["folder/"], [])
    table.enrol(page, table.root)
    return page


def test_a_folder_with_names_of_our_own_outlives_that_the_kernel_forgets_it() -> None:
    table = NodeTable("/")
    page = _listed(table)
    number = table.show(table.root, page, 0)
    folder = table.folder(number)
    folder.listing = FolderListing(folder.path, ttl=60.0, deadline=1.0)  # begun before the file is written
    file = table.add(folder, b"file", FILE)
    table.looked_up(file.id)
    file.learn(ObjectInfo("folder/file", 1, "etag", 1), 60.0)

    table.forget(file.id, 1)
    table.forget(number, 1)
    page.live = False
    table.retire(page)
    _listed(table)  # the parent's next listing has another page, and another id

    assert table.root.own[b"folder"].id == number
    assert table.folder(number) is folder
    assert folder.own[b"file"] is file

    table.tidy(folder, file.learned + 1)  # now a listing has the file, and nobody needs the folder by that id
    assert not folder.own
    assert b"folder" not in table.root.own
    assert number not in table.folders
    assert number not in table.nodes


def test_a_listing_that_waits_for_the_one_before_is_not_doubted_and_follows_it_once() -> None:
    """However often a mount is refreshed while a long listing is under way, one more is made."""
    table = NodeTable("/")
    first = FolderListing("/", ttl=60.0, deadline=1.0)
    second = FolderListing("/", ttl=60.0, deadline=1.0, before=first)
    table.root.listing = second
    followed: list[FolderListing | None] = []
    first.follow(lambda: followed.append(first.stands))
    first.doubt()
    second.doubt()
    assert (first.doubted, second.doubted, second.queued, followed) == (True, False, True, [])
    fetch_listing(table, table.root, first, None)
    assert followed == [first]
    assert not second.queued
    second.doubt()
    assert second.doubted
    first.follow(lambda: followed.append(None))
    assert followed == [first, None]


def _complete(table: NodeTable, *, ttl: float = 60.0) -> FolderListing:
    """An empty listing of the root."""
    listing = table.root.listing = FolderListing("/", ttl=ttl, deadline=1.0)
    fetch_listing(table, table.root, listing, None)
    return listing


def _written(table: NodeTable, count: int) -> list[OwnNode]:
    """Files of our own making that the kernel knows."""
    found = [table.add(table.root, b"%06d" % number, FILE) for number in range(count)]
    for node in found:
        table.looked_up(node.id)
        node.learn(ObjectInfo("", 1, "etag", 1), 60.0)
    return found


def test_of_names_made_and_deleted_nothing_is_kept_that_no_listing_tells() -> None:
    for listed in (False, True):
        table = NodeTable("/")
        if listed:
            _complete(table)
        for node in _written(table, 100):
            table.remove(table.root, node.name)
            table.forget(node.id, 1)
        assert (table.root.own, table.root.gone, table.nodes) == ({}, {}, {})


def test_a_deleted_name_that_a_listing_tells_or_may_tell_is_remembered() -> None:
    table = NodeTable("/")
    under_way = table.root.listing = FolderListing("/", ttl=60.0, deadline=1.0)
    table.remove(table.root, b"one")
    assert list(table.root.gone) == [b"one"]
    fetch_listing(table, table.root, under_way, None, Folder((), (ObjectInfo("one", 1), ObjectInfo("two", 1))))
    table.remove(table.root, b"two")
    table.remove(table.root, b"three")
    assert list(table.root.gone) == [b"one", b"two"]
    table.tidy(table.root, table.root.gone[b"two"])
    assert list(table.root.gone) == [b"two"]


def test_what_the_kernel_has_forgotten_goes_once_its_listing_is_not_trusted_any_more() -> None:
    table = NodeTable("/")
    listing = _complete(table)
    for node in _written(table, 100):
        table.forget(node.id, 1)
    assert not table.sweep()
    assert len(table.root.own) == 100, "a listing that is trusted does not tell of them"
    listing.until = 0.0
    assert not table.sweep()
    assert (table.root.own, table.nodes) == ({}, {})
    assert listing.partial, "and never tells that they are not there"


def test_the_kernel_is_asked_to_forget_the_oldest_of_too_many() -> None:
    table = NodeTable("/", most=60)
    listing = _complete(table)
    nodes = _written(table, 100)
    asked = table.sweep()
    assert asked == nodes[:40]
    for node in asked:
        table.forget(node.id, 1)
    assert not table.sweep()
    assert (len(table.nodes), listing.doubted) == (60, True), "the folder is listed anew before it is told of those"
