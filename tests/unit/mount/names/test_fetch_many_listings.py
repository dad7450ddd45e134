"""Folders filled from one LIST of all that is below them show just what a LIST of each would."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence

import pytest

from headrace.mount.names import fetch_many_listings
from headrace.mount.names.fetch_listing import fetch_listing
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.node_table import NodeTable
from headrace.mount.names.nodes import FolderNode, FolderPlace
from headrace.store import Store, open_store
from headrace.store.protocol import ObjectInfo
from headrace.store.wrappers import ForwardingStore

NAMES = ["a", "a-b", "a.c", "a0", "ab", "b c", "é", "z"]
Entries = list[tuple[bytes, int, int, str | None]]


def filled(place: FolderPlace, names: Sequence[str], wanted: Sequence[str]) -> dict[str, Entries]:
    """What is told of the wanted folders, where it is told, when the next ones are `names`."""
    table = NodeTable("/")
    folders = {name: FolderNode(number, table.root, name.encode(), 0) for number, name in enumerate(wanted, 2)}
    begun = [(folder, FolderListing(folder.path, 60.0, 5.0)) for folder in folders.values()]
    fetch_many_listings.fetch_many_listings(table, place, names, begun)
    return {name: entries(listing) for name, (_, listing) in zip(wanted, begun, strict=True) if listing.complete}


def by_itself(place: FolderPlace, name: str) -> Entries:
    table = NodeTable("/")
    folder = FolderNode(2, table.root, name.encode(), 0)
    listing = FolderListing(folder.path, 60.0, 5.0)
    fetch_listing(table, folder, listing, place._replace(prefix=f"{place.prefix}{name}/"))
    return entries(listing)


def entries(listing: FolderListing) -> Entries:
    return [
        (page.name(at), page.kinds[at], page.sizes[at], page.etag(at))
        for page in listing.pages
        for at in range(len(page))
    ]


@pytest.fixture
def store() -> Store:
    """In byte order, as AWS lists: ``a-b/`` before ``a/``."""
    return open_store(f"memory://{secrets.token_hex(8)}")


@pytest.mark.parametrize("seed", range(6))
def test_the_same_as_a_list_of_each(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    store.put("top/beside", b"1")
    store.put("top/a-", b"a file between the folders")
    for name in NAMES:
        for number in range(chance.randrange(1, 40)):
            below = chance.choice(["", "", "", "x/", "x-y/", "x/deep/"])
            store.put(f"top/{name}/{below}{number:02d}.txt", bytes(chance.randrange(4)))
    place = FolderPlace(store, "top/", read_only=False)
    some = sorted(chance.sample(NAMES, chance.randrange(1, len(NAMES) + 1)))
    told = filled(place, some, some)
    assert told
    assert told == {name: by_itself(place, name) for name in told}
    assert filled(place, NAMES, NAMES) == {name: by_itself(place, name) for name in NAMES}


def test_a_folder_that_is_gone_or_goes_on_for_ever_is_left(store: Store) -> None:
    for number in range(3):
        store.put(f"top/a/{number}", b"1")
        store.put(f"top/c/{number}", b"1")
    for number in range(4 * fetch_many_listings.PAGE):
        store.put(f"top/d/{number:05d}", b"")
    place = FolderPlace(store, "top/", read_only=False)
    told = filled(place, ["a", "b", "c", "d"], ["a", "b", "c", "d"])
    assert sorted(told) == ["a", "c"]
    assert told["c"] == by_itself(place, "c")


class Counted(ForwardingStore):
    """Counts the pages taken of its lists."""

    pages = 0

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Sequence[ObjectInfo]]:
        for page in super().list(prefix, start_after=start_after):
            self.pages += 1
            yield page


def test_only_what_was_wanted_is_filled_and_nothing_after_it_asked_for(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.put(f"top/{name}/1", b"1")
    for number in range(2 * fetch_many_listings.PAGE):
        store.put(f"top/d/{number:05d}", b"")
    counted = Counted(store)
    place = FolderPlace(counted, "top/", read_only=False)
    assert sorted(filled(place, ["a", "b", "c", "gone"], ["a", "c", "gone"])) == [
        "a",
        "c",
    ]
    assert counted.pages == 1
