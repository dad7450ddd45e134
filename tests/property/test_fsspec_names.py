"""fsspec's calls on names that look like patterns, against a dict of name → bytes: each acts on its name alone."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.namespace.filesystem import HeadraceFileSystem
from tests.unit.namespace.reference import namespace

PARTS = ["run1", "run[1]", "run[1]0", "run[!2]", "run?", "run*", "run", "*", "**", "[", "]", "{run1,run}", "r[a-z]n"]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(NAMES, st.binary(max_size=3), max_size=8)
TARGETS = st.sampled_from(["new", "new[1]", "new*/x", "new/", "new?/"])
MODES = st.sampled_from(["cp", "mv", "get", "put", "rm", "cat", "see"])
CALLS = st.lists(st.tuples(MODES, NAMES, TARGETS, st.booleans()), max_size=6)
Files = dict[str, bytes]
_number = itertools.count()


@pytest.fixture(scope="module")
def fs() -> Iterator[HeadraceFileSystem]:
    with namespace(mounts={"/d": "ref://names"}) as (ns, _):
        yield HeadraceFileSystem.over(ns)


def below(files: Files, name: str) -> Files:
    """What is below a name, that name included: the rest of each name → bytes."""
    return {one[len(name) :]: data for one, data in files.items() if one == name or one.startswith(f"{name}/")}


def chosen(files: Files, name: str, recursive: bool) -> Files:
    """What a call on a name acts on. Raises what the call must raise."""
    found = below(files, name)
    if not found:
        raise FileNotFoundError
    if recursive:
        return found
    if "" not in found:
        raise IsADirectoryError
    return {"": found[""]}


def result(call: Callable[[], Any]) -> Any:
    """What it gives, or the kind of what it raises."""
    try:
        return call()
    except (FileNotFoundError, IsADirectoryError) as error:
        return type(error)


def end_of(files: Files, name: str, target: str) -> str:
    """What a name is called once it is copied: folders are copied into."""
    folder = target.rstrip("/")
    into = target.endswith("/") or (folder not in files and below(files, folder))
    return f"{folder}/{name.rpartition('/')[2]}" if into else target


def copied(files: Files, name: str, target: str, recursive: bool) -> Files:
    return {end_of(files, name, target) + rest: data for rest, data in chosen(files, name, recursive).items()}


class Both:
    """The file system below a folder of its own, and the dict that it must agree with."""

    def __init__(self, fs: HeadraceFileSystem, files: Files, local: Path) -> None:
        self.fs, self.files, self.local = fs, dict(files), local
        self.root = f"/d/{next(_number)}"
        for name, data in files.items():
            fs.pipe_file(self.at(name), data)

    def at(self, name: str) -> str:
        return f"{self.root}/{name}"

    def there(self) -> Files:
        return {name[len(self.root) + 1 :]: self.fs.cat_file(name) for name in self.fs.find(self.root)}

    def rm(self, name: str, _target: str, recursive: bool) -> None:
        wanted = result(lambda: chosen(self.files, name, recursive))
        got = result(lambda: self.fs.rm(self.at(name), recursive=recursive))
        assert got == (wanted if isinstance(wanted, type) else None)
        self.files = {
            one: data for one, data in self.files.items()
            if isinstance(wanted, type) or one not in {name + rest for rest in wanted}
        }  # fmt: skip

    def cp(self, name: str, target: str, recursive: bool) -> None:
        new = result(lambda: copied(self.files, name, target, recursive))
        # of a name that is not there fsspec makes a pattern
        absent = new is FileNotFoundError
        got = result(lambda: self.fs.cp(self.at(name), self.at(target), recursive=recursive, assume_literal=absent))
        assert got == (FileNotFoundError if absent else None)
        self.files |= {} if isinstance(new, type) else new

    def mv(self, name: str, target: str, recursive: bool) -> None:
        new = result(lambda: copied(self.files, name, target, recursive))
        got = result(lambda: self.fs.mv(self.at(name), self.at(target), recursive=recursive))
        assert got == (new if isinstance(new, type) else None)
        if not isinstance(new, type):
            for rest in chosen(self.files, name, recursive):
                del self.files[name + rest]
            self.files |= new

    def get(self, name: str, target: str, _recursive: bool) -> None:
        if name in self.files:
            with tempfile.TemporaryDirectory(dir=self.local) as folder:
                self.fs.get(self.at(name), f"{folder}/{target}")
                files = [one for one in Path(folder).rglob("*") if one.is_file()]
                got = {str(one.relative_to(folder)): one.read_bytes() for one in files}
            assert got == {end_of({}, name, target): self.files[name]}

    def put(self, name: str, target: str, _recursive: bool) -> None:
        last = name.rpartition("/")[2]
        self.fs.put(str(self.local / last), self.at(target))
        self.files[end_of(self.files, last, target)] = last.encode()

    def cat(self, name: str, _target: str, _recursive: bool) -> None:
        if name in self.files:
            assert self.fs.cat(self.at(name)) == self.files[name]
            assert self.fs.cat([self.at(name)]) == {self.at(name): self.files[name]}

    def see(self, name: str, _target: str, _recursive: bool) -> None:
        found = below(self.files, name)
        assert self.fs.exists(self.at(name)) == bool(found)
        told = result(lambda: self.fs.info(self.at(name))["type"])
        assert told == (("file" if "" in found else "directory") if found else FileNotFoundError)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    for part in PARTS:
        (folder / part).write_text(part)
    return folder


@settings(deadline=None)
@given(TREES, CALLS)
def test_a_call_on_a_name_acts_on_that_name_alone(
    fs: HeadraceFileSystem, local: Path, files: Files, calls: list[tuple[str, str, str, bool]]
) -> None:
    both = Both(fs, files, local)
    for mode, name, target, recursive in calls:
        getattr(both, mode)(name, target, recursive)
        assert both.there() == both.files, (mode, name, target, recursive)
