"""A folder by pages: each name once, whatever the order of the server and wherever a page ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.base.errors import NotFoundError
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.store import Capabilities, Folder, Store
from tests.unit.namespace.reference import ReferenceStore

NAMES = st.sets(st.text(st.sampled_from("ab-./0é"), min_size=1, max_size=4).filter(lambda name: name[0] != "/"))


class Paged(ReferenceStore):
    """As an S3 server lists: three names a page. `folders_first`: ``a/`` comes before ``a-``, as on SeaweedFS."""

    lists_by_pages = True

    def __init__(self, url: str, *, folders_first: bool) -> None:
        super().__init__(url)
        self.folders_first = folders_first

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities()

    def list_pages(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[Folder]:
        whole = self.list_folder(prefix)
        infos = {info.key: info for info in whole.objects}

        def order(name: str) -> Any:
            return [part.encode() for part in name.rstrip("/").split("/")] if self.folders_first else name.encode()

        def wanted(name: str) -> bool:
            if start_after is None:
                return True
            if self.folders_first:
                return order(name) > order(start_after)[: name.rstrip("/").count("/") + 1]
            return name > start_after or (name.endswith("/") and name + "\U0010ffff" > start_after > name)

        names = [name for name in sorted([*whole.folders, *infos], key=order) if wanted(name)]
        for at in range(0, max(1, len(names)), 3):
            some = names[at : at + 3]
            self.requests.append(("page", prefix))
            yield Folder(tuple(n for n in some if n not in infos), tuple(infos[n] for n in some if n in infos))


def opened(store: Store, **mounts: str) -> Namespace:
    namespace = Namespace(Settings(), opener=lambda *_: store, local=False)
    for path, url in {"data": "ref://one", **mounts}.items():
        namespace.attach("/" + path.replace("_", "/"), url)
    return namespace


def all_of(namespace: Namespace, path: str, count: int) -> list[list[str]]:
    pages: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        found = namespace.page(path, after=after, count=count)
        pages.append([one.name + ("/" if one.kind == "folder" else "") for one in found.entries])
        after = found.after
    return pages


@given(NAMES, st.integers(1, 5), st.booleans(), st.sampled_from(["", "p/"]))
def test_each_name_comes_once(names: set[str], count: int, folders_first: bool, prefix: str) -> None:
    store = Paged("ref://one", folders_first=folders_first)
    keys = {name for name in names if not (folders_first and any(other.startswith(f"{name}/") for other in names))}
    for key in keys:
        store.put(prefix + key, b"x")
    wanted = {name.partition("/")[0] + ("/" if "/" in name else "") for name in keys}
    namespace = opened(store)
    if not keys and prefix:
        with pytest.raises(NotFoundError):
            namespace.page("/data/p")
        return
    pages = all_of(namespace, "/data/p" if prefix else "/data", count)
    shown = [name for page in pages for name in page]
    assert sorted(shown) == sorted(wanted)
    assert all(len(page) == count for page in pages[:-1])


def test_a_page_costs_one_request() -> None:
    store = Paged("ref://one", folders_first=False)
    for number in range(9):
        store.put(f"{number}", b"x")
    first = opened(store).page("/data", count=2)
    assert [one.name for one in first.entries] == ["0", "1"]
    assert [kind for kind, _ in store.requests if kind == "page"] == ["page"]


def test_what_is_attached_comes_first_and_hides_what_has_its_name() -> None:
    store = Paged("ref://one", folders_first=False)
    for key in ("a", "b/1", "c"):
        store.put(key, b"x")
    namespace = opened(store, data_b_deep="ref://two", data_c="ref://three")
    assert all_of(namespace, "/data", 1) == [["b/", "c/", "a"]]
    assert all_of(namespace, "/", 1) == [["data/"]]


def test_a_store_that_lists_whole_folders_is_asked_once(tmp_path: Any) -> None:
    store = ReferenceStore("ref://one")
    for number in range(10):
        store.put(f"{number}", b"x")
    pages = all_of(opened(store), "/data", 3)
    assert [len(page) for page in pages] == [3, 3, 3, 1]
    assert [kind for kind, _ in store.requests if kind == "list_folder"] == ["list_folder"]


def test_of_a_file_it_is_the_file() -> None:
    store = Paged("ref://one", folders_first=False)
    store.put("a", b"x")
    found = opened(store).page("/data/a")
    assert [one.path for one in found.entries] == ["/data/a"]
    assert found.after is None
