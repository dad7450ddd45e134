"""Names that the store cannot hold are refused when they are made, before anything is staged or sent."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.base.errors import HeadraceError
from headrace.mount.kernel.error_numbers import errno_of
from headrace.mount.write_back.object_metadata import LINK_SUFFIX
from headrace.store import StoreOptions
from tests.staging_kit import FILE, FOLDER, Killed, World, key_of, world

LONGEST = 1024


@contextmanager
def refused(code: int) -> Iterator[None]:
    with pytest.raises(HeadraceError) as caught:
        yield
    assert errno_of(caught.value) == code


def staged(made: World) -> list[str]:
    return [name for _, _, names in os.walk(made.folder / "files") for name in names]


def makers(made: World) -> dict[str, Callable[[str], object]]:
    """All that makes a name."""
    return {
        "create": lambda path: made.staging.create(path, FILE),
        "mkdir": lambda path: made.staging.mkdir(path, FOLDER),
        "symlink": lambda path: made.staging.symlink(path, "target"),
        "rename": lambda path: made.staging.rename("/d/object", path),
        "rename of what is staged": lambda path: made.staging.rename("/d/fresh", path),
    }


@pytest.fixture
def away(tmp_path: Path) -> Iterator[World]:
    """Over S3 with a prefix, where nobody answers: what asks the store fails otherwise."""
    nowhere = StoreOptions(endpoint="http://127.0.0.1:9", anonymous=True, region="us-east-1", timeout_s=0.2, retries=0)
    with world(tmp_path, "s3://bucket/pre/fix", nowhere) as made:
        yield made


def test_too_long_for_s3_with_its_prefix(away: World) -> None:
    longest = LONGEST - len("pre/fix/")
    for what, make in makers(away).items():
        with refused(errno.ENAMETOOLONG):
            make("/d/" + key_of(longest + 1))
        assert (what, staged(away), away.store.calls) == (what, [], [])
    with refused(errno.ENAMETOOLONG):  # by the marker's slash
        away.staging.mkdir("/d/" + key_of(longest), FOLDER)
    with refused(errno.ENAMETOOLONG):
        away.staging.symlink("/d/" + key_of(longest - len(LINK_SUFFIX) + 1), "target")
    file = away.staging.create("/d/" + key_of(longest), FILE)
    assert len(staged(away)) == 1
    away.staging.unlink(file.path)
    file.release()


def test_characters_that_the_store_cannot_hold(memory: World) -> None:
    memory.store.put("object", b"1")
    fresh = memory.staging.create("/d/fresh", FILE)
    for what, make in makers(memory).items():
        with refused(errno.EINVAL):
            make("/d/a\nb")
        assert (what, len(staged(memory)), memory.objects()) == (what, 1, {"object": b"1"})
    assert memory.staging.find("/d/fresh") is fresh
    fresh.release()
    assert memory.staging.backlog() == []
    assert memory.objects() == {"fresh": b"", "object": b"1"}


def test_a_key_that_the_server_takes_for_another(s3: World) -> None:
    """SeaweedFS does: it is asked at the first such name, and not before."""
    s3.write("/d/object", b"1")
    assert s3.store.calls == ["put"]
    with refused(errno.EINVAL):
        s3.staging.create("/d/a\\b", FILE)
    with refused(errno.EINVAL):
        s3.staging.rename("/d/object", "/d/a\\b")
    assert (staged(s3), s3.objects()) == ([], {"object": b"1"})


def test_a_folder_is_not_renamed_where_something_below_would_be_too_long(s3: World) -> None:
    below = key_of(LONGEST - len("old/"))
    before = {"old/a": b"a", f"old/{below}": b"b"}
    for key, data in before.items():
        s3.store.put(key, data)
    s3.store.calls.clear()
    with refused(errno.ENAMETOOLONG):
        s3.staging.rename("/d/old", "/d/older")
    assert "copy" not in s3.store.calls
    assert s3.objects() == before
    assert not s3.staging.hides_any
    fresh = s3.staging.create(f"/d/other/{key_of(LONGEST - len('other/'))}", FILE)
    with refused(errno.ENAMETOOLONG):
        s3.staging.rename("/d/other", "/d/another", folder=True)
    assert fresh.path.startswith("/d/other/")
    fresh.release()


def test_a_rename_that_a_crash_broke_off_is_undone_where_it_can_never_end(s3: World) -> None:
    """Its second page holds a name that would be too long: the first was being copied when the mount was killed."""
    keys = [f"old/{number:04d}" for number in range(1000)] + [f"old/{key_of(LONGEST - len('old/'))}"]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: s3.store.put(key, key[-4:].encode()), keys))
    s3.kill_after(10)
    with pytest.raises(Killed):
        s3.staging.rename("/d/old", "/d/newer", folder=True)
    again = s3.crash()
    assert any(key.startswith("newer/") for key in s3.objects()), "killed too early: this proves nothing"
    assert again.recover().renames == ("/d/old",)
    assert again.drain(60), again.backlog()
    assert sorted(s3.objects()) == sorted(keys)
    s3.write(f"/d/newer/{secrets.token_hex(2)}", b"may be written")
