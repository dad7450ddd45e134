"""`Store.assemble`, `Store.describe`, `Store.copy` with metadata, `Store.unfinished`."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ClassVar

import pytest

from headrace.base.errors import (
    AlreadyExistsError,
    ChangedError,
    InputError,
    NotFoundError,
    TryAgainError,
    UnsupportedError,
)
from headrace.store.protocol import Assembly, Capabilities, Described, Store
from headrace.testing.conformance.base import Suite, exists, listed_keys

NOTE = {"mode": "33188", "mtime": "1700000000.123456789", "maker": "head race  =; \"two\" 'spaces'"}

HEADERS = {"content-type": "text/x-note; charset=utf-8", "content-disposition": 'attachment; filename="a b"',
           "content-language": "de", "cache-control": "max-age=60"}  # fmt: skip


class Parts(Suite):
    """Objects that come in parts, and what is known of objects beside their bytes."""

    step: int = 5 * 2**20
    """Bytes of a part but the last."""
    lost_headers: ClassVar[frozenset[str]] = frozenset()
    """An object's own headers that the server does not keep."""

    def send(self, assembly: Assembly, data: bytes) -> None:
        """All parts, last first, some at once."""
        starts = range(0, len(data), self.step)

        def one(number: int) -> None:
            at = starts[number - 1]
            assembly.part(number, at, data[at : at + self.step])

        with ThreadPoolExecutor(3) as pool:
            list(pool.map(one, range(len(starts), 0, -1)))

    def test_parts_make_a_whole(self, store: Store, folder: str) -> None:
        data = random.Random(1).randbytes(2 * self.step + 4321)
        assembly = store.assemble(folder + "a")
        try:
            self.send(assembly, data)
            assert not exists(store, folder + "a")
            info = assembly.complete()
        finally:
            assembly.abort()
        assert (info.key, info.size, info.version) == (folder + "a", len(data), store.head(folder + "a").version)
        assert store.get(folder + "a").data == data
        assert listed_keys(store, folder) == [folder + "a"]
        assert not store.unfinished(folder)

    def test_one_small_part(self, store: Store, folder: str) -> None:
        store.put(folder + "a", b"what was there")
        assembly = store.assemble(folder + "a")
        assembly.part(1, 0, memoryview(b"replaced by: small"))
        assembly.part(1, 0, bytearray(b"small"))
        assembly.complete()
        assert bytes(store.get(folder + "a").data) == b"small"

    def test_aborted_parts_leave_nothing(self, store: Store, folder: str) -> None:
        store.put(folder + "a", b"what was there")
        for key in ("a", "sub/b"):
            assembly = store.assemble(folder + key)
            assembly.part(1, 0, bytes(self.step))
            assembly.abort()
            assembly.abort()
            with pytest.raises((NotFoundError, InputError)):
                assembly.complete()
        assert listed_keys(store, folder) == [folder + "a"]
        assert bytes(store.get(folder + "a").data) == b"what was there"
        assert not store.unfinished(folder)

    def test_a_gap_is_refused(self, store: Store, folder: str) -> None:
        for parts in ([], [(1, 0), (2, 7)], [(2, 5)]):
            assembly = store.assemble(folder + "a")
            for number, at in parts:
                assembly.part(number, at, b"bytes")
            with pytest.raises(InputError):
                assembly.complete()
            assembly.abort()
        assert not exists(store, folder + "a")

    def test_parts_copied_from_what_is_there(self, store: Store, folder: str) -> None:
        """How an object grows: what it holds is copied inside the store, only the tail is sent."""
        data = random.Random(2).randbytes(self.step + 100)
        base = store.put(folder + "a", data)
        assembly = store.assemble(folder + "a")
        assembly.part(2, len(data), b"the tail")
        assembly.copy_part(1, 0, folder + "a", 0, len(data), if_match=base.version)
        assert bytes(store.get(folder + "a").data) == data
        assert assembly.complete().size == len(data) + 8
        assert store.get(folder + "a").data == data + b"the tail"
        middle = store.assemble(folder + "b")
        middle.copy_part(1, 0, folder + "a", 7, self.step + 11, if_match=None)
        middle.complete()
        assert store.get(folder + "b").data == data[7 : self.step + 11]

    def test_a_source_that_is_not_there(self, store: Store, folder: str) -> None:
        assembly = store.assemble(folder + "a")
        with pytest.raises((NotFoundError, ChangedError)):
            assembly.copy_part(1, 0, folder + "none", 0, self.step, if_match=None)
        assembly.abort()

    def test_conditions_on_parts(self, store: Store, folder: str) -> None:
        def send(name: str, *, create: bool = False, if_match: str | None = None) -> None:
            assembly = store.assemble(folder + name, create=create, if_match=if_match)
            try:
                assembly.part(1, 0, b"by parts")
                assembly.complete()
            finally:
                assembly.abort()

        first = store.put(folder + "a", b"first").version
        if not self._keeps_conditions(store, folder):
            with pytest.raises(UnsupportedError):
                send("a", create=True)
            with pytest.raises(UnsupportedError):
                send("a", if_match=first)
            assert bytes(store.get(folder + "a").data) == b"first"
            return
        with pytest.raises(AlreadyExistsError):
            send("a", create=True)
        send("b", create=True)
        assert bytes(store.get(folder + "b").data) == b"by parts"
        store.put(folder + "a", b"second")
        with pytest.raises(ChangedError):
            send("a", if_match=first)
        with pytest.raises(ChangedError):
            send("none", if_match=first)
        assert bytes(store.get(folder + "a").data) == b"second"
        send("a", if_match=store.head(folder + "a").version)
        assert bytes(store.get(folder + "a").data) == b"by parts"
        assert set(listed_keys(store, folder)) == {folder + "a", folder + "b"}

    def _keeps_conditions(self, store: Store, folder: str) -> bool:
        try:
            store.assemble(folder + "try", create=True).abort()
        except UnsupportedError:
            assert store.capabilities.conditional_parts is False
            return False
        assert store.capabilities.conditional_parts
        return True

    def test_metadata_is_kept(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        if not capabilities.metadata:
            with pytest.raises(UnsupportedError):
                store.put(folder + "a", b"x", metadata=NOTE)
            with pytest.raises(UnsupportedError):
                store.assemble(folder + "a", metadata=NOTE)
            assert not exists(store, folder + "a")
            store.put(folder + "a", b"x")
            assert store.describe(folder + "a").metadata == {}
            return
        info = store.put(folder + "a", b"hello", metadata=NOTE)
        found = store.describe(folder + "a")
        assert (found.info.key, found.info.size, found.info.version) == (folder + "a", 5, info.version)
        assert found.metadata == NOTE
        assembly = store.assemble(folder + "b", metadata=NOTE)
        assembly.part(1, 0, b"hello")
        assembly.complete()
        assert store.describe(folder + "b").metadata == NOTE
        store.copy(folder + "b", folder + "c")
        assert store.describe(folder + "c").metadata == NOTE
        store.put(folder + "c", b"hello")
        assert store.describe(folder + "c").metadata == {}

    def test_metadata_is_replaced(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        store.put(folder + "a", b"hello")
        if not capabilities.metadata:
            with pytest.raises(UnsupportedError):
                store.copy(folder + "a", folder + "a", metadata=NOTE)
            return
        store.copy(folder + "a", folder + "a", metadata=NOTE)
        assert store.describe(folder + "a").metadata == NOTE
        store.copy(folder + "a", folder + "b", metadata={"Other": "1"})
        assert store.describe(folder + "b").metadata == {"other": "1"}
        store.copy(folder + "a", folder + "a", metadata={})
        assert store.describe(folder + "a").metadata == {}
        assert [bytes(store.get(folder + name).data) for name in "ab"] == [b"hello"] * 2
        with pytest.raises(NotFoundError):
            store.copy(folder + "none", folder + "none", metadata=NOTE)

    def test_an_objects_own_headers_are_kept(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        store.put(folder + "a", b"hello", headers=HEADERS)
        assembly = store.assemble(folder + "b", headers=HEADERS, metadata=NOTE if capabilities.metadata else None)
        assembly.part(1, 0, b"hello")
        assembly.complete()
        assert [bytes(store.get(folder + name).data) for name in "ab"] == [b"hello"] * 2
        if not capabilities.metadata:
            assert not store.describe(folder + "a").headers
            return
        kept = {name: value for name, value in HEADERS.items() if name not in self.lost_headers}
        assert [own_headers(store, folder + name) for name in "ab"] == [kept] * 2
        assert [store.describe(folder + name).metadata for name in "ab"] == [{}, NOTE]
        store.copy(folder + "b", folder + "c")
        store.copy(folder + "b", folder + "d", metadata={"other": "1"})
        assert [own_headers(store, folder + name) for name in "cd"] == [kept] * 2
        store.copy(folder + "a", folder + "a", metadata=NOTE, headers={"Content-Type": "text/plain"})
        assert own_headers(store, folder + "a") == {"content-type": "text/plain"}
        assert store.describe(folder + "a").metadata == NOTE
        for wrong in ({"content-encoding": "gzip"}, {"x-evil": "1"}, {"content-type": "a\r\nx-evil: 1"}):
            with pytest.raises(InputError):
                store.put(folder + "e", b"x", headers=wrong)
        assert not exists(store, folder + "e")

    def test_an_object_is_described_anew(self, store: Store, folder: str, capabilities: Capabilities) -> None:
        info = store.put(folder + "a", b"hello")
        if not capabilities.metadata:
            with pytest.raises(UnsupportedError):
                store.redescribe(Described(info, {}), NOTE)
            return
        store.redescribe(Described(info, {}), NOTE)
        known = store.describe(folder + "a")
        assert known.metadata == NOTE
        store.put(folder + "a", b"other")
        with suppress(ChangedError):  # not every server looks
            store.redescribe(known, {"other": "1"})
        assert bytes(store.get(folder + "a").data) == b"other"
        with pytest.raises((NotFoundError, ChangedError)):
            store.redescribe(known._replace(info=info._replace(key=folder + "none")), NOTE)

    def test_metadata_that_no_header_holds(self, store: Store, folder: str) -> None:
        for name, value in (("a", "line\r\nx-evil: 1"), ("a", " outer "), ("a b", "x"), ("a", "größe"), ("", "x")):
            with pytest.raises(InputError):
                store.put(folder + "a", b"x", metadata={name: value})
        assert not exists(store, folder + "a")

    def test_a_description_of_nothing(self, store: Store, folder: str) -> None:
        with pytest.raises(NotFoundError):
            store.describe(folder + "none")

    def test_what_is_unfinished_shows_and_can_be_discarded(self, store: Store, hasty: Store, folder: str) -> None:
        assembly = hasty.assemble(folder + "sub/a")
        assembly.part(1, 0, b"bytes")
        others = store.assemble("elsewhere-" + folder + "b")
        found = store.unfinished(folder)
        if found:
            assert len(found) == 1
            assert found[0].key.startswith(folder + "sub/")
            store.discard(found[0])
            store.discard(found[0])
            assert not store.unfinished(folder)
            with pytest.raises((NotFoundError, InputError, TryAgainError)):  # Ceph 16 takes it for one under way
                assembly.complete()
            assert not exists(store, folder + "sub/a")
        assembly.abort()
        others.abort()


def own_headers(store: Store, key: str) -> dict[str, str]:
    """Those that it was given, or could have been."""
    return {name: value for name, value in (store.describe(key).headers or {}).items() if name in HEADERS}
