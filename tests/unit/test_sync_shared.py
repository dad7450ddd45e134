"""Several nodes of a gang send below one prefix: an object has one writer, and nobody's is written over."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from headrace.store import Store, open_store
from headrace.sync import FileClass, Report, State, Sync, SyncOptions
from headrace.testing.servers import EmbeddedS3

EVERY = (FileClass("every", period=0.05),)


@pytest.fixture(params=["memory", "file", "seaweedfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return open_store(f"memory://{secrets.token_hex(8)}")
    if request.param == "file":
        return open_store(f"file://{tmp_path}/store")
    server: EmbeddedS3 = request.getfixturevalue("seaweedfs")
    return open_store(server.create_bucket(f"shared-{secrets.token_hex(4)}"), server.options())


class Node:
    """One that follows a folder of its own below the prefix of all."""

    def __init__(self, store: Store, root: Path, name: str) -> None:
        self.folder = root / name
        self.folder.mkdir()
        state = State(str(root / f"{name}.state"), str(self.folder), "s")
        options = SyncOptions(EVERY, shared=True, watch=False, rescan=0.1)
        self._sync = Sync(str(self.folder), store, "run/", state, options)
        self._sync.start()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def settle(self) -> None:
        assert self._sync.settle(30)

    def end(self) -> Report:
        try:
            return self._sync.finish(30, complete=True)
        finally:
            self._sync.close()


def test_the_first_to_write_a_name_has_it(store: Store, tmp_path: Path) -> None:
    store.put("run/old", b"of an earlier attempt")
    first, second = Node(store, tmp_path, "a"), Node(store, tmp_path, "b")
    first.write("log", "one")
    first.write("old", "anew")
    first.settle()
    first.write("log", "one, two")  # its own it may write again
    first.settle()
    second.write("log", "another's")
    second.write("old", "another's")
    second.write("mine", "second")
    ended = second.end()
    assert sorted(one.path for one in ended.left) == ["log", "old"]
    assert all("another node has written this" in one.error for one in ended.left)
    assert not first.end().left
    found = {info.key: bytes(store.get(info.key).data) for page in store.list("run/") for info in page}
    assert found == {"run/log": b"one, two", "run/mine": b"second", "run/old": b"anew"}


def test_what_is_the_same_of_all_is_nobody_s_fault(store: Store, tmp_path: Path) -> None:
    nodes = [Node(store, tmp_path, name) for name in "abc"]
    for node in nodes:
        node.write("config", "alike")
    assert [node.end().left for node in nodes] == [(), (), ()]
