"""What a crash leaves that nobody was promised: kept and told of until it is in the store, or its owner takes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.mount.write_back.staging import Staging
from tests.staging_kit import FILE, PATIENT, Killed, World


def crashed(made: World, **written: bytes) -> Staging:
    """A mount after one that was killed while all these were open."""
    for name, data in written.items():
        made.staging.create(f"/d/{name}", FILE).write(0, data)
    return made.crash()


def again(made: World) -> Staging:
    """The next mount of the same folder."""
    made.staging.close()
    made.staging = Staging(str(made.folder), made.ns, PATIENT)
    made.staging.recover()
    return made.staging


def until(true: Callable[[], bool], what: object = None) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def kept(staging: Staging) -> dict[str, bytes]:
    return {one.path: Path(one.file).read_bytes() for one in staging.orphans()}


def looked_at(made: World) -> None:
    """Everything that is left has been looked at."""
    until(lambda: not made.staging._queue.orphans.busy)


def test_told_of_until_its_owner_takes_it(memory: World) -> None:
    recovered = crashed(memory, a=b"first", b=b"second").recover()
    left = memory.staging.orphans()
    assert {one.path: (one.bytes, one.absent) for one in left} == {"/d/a": (5, 0), "/d/b": (6, 0)}
    assert sorted(one.file for one in left) == sorted(recovered.orphans)
    assert kept(again(memory)) == {"/d/a": b"first", "/d/b": b"second"}
    os.unlink(next(one.file for one in left if one.path == "/d/a"))
    assert kept(memory.staging) == {"/d/b": b"second"}
    assert kept(again(memory)) == {"/d/b": b"second"}


def test_it_goes_once_its_name_holds_it(any_world: World) -> None:
    crashed(any_world, same=b"0123456789", begins=b"0123", other=b"mine", shorter=b"all of it").recover()
    looked_at(any_world)
    assert len(any_world.staging.orphans()) == 4, "what was never published is gone"
    any_world.write("/d/same", b"0123456789")
    any_world.write("/d/begins", b"0123456789")
    any_world.write("/d/other", b"another's")
    any_world.write("/d/shorter", b"all")
    until(lambda: len(any_world.staging.orphans()) == 2, any_world.staging.orphans())
    looked_at(any_world)
    assert kept(any_world.staging) == {"/d/other": b"mine", "/d/shorter": b"all of it"}
    assert kept(again(any_world)) == {"/d/other": b"mine", "/d/shorter": b"all of it"}


def test_what_others_published_meanwhile_is_found_at_the_next_mount(memory: World) -> None:
    crashed(memory, f=b"content", g=b"content").recover()
    looked_at(memory)
    memory.store.inner.put("f", b"content and more")
    assert len(memory.staging.orphans()) == 2
    staging = again(memory)
    until(lambda: len(staging.orphans()) == 1)
    looked_at(memory)
    assert kept(staging) == {"/d/g": b"content"}


def test_while_the_store_is_away_nothing_goes(memory: World) -> None:
    crashed(memory, f=b"content")
    memory.store.inner.put("f", b"content")
    memory.store.down = True
    memory.staging.recover()
    looked_at(memory)
    assert kept(memory.staging) == {"/d/f": b"content"}
    memory.store.down = False
    staging = again(memory)
    until(lambda: staging.orphans() == [])


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_again_while_it_is_set_aside(memory: World, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """The bytes are in one of two places at any instant, and the next mount knows of them."""
    crashed(memory, f=b"half a file")
    rename = os.rename

    def killed(old: str, new: str) -> None:
        if when == "after":
            rename(old, new)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", killed)
        with pytest.raises(Killed):
            memory.staging.recover()
    assert kept(again(memory)) == {"/d/f": b"half a file"}
    assert kept(again(memory)) == {"/d/f": b"half a file"}


def test_files_of_earlier_versions_are_told_of_and_stay(memory: World) -> None:
    folder = memory.folder / "left"
    folder.mkdir()
    (folder / "20250101T000000-7-name").write_bytes(b"old")
    memory.store.put("name", b"old")
    staging = again(memory)
    orphans = [(one.path, one.bytes, Path(one.file).name) for one in staging.orphans()]
    assert orphans == [("", 3, "20250101T000000-7-name")]
