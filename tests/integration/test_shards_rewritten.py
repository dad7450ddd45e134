"""Shards that are written again, added or removed on purpose, while a listing of them is still trusted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace as hr
from headrace.base.errors import ChangedError, NotFoundError
from headrace.base.settings import Settings
from headrace.namespace import Namespace
from headrace.testing.servers import EmbeddedS3
from tests.tar_kit import tar_of


def shard(first: int, count: int) -> bytes:
    return tar_of([(f"{number:03d}.txt", b"x" * 600) for number in range(first, first + count)])


def put(path: Path, content: bytes) -> None:
    """As programs do that write beside and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(content)
    os.replace(beside, path)


def nothing_of(folder: Path) -> None:
    shutil.rmtree(folder / "deep")


CHANGES: dict[str, tuple[Callable[[Path], object], int]] = {
    "written again, longer": (lambda folder: put(folder / "a.tar", shard(0, 9)), 14),
    "written again, shorter": (lambda folder: put(folder / "a.tar", shard(0, 1)), 6),
    "added": (lambda folder: put(folder / "c.tar", shard(90, 2)), 12),
    "added in a folder": (lambda folder: put(folder / "deep/c.tar", shard(90, 2)), 12),
    "added in a new folder": (lambda folder: put(folder / "new/er/c.tar", shard(90, 2)), 12),
    "removed": (lambda folder: (folder / "a.tar").unlink(), 5),
    "a folder removed": (nothing_of, 5),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_folder_of_this_machine_is_seen_as_it_is(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "set"
    put(folder / "a.tar", shard(0, 5))
    put(folder / "deep/b.tar", shard(50, 5))
    assert len(hr.Dataset.open(folder)) == 10
    change, left = CHANGES[how]
    change(folder)
    assert len(list(hr.Dataset.open(folder))) == left
    assert len(list(hr.Dataset.open(folder))) == left


def test_what_has_not_changed_is_not_listed_again(tmp_path: Path) -> None:
    """But for what was changed just before it was listed: the clock of file times may not tell."""
    folder = tmp_path / "set"
    put(folder / "a.tar", shard(0, 5))
    for each in (folder, folder / "a.tar"):
        os.utime(each, (1e9, 1e9))
    assert len(hr.Dataset.open(folder)) == 5
    (folder / "a.tar").write_bytes(shard(0, 7))  # in place: a folder does not tell of that
    assert len(hr.Dataset.open(folder)) == 5
    assert len(hr.Dataset.open(folder, refresh=True)) == 7


@pytest.mark.server
def test_of_a_bucket_it_is_said_how_to_see_it(seaweedfs: EmbeddedS3) -> None:
    seaweedfs.create_bucket("rewritten")
    options = seaweedfs.options()
    space = Namespace(Settings())
    space.attach(
        "/", "s3://rewritten", endpoint=seaweedfs.endpoint,
        access_key_id=options.access_key_id, secret_access_key=options.secret_access_key,
    )  # fmt: skip
    space.write("/set/a.tar", shard(0, 5))
    assert len(hr.Dataset.open("/set", namespace=space)) == 5
    space.write("/set/a.tar", shard(0, 9))
    with pytest.raises(ChangedError) as caught:
        list(hr.Dataset.open("/set", namespace=space))
    assert "refresh=True" in str(caught.value.hint) or "headrace cache refresh" in str(caught.value.hint)
    assert len(list(hr.Dataset.open("/set", namespace=space, refresh=True))) == 9
    assert len(list(hr.Dataset.open("/set", namespace=space))) == 9, "it is the listing that counts now"
    space.write("/set/b.tar", shard(50, 5))
    assert len(list(hr.Dataset.open("/set", namespace=space, refresh=True))) == 14
    space.delete(["/set/a.tar", "/set/b.tar"])
    with pytest.raises(NotFoundError):
        hr.Dataset.open("/set", namespace=space, refresh=True)
