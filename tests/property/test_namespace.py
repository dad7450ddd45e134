"""Random operations on a namespace, compared with a plain dict of path → bytes."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headrace.base.errors import AlreadyExistsError, InputError, NotFoundError, UnsupportedError
from tests.unit.namespace.reference import namespace

ROOT, NESTED = "/t", "/t/n/m"
PARTS = st.sampled_from(["a", "b", "a.b", "A", "é", "n", "m", " ", "%2F", "~"])
ODD_PARTS = st.one_of(PARTS, st.sampled_from(["", ".", "..", "日\n"]))
DATA = st.binary(max_size=30)


class Tree(RuleBasedStateMachine):
    """`literal`: the stores hold every key. `overlap`: a name may be file and folder at once."""

    literal = False
    overlap = True

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.folder = tempfile.mkdtemp()
        self.stack.callback(shutil.rmtree, self.folder)
        self.model: dict[str, bytes] = {}
        self.ns, _ = self.stack.enter_context(namespace())
        self.ns.attach(ROOT, self.url("outer"))
        self.ns.attach(NESTED, self.url("inner"))

    def url(self, name: str) -> str:
        raise NotImplementedError

    def teardown(self) -> None:
        for path in list(self.model):
            self.ns.delete(path)
        self.stack.close()

    def path(self, parts: list[str]) -> str:
        if not self.literal:
            parts = [part for part in parts if part not in ("", ".", "..", "日\n")] or ["a"]
        return ROOT + "/" + "/".join(parts)

    def expressible(self, path: str) -> bool:
        """Whether the model may hold it: no mount point, and on a disk no file where a folder is or the other way."""
        if path in (NESTED, NESTED + "/", ROOT + "/"):
            return False
        if self.overlap:
            return True
        beside = [p for p in self.model if self.store_of(p) == self.store_of(path)]
        return not any(p.startswith(path + "/") or path.startswith(p + "/") for p in beside)

    def store_of(self, path: str) -> str:
        return NESTED if path.startswith(NESTED + "/") else ROOT

    @rule(parts=st.lists(ODD_PARTS, min_size=1, max_size=4), data=DATA, create=st.booleans())
    def write(self, parts: list[str], data: bytes, create: bool) -> None:
        path = self.path(parts)
        if not self.expressible(path):
            with pytest.raises((InputError, UnsupportedError)):
                self.ns.write(path, data)
            return
        if create and path in self.model:
            with pytest.raises(AlreadyExistsError):
                self.ns.write(path, data, create=True)
            return
        self.ns.write(path, data, create=create)
        self.model[path] = data

    @rule(parts=st.lists(ODD_PARTS, min_size=1, max_size=4), start=st.integers(0, 40), length=st.integers(0, 40))
    def read(self, parts: list[str], start: int, length: int) -> None:
        path = self.path(parts)
        if path not in self.model:
            with pytest.raises((NotFoundError, InputError)):
                self.ns.read(path)
            return
        whole = self.model[path]
        assert bytes(self.ns.read(path)) == whole
        if start <= len(whole):
            assert bytes(self.ns.read(path, start, start + length)) == whole[start : start + length]
        with self.ns.open(path) as handle:
            handle.seek(start)
            assert handle.read(length) == whole[start : start + length]

    @rule(parts=st.lists(ODD_PARTS, min_size=1, max_size=4), recursive=st.booleans())
    def delete(self, parts: list[str], recursive: bool) -> None:
        path = self.path(parts)
        if path in (NESTED, NESTED + "/", ROOT + "/") and not recursive:
            return
        below = path if path.endswith("/") else path + "/"
        gone = [p for p in self.model if p == path or (recursive and p.startswith(below))]
        try:
            self.ns.delete(path, recursive=recursive)
        except UnsupportedError:
            assert not self.literal
            assert not gone
        for each in gone:
            del self.model[each]

    @rule(start=st.lists(ODD_PARTS, min_size=1, max_size=4), end=st.lists(ODD_PARTS, min_size=1, max_size=4))
    def copy(self, start: list[str], end: list[str]) -> None:
        here, there = self.path(start), self.path(end)
        if here in self.model and here != there and self.expressible(there):
            self.ns.copy(here, there)
            self.model[there] = self.model[here]
        else:
            with pytest.raises((InputError, NotFoundError, UnsupportedError)):
                self.ns.copy(here, there)

    @rule()
    def forget(self) -> None:
        self.ns.refresh()

    @invariant()
    def the_walk_is_the_model(self) -> None:
        shown = {path: data for path, data in self.model.items() if data or not path.endswith("/")}
        found = list(self.ns.walk("/"))
        assert [entry.path for entry in found] == sorted(shown, key=str.encode)
        assert {entry.path: entry.size for entry in found} == {path: len(data) for path, data in shown.items()}

    @rule(parts=st.lists(PARTS, max_size=3))
    def look(self, parts: list[str]) -> None:
        folder = "/".join([ROOT, *parts])
        inside = [p.removeprefix(folder + "/") for p in self.model if p.startswith(folder + "/")]
        leads = NESTED.startswith(folder + "/") or folder in (ROOT, NESTED)
        names = {(rest.partition("/")[0], "folder" if "/" in rest else "file") for rest in inside if rest}
        if NESTED.startswith(folder + "/"):
            point = NESTED.removeprefix(folder + "/").partition("/")[0]
            names = names | {(point, "folder")}
        content = {("", "file")} if self.model.get(folder + "/") else set()
        if inside or leads:
            listed = self.ns.list(folder)
            assert {(e.name, e.kind) for e in listed} == names | content
            assert [e.name for e in listed] == sorted((e.name for e in listed), key=str.encode)
        elif folder in self.model:
            assert [e.path for e in self.ns.list(folder)] == [folder]
        else:
            with pytest.raises(NotFoundError):
                self.ns.list(folder)
        assert self.ns.exists(folder) == (bool(inside) or leads or folder in self.model)


class Reference(Tree):
    literal = True

    def url(self, name: str) -> str:
        return f"ref://{name}"


class Memory(Tree):
    def url(self, name: str) -> str:
        return f"memory://{name}-{self.folder.rpartition('/')[2].replace('_', '-')}"


class Disk(Tree):
    overlap = False

    def url(self, name: str) -> str:
        return f"file://{self.folder}/{name}"


_SETTINGS = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestReference = pytest.mark.timeout(120)(Reference.TestCase)
TestMemory = pytest.mark.timeout(120)(Memory.TestCase)
TestDisk = pytest.mark.timeout(120)(Disk.TestCase)
TestReference.settings = TestMemory.settings = TestDisk.settings = _SETTINGS
