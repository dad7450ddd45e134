"""`Store.list` and `Store.list_folder`."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.store.protocol import Store
from headrace.testing.conformance.base import Suite, fill, listed, listed_keys

_ASCII = ("a", "a-b", "a.b", "a/b", "a/b/c", "a0", "b/1", "b/10", "b/2", "Z", "_", "~")
NAMES = (*_ASCII, "ä", "é/x", "日本", "\uffee", "😀")
"""With the traps: ``a-b`` and ``a.b`` sort before ``a/b``; ``\\uffee`` before ``😀`` in UTF-8 but not in UTF-16."""


def by_bytes(keys: Iterable[str]) -> list[str]:
    """Sorted as UTF-8 bytes."""
    return sorted(keys, key=str.encode)


class Listing(Suite):
    """Listing."""

    def names(self) -> tuple[str, ...]:
        """Those of NAMES that this store can hold together."""
        clash = "key-and-prefix" in self.unsupported
        return tuple(name for name in NAMES if not (clash and name in ("a/b/c", "a")))

    def test_a_listing_is_complete_and_true(self, store: Store, folder: str) -> None:
        put = fill(store, {folder + name: name.encode() * 3 for name in self.names()})
        found = listed(store, folder)
        assert {info.key: info.size for info in found} == {key: info.size for key, info in put.items()}
        assert len(found) == len(put)
        assert {info.key: info.version for info in found} == {key: store.head(key).version for key in put}

    def test_a_listing_is_in_byte_order(self, store: Store, folder: str) -> None:
        names = self.names()
        fill(store, {folder + name: b"x" for name in names})
        keys = list(listed_keys(store, folder))
        assert (keys if self.sorted_listing else by_bytes(keys)) == by_bytes([folder + name for name in names])

    def test_a_prefix_is_a_plain_string(self, store: Store, folder: str) -> None:
        names = self.names()
        fill(store, {folder + name: b"x" for name in names})
        for prefix in ("a", "a/", "a/b", "b/1", "b", "none", "none/", "ä"):
            expected = {folder + name for name in names if name.startswith(prefix)}
            assert set(listed_keys(store, folder + prefix)) == expected, prefix

    def test_start_after_is_strict(self, store: Store, folder: str) -> None:
        names = self.names()
        fill(store, {folder + name: b"x" for name in names})
        for after in ("a", "a/b", "a/a-key-that-is-not-there", "b/10", "é", "~~~~", "日本"):
            expected = {folder + name for name in names if name.encode() > after.encode()}
            assert set(listed_keys(store, folder, start_after=folder + after)) == expected, after

    def test_nothing_there(self, store: Store, folder: str) -> None:
        assert listed_keys(store, folder) == []
        empty = store.list_folder(folder)
        assert (empty.folders, empty.objects) == ((), ())

    def test_one_level(self, store: Store, folder: str) -> None:
        names = self.names()
        fill(store, {folder + name: b"x" for name in names})
        for below in ("", "a/", "b/", "é/"):
            inside = [name[len(below) :] for name in names if name.startswith(below)]
            level = store.list_folder(folder + below)
            assert {info.key for info in level.objects} == {folder + below + name for name in inside if "/" not in name}
            expected = {folder + below + name.split("/")[0] + "/" for name in inside if "/" in name}
            assert set(level.folders) == expected
            assert len(level.folders) == len(expected)

    def test_the_whole_store(self, store: Store, folder: str) -> None:
        store.put(folder + "a", b"x")
        assert folder + "a" in listed_keys(store, "")
        assert folder in store.list_folder().folders

    def test_many_pages(self, store: Store, folder: str) -> None:
        keys = [f"{folder}{number:05d}/x" for number in range(self.many)]
        fill(store, dict.fromkeys(keys, b"x"))
        found = listed_keys(store, folder)
        assert (list(found) if self.sorted_listing else sorted(found)) == keys
        middle = keys[self.many // 3]
        rest = listed_keys(store, folder, start_after=middle)
        assert sorted(rest) == keys[self.many // 3 + 1 :]
        assert sorted(store.list_folder(folder).folders) == [key.removesuffix("x") for key in keys]
        store.delete(keys)
        assert listed_keys(store, folder) == []
