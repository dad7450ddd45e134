"""Node ids when the kernel forgets."""

from __future__ import annotations

from headrace.mount.inodes import Table
from headrace.mount.listing import Listing
from headrace.mount.pages import FILE, Page
from headrace.store.protocol import ObjectInfo


def _listed(table: Table) -> Page:
    page = Page(table.root, "", ["folder/"], [])
    table.enrol(page)
    return page


def test_a_folder_with_names_of_our_own_outlives_that_the_kernel_forgets_it() -> None:
    table = Table("/")
    page = _listed(table)
    number = table.show(page, 0)
    folder = table.folder(number)
    folder.listing = Listing(folder, ttl=60.0, deadline=1.0)  # begun before the file is written
    file = table.add(folder, b"file", FILE)
    table.looked_up(file.id)
    file.tells(ObjectInfo("folder/file", 1, "etag", 1), 60.0)

    table.forget(file.id, 1)
    table.forget(number, 1)
    page.live = False
    table.retire(page)
    _listed(table)  # the parent's next listing has another page, and another id

    assert table.root.own[b"folder"].id == number
    assert table.folder(number) is folder
    assert folder.own[b"file"] is file

    table.tidy(folder, file.told + 1)  # now a listing tells of the file, and nobody needs to know the folder by that id
    assert not folder.own
    assert b"folder" not in table.root.own
    assert number not in table.folders
    assert number not in table.nodes


def test_a_listing_that_waits_for_the_one_before_is_not_doubted_and_follows_it_once() -> None:
    """However often a mount is refreshed while a long listing is under way, one more is made."""
    table = Table("/")
    first = Listing(table.root, ttl=60.0, deadline=1.0)
    second = Listing(table.root, ttl=60.0, deadline=1.0, before=first)
    table.root.listing = second
    followed: list[Listing | None] = []
    first.follow(lambda: followed.append(first.stands))
    first.doubt()
    second.doubt()
    assert (first.doubted, second.doubted, second.queued, followed) == (True, False, True, [])
    first.run(table, None)
    assert followed == [first]
    assert not second.queued
    second.doubt()
    assert second.doubted
    first.follow(lambda: followed.append(None))
    assert followed == [first, None]
