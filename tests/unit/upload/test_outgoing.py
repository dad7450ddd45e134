"""Objects that are sent while they are written: whole, or not at all."""

from __future__ import annotations

import random
import threading

import pytest

from headrace.base.errors import AlreadyExistsError, NotFoundError, TryAgainError, UnsupportedError
from headrace.store import Assembly, Buffer, ForwardingStore, ObjectInfo, Store
from headrace.upload import Outgoing, Uploader, UploadOptions

PART = 1 << 16


@pytest.fixture
def uploader():
    with Uploader(UploadOptions(part=PART, threads=2, memory=3 * PART)) as opened:
        yield opened
        assert opened.held == 0


def keys(store: Store) -> list[str]:
    return [info.key for page in store.list() for info in page]


def send(outgoing: Outgoing, size: int) -> ObjectInfo:
    outgoing.write(bytes(size))
    return outgoing.finish()


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART, PART + 1, 2 * PART, 9 * PART + 77])
def test_what_is_written_in_any_pieces_is_the_object(store: Store, uploader: Uploader, size: int) -> None:
    rng = random.Random(size)
    data, at = rng.randbytes(size), 0
    outgoing = uploader.outgoing(store, "a/b", create=True)
    while at < size:
        step = rng.choice([1, 511, 4096, PART, 3 * PART])
        outgoing.write(memoryview(data)[at : at + step])
        at += step
    assert keys(store) == [], "seen before it was finished"
    assert outgoing.size == size
    assert outgoing.finish().size == size
    outgoing.abort()  # after the end it is nothing
    assert bytes(store.get("a/b").data) == data


@pytest.mark.parametrize("size", [10, 4 * PART])
def test_what_is_aborted_leaves_nothing(store: Store, uploader: Uploader, size: int) -> None:
    outgoing = uploader.outgoing(store, "a", create=True)
    outgoing.write(bytes(size))
    outgoing.abort()
    assert keys(store) == []
    assert not store.unfinished()


@pytest.mark.parametrize("size", [10, 4 * PART])
def test_a_key_that_is_taken_stays_as_it_is(store: Store, uploader: Uploader, size: int) -> None:
    outgoing = uploader.outgoing(store, "a", create=True)
    outgoing.write(bytes(size))
    store.put("a", b"another's")
    with pytest.raises(AlreadyExistsError):
        outgoing.finish()
    assert bytes(store.get("a").data) == b"another's"
    assert not store.unfinished()


class Refuses(ForwardingStore):
    """Takes no conditions."""

    def put(self, key: str, data: Buffer, *, create: bool = False, **options) -> ObjectInfo:
        if create:
            raise UnsupportedError("no conditions")
        return super().put(key, data, **options)

    def assemble(self, key: str, *, create: bool = False, **options) -> Assembly:
        if create:
            raise UnsupportedError("no conditions")
        return super().assemble(key, **options)


@pytest.mark.parametrize("size", [10, 4 * PART])
def test_a_condition_that_a_store_cannot_keep_is_refused_or_let_go(
    store: Store, uploader: Uploader, size: int
) -> None:
    strict = uploader.outgoing(Refuses(store), "a", create=True)
    with pytest.raises(UnsupportedError):
        send(strict, size)
    strict.abort()
    assert keys(store) == []
    free = uploader.outgoing(Refuses(store), "a", create=True, insist=False)
    free.write(bytes(size))
    assert free.finish().size == size


class Fails(ForwardingStore):
    """Its second part does not arrive."""

    def assemble(self, key: str, **options) -> Assembly:
        assembly = super().assemble(key, **options)
        part = assembly.part

        def fails(number: int, at: int, data: Buffer) -> None:
            if number == 2:
                raise NotFoundError("gone")
            part(number, at, data)

        assembly.part = fails  # type: ignore[method-assign]
        return assembly


def test_a_part_that_fails_ends_it(store: Store, uploader: Uploader) -> None:
    outgoing = uploader.outgoing(Fails(store), "a", create=True)
    with pytest.raises(NotFoundError):
        send(outgoing, 8 * PART)
    outgoing.abort()
    assert keys(store) == []
    assert not store.unfinished()


def test_what_is_cancelled_ends(store: Store, uploader: Uploader) -> None:
    cancel = threading.Event()
    outgoing = uploader.outgoing(store, "a", create=True, cancel=cancel)
    outgoing.write(bytes(2 * PART))
    cancel.set()
    with pytest.raises(TryAgainError):
        outgoing.finish()
    assert keys(store) == []
