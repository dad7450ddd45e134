"""What open files, renames and closes come to, in any order: the same on the mount as in a plain folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, rigged

pytestmark = pytest.mark.server
NAMES = ("a", "b", "sub/a", "sub/b")
FLAGS = (os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_RDONLY,
         os.O_WRONLY | os.O_APPEND)  # fmt: skip
names, handles = st.sampled_from(NAMES), st.integers(0, 2)
Step = tuple[Any, ...]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("open"), handles, names, st.sampled_from(FLAGS)),
    st.tuples(st.just("write"), handles, st.sampled_from((1, 4096, 70_000))),
    st.tuples(st.just("fsync"), handles),
    st.tuples(st.just("cut"), handles, st.sampled_from((0, 3))),
    st.tuples(st.just("close"), handles),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("rename"), st.just("sub"), st.just("moved")),
    st.tuples(st.just("rename"), st.just("moved"), st.just("sub")),
    st.tuples(st.just("unlink"), names),
    st.tuples(st.just("chmod"), names, st.sampled_from((0o600, 0o640))),
    st.tuples(st.just("look"), names),
)
WRITTEN = [("open", 0, "a", FLAGS[0]), ("write", 0, 4096)]


class World:
    """One folder, and what is open in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.open: dict[int, int] = {}
        (root / "sub").mkdir(parents=True)

    def step(self, what: str, *given: Any) -> Any:
        """What it gives, or the number of its error."""
        try:
            return getattr(self, f"do_{what}")(*given)
        except OSError as error:
            return error.errno

    def do_open(self, handle: int, name: str, flags: int) -> None:
        self.do_close(handle)
        self.open[handle] = os.open(self.root / name, flags, 0o600)

    def do_write(self, handle: int, size: int) -> int | None:
        return os.write(self.open[handle], bytes([65 + handle]) * size) if handle in self.open else None

    def do_fsync(self, handle: int) -> None:
        if handle in self.open:
            os.fsync(self.open[handle])

    def do_cut(self, handle: int, size: int) -> None:
        if handle in self.open:
            os.ftruncate(self.open[handle], size)

    def do_close(self, handle: int) -> None:
        if handle in self.open:
            os.close(self.open.pop(handle))

    def do_rename(self, old: str, new: str) -> None:
        os.rename(self.root / old, self.root / new)

    def do_unlink(self, name: str) -> None:
        os.unlink(self.root / name)

    def do_chmod(self, name: str, mode: int) -> None:
        os.chmod(self.root / name, mode)

    def do_look(self, name: str) -> tuple[int, int, bytes]:
        status = os.stat(self.root / name)
        return status.st_size, status.st_mode, (self.root / name).read_bytes()

    def end(self) -> dict[str, tuple[int, int, bytes]]:
        """All closed; what is there."""
        for handle in list(self.open):
            self.do_close(handle)
        files = [path for path in self.root.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.root)): self.do_look(str(path.relative_to(self.root))) for path in files}


@pytest.fixture(scope="module")
def rig(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, HEADRACE_MOUNT_METADATA="full") as made:
        yield made
        made.stop()


@pytest.fixture(scope="module")
def fresh(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], tuple[World, World]]:
    plain, count = tmp_path_factory.mktemp("plain"), iter(range(1 << 30))

    def make() -> tuple[World, World]:
        name = str(next(count))
        return World(Path(rig.folder, name)), World(plain / name)

    return make


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, min_size=2, max_size=14))
@example([*WRITTEN, ("fsync", 0), ("rename", "a", "b"), ("close", 0), ("look", "b")])
@example([*WRITTEN, ("fsync", 0), ("rename", "a", "b"), ("close", 0), ("open", 1, "b", FLAGS[4]), ("write", 1, 1)])
@example([*WRITTEN, ("fsync", 0), ("rename", "a", "b"), ("close", 0), ("chmod", "b", 0o640), ("look", "b")])
@example([*WRITTEN, ("fsync", 0), ("rename", "a", "b"), ("open", 1, "b", FLAGS[3]), ("close", 0), ("look", "b")])
@example([*WRITTEN, ("fsync", 0), ("rename", "a", "b"), ("rename", "b", "sub/a"), ("close", 0), ("look", "sub/a")])
@example([("open", 0, "sub/a", FLAGS[1]), ("write", 0, 70_000), ("fsync", 0), ("rename", "sub", "moved"), ("close", 0)])
@example([*WRITTEN, ("fsync", 0), ("rename", "a", "b"), ("unlink", "b"), ("close", 0), ("look", "b")])
@example([*WRITTEN, ("rename", "a", "b"), ("write", 0, 1), ("close", 0), ("look", "b")])
def test_steps_in_any_order_come_to_the_same(fresh: Callable[[], tuple[World, World]], steps: list[Step]) -> None:
    mounted, plain = fresh()
    try:
        for step in steps:
            assert mounted.step(*step) == plain.step(*step), step
        assert mounted.end() == plain.end()
    finally:
        for world in (mounted, plain):
            with suppress(OSError):
                world.end()
            shutil.rmtree(world.root, ignore_errors=True)


def test_what_is_renamed_as_soon_as_it_is_closed_is_whole(rig: Rig) -> None:
    """The mount hears of a close after the program goes on: many times, so that the rename comes first now and then."""
    wrong: list[tuple[int, bytes]] = []
    for number in range(1500):
        name = Path(rig.folder, f"closed-{number % 7}")
        name.write_bytes(b"text")
        name.rename(f"{name}.bak")
        got = Path(f"{name}.bak").read_bytes()
        if got != b"text":
            wrong.append((number, got))
    assert wrong == []
