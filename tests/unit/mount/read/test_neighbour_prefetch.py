"""A small file that is opened while it is fetched ahead: it is handed over, and not asked for twice."""

from __future__ import annotations

import secrets
import threading
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.base.settings import CacheSettings, Settings
from headrace.fetch import Fetcher
from headrace.mount.names.folder_listing import FolderListing
from headrace.mount.names.listing_pages import ListingPage
from headrace.mount.names.name_lookup import NameLookup
from headrace.mount.names.nodes import FolderNode, FolderPlace, NamedNode
from headrace.mount.read.neighbour_prefetch import NeighbourPrefetch
from headrace.store import Blob, ForwardingStore, Store, open_store


class Gate(ForwardingStore):
    """Each GET waits until `open` is set."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.open = threading.Event()
        self.asked: list[str] = []

    def get(self, key: str, *args: Any, **kw: Any) -> Blob:
        self.asked.append(key)
        assert self.open.wait(30)
        return self.inner.get(key, *args, **kw)


def test_what_is_on_its_way_is_handed_over_or_why_it_did_not_come(tmp_path: Path) -> None:
    inner = open_store(f"memory://{secrets.token_hex(8)}")
    infos = [inner.put(f"{number:02d}", b"%02d" % number) for number in range(12)]
    inner.delete(["07"])
    store = Gate(inner)
    page = ListingPage("", [], infos)
    folder = FolderNode(1, None, b"", 0, "/d")
    folder.place = FolderPlace(store, "", True)
    folder.listing = FolderListing("/d", 60.0, 60.0)
    folder.listing.append(page)
    folder.listing.complete = True
    came: SimpleQueue[Blob | HeadraceError] = SimpleQueue()
    fetcher = Fetcher.open(Settings(cache=CacheSettings(dir=str(tmp_path), min_free=0)))
    with closing(fetcher):
        assert fetcher.cache is not None
        nobody = cast("NameLookup", None)  # is asked for listings that are not fresh
        with closing(NeighbourPrefetch(fetcher, fetcher.cache, nobody)) as prefetch:
            names = [fetcher.cache.name(store.identity, one.key, one.version, one.size) for one in infos]
            for index in range(3):
                assert not prefetch.hand_over(names[index], came.put)
                prefetch.opened(NamedNode.on_page(folder, page, index, page.node(index)), missed=True)
            for index in (5, 5, 7):
                while not prefetch.hand_over(names[index], came.put):  # its planner has yet to ask
                    assert came.empty()
            assert came.empty()
            store.open.set()
            found = [came.get(timeout=30) for _ in range(3)]
            assert [bytes(one.data) for one in found if isinstance(one, Blob)] == [b"05", b"05"]
            assert [type(one) for one in found if isinstance(one, HeadraceError)] == [NotFoundError]
            assert store.asked.count("05") == store.asked.count("07") == 1
            assert not prefetch.hand_over(names[5], came.put)
