"""Random work through `Staging`, crashes and outages included, against plain dicts of the bucket and of what shows."""

from __future__ import annotations

import errno
import secrets
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.base.errors import TryAgainError
from headrace.mount.write_back.object_metadata import link_path
from headrace.mount.write_back.staged_file import StagedFile
from headrace.mount.write_back.staging import StagingOptions
from headrace.store.embedded import EmbeddedS3
from tests.staging_kit import FILE, FOLDER, World, bucket_of, world

FOLDERS = ("p", "q", "p/r", "s")
FILES = tuple(f"{folder}/{name}".lstrip("/") for folder in ("", *FOLDERS) for name in ("f", "g"))
NO_RETRY = StagingOptions(period_s=0, retry_s=1000, retry_most_s=1000)


@dataclass
class Node:
    """A file as it should be. `published`: what the bucket holds of it, None: nothing; `pending`: a publish failed."""

    content: bytearray
    published: bytes | None
    staged: StagedFile | None = None
    pending: bool = False
    dirty: bool = False

    @property
    def lives(self) -> bool:
        """In the staging folder."""
        return self.staged is not None or self.pending


@dataclass
class Model:
    nodes: dict[str, Node] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    unlinked: list[Node] = field(default_factory=list)

    def bucket(self) -> dict[str, bytes]:
        return {key: node.published for key, node in self.nodes.items() if node.published is not None}

    def below(self, folder: str) -> list[str]:
        return [key for key in (*self.nodes, *self.made) if key.startswith(folder + "/")]

    def shows_folder(self, folder: str) -> bool:
        return folder in self.made or bool(self.below(folder))


class Machine(RuleBasedStateMachine):
    """`url` and `store` say over what; set by the tests."""

    server: EmbeddedS3 | None = None
    kind = "memory"

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-staging-"))
        (self.folder / "data").mkdir()
        options = None
        url = f"memory://{secrets.token_hex(8)}" if self.kind == "memory" else f"file://{self.folder}/data"
        if self.server is not None:
            url, options = bucket_of(self.server, f"machine-{secrets.token_hex(6)}")
        self._context = world(self.folder, url, options, NO_RETRY)
        self.world: World = self._context.__enter__()
        self.model = Model()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.store.down = False
            self._context.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    @property
    def up(self) -> bool:
        return not self.world.store.down

    # files

    @rule(key=st.sampled_from(FILES), data=st.binary(max_size=20))
    def create(self, key: str, data: bytes) -> None:
        if key in self.model.nodes:
            return
        file = self.world.staging.create(f"/d/{key}", FILE)
        file.write(0, data)
        self.model.nodes[key] = Node(bytearray(data), None, file, dirty=True)

    @rule(key=st.sampled_from(FILES), truncate=st.booleans())
    def open(self, key: str, truncate: bool) -> None:
        node = self.model.nodes.get(key)
        if node is None or node.staged is not None or not (self.up or node.pending):
            return
        node.staged = self.world.staging.open(f"/d/{key}", None, truncate=truncate, attrs=FILE)
        if truncate:
            node.dirty |= not node.pending or bool(node.content)
            node.content.clear()

    @rule(key=st.sampled_from(FILES), at=st.integers(0, 30), data=st.binary(min_size=1, max_size=20))
    def write(self, key: str, at: int, data: bytes) -> None:
        node = self.model.nodes.get(key)
        if node is not None and node.staged is not None:
            node.staged.write(at, data)
            node.content.extend(bytes(max(0, at - len(node.content))))
            node.content[at : at + len(data)] = data
            node.dirty = True

    @rule(key=st.sampled_from(FILES), data=st.binary(min_size=1, max_size=20))
    def append(self, key: str, data: bytes) -> None:
        node = self.model.nodes.get(key)
        if node is not None:
            self.write(key, len(node.content), data)

    @rule(key=st.sampled_from(FILES), size=st.integers(0, 40))
    def truncate(self, key: str, size: int) -> None:
        node = self.model.nodes.get(key)
        if node is not None and node.staged is not None:
            node.staged.truncate(size)
            del node.content[size:]
            node.content.extend(bytes(size - len(node.content)))
            node.dirty = True

    @rule(key=st.sampled_from(FILES))
    def publish(self, key: str) -> None:
        node = self.model.nodes.get(key)
        if node is None or node.staged is None:
            return
        if self.up or not node.dirty:
            node.staged.publish()
            self._published(node)
        else:
            with pytest.raises(TryAgainError):
                node.staged.publish()
            node.pending = True

    @precondition(lambda self: self.up)
    @rule(key=st.sampled_from(FILES), data=st.binary(max_size=20), release=st.booleans())
    def write_in_an_outage(self, key: str, data: bytes, release: bool) -> None:
        """What random steps rarely come to: a close that fails, and a store that is back right after."""
        self.create(key, data)
        self.append(key, data + b"!")
        self.world.store.down = True
        self.publish(key)
        if release:
            self.close(key)
        self.world.store.down = False

    @rule(key=st.sampled_from(FILES))
    def close(self, key: str) -> None:
        node = self.model.nodes.get(key)
        if node is None or node.staged is None:
            return
        node.staged.release()
        node.staged = None
        if self.up or not node.dirty:
            self._published(node)
        else:
            node.pending = True

    def _published(self, node: Node) -> None:
        if node.dirty:
            node.published = bytes(node.content)
        node.dirty = node.pending = False

    # names

    @precondition(lambda self: self.up)
    @rule(key=st.sampled_from(FILES))
    def unlink(self, key: str) -> None:
        node = self.model.nodes.pop(key, None)
        if node is None:
            return
        self.world.staging.unlink(f"/d/{key}")
        if node.staged is not None:
            self.model.unlinked.append(node)
        if "/" in key:
            self.model.made.add(key.rpartition("/")[0])

    @precondition(lambda self: self.up)
    @rule(old=st.sampled_from(FILES), new=st.sampled_from(FILES))
    def rename(self, old: str, new: str) -> None:
        if old not in self.model.nodes or old == new:
            return
        self.world.staging.rename(f"/d/{old}", f"/d/{new}", folder=False)
        node, replaced = self.model.nodes.pop(old), self.model.nodes.pop(new, None)
        if replaced is not None and replaced.staged is not None:
            self.model.unlinked.append(replaced)
        if node.published is None:
            self._published(node)
        self.model.nodes[new] = node
        if "/" in old:
            self.model.made.add(old.rpartition("/")[0])

    @precondition(lambda self: self.up)
    @rule(old=st.sampled_from(FOLDERS), new=st.sampled_from(FOLDERS))
    def rename_folder(self, old: str, new: str) -> None:
        model = self.model
        if not model.shows_folder(old) or old == new:
            return
        call = (f"/d/{old}", f"/d/{new}")
        if new.startswith(old + "/") or model.below(new) or old.startswith(new + "/"):
            with pytest.raises(OSError) as caught:
                self.world.staging.rename(*call, folder=True)
            assert caught.value.errno in (errno.EINVAL, errno.ENOTEMPTY)
            return
        self.world.staging.rename(*call, folder=True)
        for names in (model.nodes, model.made):
            for key in [key for key in names if key == old or key.startswith(old + "/")]:
                there = new + key[len(old) :]
                if isinstance(names, dict):
                    names[there] = names.pop(key)
                else:
                    names.remove(key)
                    names.add(there)
        model.made.add(new)
        if "/" in old:
            model.made.add(old.rpartition("/")[0])

    @precondition(lambda self: self.up)
    @rule(folder=st.sampled_from(FOLDERS))
    def mkdir(self, folder: str) -> None:
        if not self.model.shows_folder(folder):
            self.world.staging.mkdir(f"/d/{folder}", FOLDER)
            self.model.made.add(folder)
            if "/" in folder and self.kind == "file":
                self.model.made.add(folder.rpartition("/")[0])

    @precondition(lambda self: self.up)
    @rule(folder=st.sampled_from(FOLDERS))
    def rmdir(self, folder: str) -> None:
        if not self.model.shows_folder(folder):
            return
        if self.model.below(folder):
            with pytest.raises(OSError) as caught:
                self.world.staging.rmdir(f"/d/{folder}")
            assert caught.value.errno == errno.ENOTEMPTY
            return
        self.world.staging.rmdir(f"/d/{folder}")
        self.model.made.discard(folder)
        if "/" in folder:
            self.model.made.add(folder.rpartition("/")[0])

    @precondition(lambda self: self.up)
    @rule(folder=st.sampled_from(FOLDERS), to=st.text("ab/.", min_size=1, max_size=9))
    def symlink(self, folder: str, to: str) -> None:
        key = link_path(f"{folder}/link")
        if key not in self.model.nodes:
            self.world.staging.symlink(f"/d/{folder}/link", to)
            self.model.nodes[key] = Node(bytearray(to.encode()), to.encode())

    # the world

    @rule()
    def the_store_goes_away(self) -> None:
        self.world.store.down = True

    @rule()
    def the_store_comes_back(self) -> None:
        self.world.store.down = False

    @precondition(lambda self: self.up)
    @rule()
    def drain(self) -> None:
        assert self.world.staging.drain(30)
        for node in self.model.nodes.values():
            self._published(node)

    @rule()
    def crash(self) -> None:
        """What was being written and neither closed nor synced is lost to the bucket; what had failed is not."""
        recovered = self.world.crash().recover()
        self.world.store.down = False
        promised = {f"/d/{key}" for key, node in self.model.nodes.items() if node.pending}
        assert set(recovered.pending) == promised
        for key, node in list(self.model.nodes.items()):
            node.staged = None
            if not node.pending:
                node.dirty = False
                if node.published is None:
                    del self.model.nodes[key]
                else:
                    node.content = bytearray(node.published)
        for node in self.model.unlinked:
            node.staged = None
        self.model.unlinked.clear()
        self.model.made = {folder for folder in self.model.made if self._lasts(folder)}
        self.drain()

    def _lasts(self, folder: str) -> bool:
        """What only this mount's memory held is gone; the code and the bucket tell, the next invariant compares."""
        if self.world.staging.made(f"/d/{folder}") is not None:
            return True
        if self.kind == "file":
            return (self.folder / "data" / folder).is_dir()
        return self.kind == "s3" and f"{folder}/" in self.world.objects()

    @invariant()
    def the_bucket_is_as_it_should_be(self) -> None:
        if hasattr(self, "world"):
            held = {key: data for key, data in self.world.objects().items() if not key.endswith("/")}
            assert held == self.model.bucket()

    @invariant()
    def what_shows_is_as_it_should_be(self) -> None:
        if not hasattr(self, "world"):
            return
        staging = self.world.staging
        held = {key for key in self.world.objects() if not key.endswith("/") and not staging.hides(f"/d/{key}")}
        staged: dict[str, bytes] = {}
        folders: set[str] = set()
        for folder in sorted({"", *FOLDERS, *self.model.made, *(key.rpartition("/")[0] for key in self.model.nodes)}):
            for each in staging.below(f"/d/{folder}".rstrip("/")):
                if isinstance(each, StagedFile):
                    staged[each.path.removeprefix("/d/")] = each.read(0, 1000)
                else:
                    folders.add(each.path.removeprefix("/d/"))
        assert held | set(staged) == set(self.model.nodes)
        assert staged == {key: bytes(node.content) for key, node in self.model.nodes.items() if node.lives}
        assert all(map(self.model.shows_folder, folders))
        for node in self.model.unlinked:
            if node.staged is not None:
                assert node.staged.read(0, 1000) == bytes(node.content)

    @invariant()
    def what_is_read_is_what_was_written(self) -> None:
        if hasattr(self, "world") and self.up:
            for key, node in self.model.nodes.items():
                if not node.lives:
                    assert bytes(self.world.ns.read(f"/d/{key}")) == bytes(node.content)


def check(examples: int, steps: int, **over: object) -> None:
    machine = type("Machine", (Machine,), over)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_in_memory():
    check(50, 40)


def test_on_disk():
    check(20, 40, kind="file")


@pytest.mark.server
def test_on_a_real_server(seaweedfs: EmbeddedS3):
    check(5, 30, kind="s3", server=seaweedfs)
