"""`Store.put`, `Store.copy`, `Store.delete`."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.base.errors import AlreadyExistsError, ChangedError, HeadraceError, NotFoundError, UnsupportedError
from headrace.store.protocol import Buffer, Capabilities, Store
from headrace.testing.conformance.base import Reader, Suite, exists, fill, listed_keys

NOBODYS = "0123456789abcdef0123456789abcdef"


class Writes(Suite):
    """Writing."""

    large: int = 20 * 1024 * 1024 + 17
    """Bytes of the object that is put in several parts."""

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_put_takes_any_bytes(self, store: Store, folder: str, kind: type[Buffer]) -> None:
        info = store.put(folder + "a", kind(b"hello"))
        assert (info.key, info.size) == (folder + "a", 5)
        assert info.version == store.head(folder + "a").version
        assert bytes(store.get(folder + "a").data) == b"hello"

    def test_put_takes_metadata(self, store: Store, folder: str) -> None:
        try:
            store.put(folder + "a", b"hello", metadata={"maker": "headrace"})
        except UnsupportedError:
            assert not exists(store, folder + "a")
        else:
            assert bytes(store.get(folder + "a").data) == b"hello"

    def test_put_replaces(self, store: Store, folder: str, read: Reader) -> None:
        first = store.put(folder + "a", b"first, and longer")
        second = store.put(folder + "a", b"second")
        assert first.version != second.version
        assert bytes(read(store, folder + "a").data) == b"second"
        assert listed_keys(store, folder) == [folder + "a"]

    def test_create_only(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        if not capabilities.create_only_put:
            with pytest.raises(UnsupportedError):
                store.put(folder + "a", b"one", create=True)
            assert not exists(store, folder + "a")
            return
        store.put(folder + "a", b"one", create=True)
        with pytest.raises(AlreadyExistsError):
            store.put(folder + "a", b"two", create=True)
        assert bytes(store.get(folder + "a").data) == b"one"

    def test_only_one_creates(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        if not capabilities.create_only_put:
            return

        def create(number: int) -> int | None:
            try:
                store.put(folder + "a", str(number).encode(), create=True)
            except AlreadyExistsError:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [number for number in pool.map(create, range(8)) if number is not None]
        assert len(winners) == 1
        assert bytes(store.get(folder + "a").data) == str(winners[0]).encode()

    def test_put_over_one_version(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        old = store.put(folder + "a", b"one").version
        if not capabilities.conditional_put:
            with pytest.raises(UnsupportedError):
                store.put(folder + "a", b"two!", if_match=old)
            assert bytes(store.get(folder + "a").data) == b"one"
            return
        store.put(folder + "a", b"two!", if_match=old)
        for stale in (old, NOBODYS):
            with pytest.raises(ChangedError):
                store.put(folder + "a", b"three", if_match=stale)
        with pytest.raises((ChangedError, NotFoundError)):
            store.put(folder + "absent", b"x", if_match=old)
        assert bytes(store.get(folder + "a").data) == b"two!"

    def test_a_large_object_in_parts(self, store: Store, folder: str, read: Reader) -> None:
        block = bytes(range(251)) * 997
        data = (block * (self.large // len(block) + 1))[: self.large]
        info = store.put(folder + "large", data)
        assert info.size == store.head(folder + "large").size == len(data)
        assert info.version == store.head(folder + "large").version
        for start, stop in [(8 * 2**20 - 5, 8 * 2**20 + 5), (5 * 2**20 - 1, 10 * 2**20 + 1), (len(data) - 3, None)]:
            assert read(store, folder + "large", start, stop).data == data[start:stop]
        assert read(store, folder + "large").data == data

    def test_copy(self, store: Store, folder: str) -> None:
        store.put(folder + "a", b"hello")
        store.put(folder + "sub/b", b"in the way")
        store.copy(folder + "a", folder + "sub/b")
        assert bytes(store.get(folder + "sub/b").data) == b"hello"
        store.put(folder + "a", b"changed")
        assert bytes(store.get(folder + "sub/b").data) == b"hello"

    def test_copy_of_a_missing_key(self, store: Store, folder: str) -> None:
        with pytest.raises(NotFoundError):
            store.copy(folder + "none", folder + "b")
        assert not exists(store, folder + "b")

    def test_delete_is_idempotent(self, store: Store, folder: str) -> None:
        fill(store, {folder + name: b"x" for name in ("a", "b", "c/d")})
        store.delete([])
        store.delete([folder + "a", folder + "never-was"])
        store.delete([folder + "a"])
        with pytest.raises(NotFoundError):
            store.get(folder + "a")
        assert listed_keys(store, folder) == [folder + "b", folder + "c/d"]
        store.delete([folder + "b", folder + "c/d"])
        assert listed_keys(store, folder) == []
        assert store.list_folder(folder).objects == ()
        assert self.keeps_empty_folders or store.list_folder(folder).folders == ()

    def test_a_name_that_may_be_too_long(self, store: Store, hasty: Store, folder: str) -> None:
        """Most stores take names of about 1,000 bytes. What is refused leaves nothing, what is taken is there."""
        key = folder + "x" * 5000
        try:
            hasty.put(key, b"x")
        except HeadraceError:
            assert listed_keys(store, folder) == []
        else:
            assert listed_keys(store, folder) == [key]
