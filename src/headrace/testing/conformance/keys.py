"""Keys that break clients: UTF-8, spaces, ``//``, ``..``, ``+``, ``%``, a trailing ``/``, a key that is a prefix."""

from __future__ import annotations

import pytest

from headrace.base.errors import NameRefusedError, NotFoundError, UnsupportedError
from headrace.store.protocol import Store
from headrace.testing.conformance.base import Reader, Suite, listed_keys

ODD_KEYS: dict[str, str] = {
    "utf-8": "größe/日本語-😀.png",
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "space": "a b/ c .txt",
    "plus": "a+b/+",
    "percent": "100%/%2F%41%",
    "reserved": "a&b=c?d#e;f,g@h$i!j'k(l)m*n:o",
    "quotes": 'a"b<c>d&amp;e',
    "brackets": "[a]{b}|c^d`e~f",
    "backslash": "a\\b",
    "hidden": ".a/.b",
    "dotted-names": "..a/b../...",
    "single-dot": "a/./b",
    "double-dot": "a/../b",
    "double-slash": "a//b",
    "trailing-slash": "a/",
    "newline": "a\nb",
    "long": "/".join(["n" * 200] * 4),
}


class OddKeys(Suite):
    """Odd keys, each by its own name: never normalised, or refused cleanly."""

    @pytest.mark.parametrize("kind", ODD_KEYS)
    def test_an_odd_key(self, store: Store, folder: str, read: Reader, kind: str) -> None:
        key, data = folder + ODD_KEYS[kind], kind.encode()
        if kind in self.unsupported:
            self._refused(store, key, folder)
            return
        store.check_key(key)
        assert store.put(key, data).key == key
        assert bytes(read(store, key).data) == data
        assert bytes(read(store, key, 1, 3).data) == data[1:3]
        assert (store.head(key).key, store.head(key).size) == (key, len(data))
        assert listed_keys(store, folder) == [key]
        assert self._walked(store, folder) == [key]
        copied = folder + "copy/" + ODD_KEYS[kind]
        store.copy(key, copied)
        assert bytes(read(store, copied).data) == data
        store.delete([key, copied])
        assert listed_keys(store, folder) == []
        with pytest.raises(NotFoundError):
            read(store, key)

    def _refused(self, store: Store, key: str, folder: str) -> None:
        with pytest.raises(NameRefusedError) as caught:
            store.put(key, b"x")
        assert caught.value.hint or caught.value.path
        if not key.endswith("/"):  # which may be a folder's marker
            with pytest.raises(NameRefusedError):
                store.check_key(key)
        for look in (store.get, store.head):
            with pytest.raises((UnsupportedError, NotFoundError)):
                look(key)
        assert listed_keys(store, folder) == []

    def _walked(self, store: Store, prefix: str) -> list[str]:
        """Every key below a prefix, found level by level."""
        level = store.list_folder(prefix)
        below = [key for folder in level.folders if folder != prefix for key in self._walked(store, folder)]
        return [info.key for info in level.objects] + below

    def test_likeness_is_not_sameness(self, store: Store, folder: str, read: Reader) -> None:
        kinds = [("composed", "decomposed"), ("plus", "space"), ("double-dot", "single-dot")]
        for pair in kinds:
            if self.unsupported.isdisjoint(pair):
                for kind in pair:
                    store.put(folder + ODD_KEYS[kind], kind.encode())
                for kind in pair:
                    assert bytes(read(store, folder + ODD_KEYS[kind]).data) == kind.encode()

    def test_a_key_that_is_also_a_prefix(self, store: Store, folder: str, read: Reader) -> None:
        store.put(folder + "k", b"the key")
        if "key-and-prefix" in self.unsupported:
            with pytest.raises(UnsupportedError):
                store.put(folder + "k/below", b"x")
            assert listed_keys(store, folder) == [folder + "k"]
            return
        store.put(folder + "k/below", b"below it")
        assert bytes(read(store, folder + "k").data) == b"the key"
        assert bytes(read(store, folder + "k/below").data) == b"below it"
        level = store.list_folder(folder)
        assert ([info.key for info in level.objects], level.folders) == ([folder + "k"], (folder + "k/",))
        assert set(listed_keys(store, folder)) == {folder + "k", folder + "k/below"}
        store.delete([folder + "k"])
        assert bytes(read(store, folder + "k/below").data) == b"below it"
