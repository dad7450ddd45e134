"""What a name stands for, through every door: the namespace, a URL, a snapshot, or a file or folder in front of one."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

import headrace as hr
from headrace.base.errors import InputError, NotFoundError
from headrace.base.settings import Settings
from headrace.catalog.snapshot import take_snapshot
from headrace.namespace import Namespace
from headrace.pack import pack, unpack
from headrace.sync import Sync, statuses


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with ten images in it, a home of its own, and `/data/set` attached."""
    work = tmp_path / "work"
    for number in range(10):
        path = work / "images" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    (work / "images/deep").mkdir()
    (work / "images/deep/10.txt").write_text("10")
    (tmp_path / "attached").mkdir()
    (tmp_path / "attached/a.txt").write_text("attached")
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(work))
    monkeypatch.setenv("HEADRACE_HOME", f"file://{tmp_path}/home")
    monkeypatch.setenv("HEADRACE_CACHE_DIR", str(tmp_path / "cache"))
    return work


@pytest.fixture
def space(here: Path) -> Namespace:
    made = Namespace.load()
    made.attach("/data/set", f"file://{here.parent}/attached")
    return made


NAMES: dict[str, Callable[[Path], Any]] = {
    "relative": lambda here: "images",
    "with a dot": lambda here: "./images",
    "with a slash at the end": lambda here: "images/",
    "up and down": lambda here: "../work/images",
    "below home": lambda here: "~/images",
    "absolute": lambda here: str(here / "images"),
    "a path object": lambda here: Path("images"),
    "an absolute path object": lambda here: here / "images",
    "a URL": lambda here: f"file://{here}/images",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_door_opens_a_folder_here(here: Path, space: Namespace, name: str) -> None:
    given = NAMES[name](here)
    one = given / "3.txt" if isinstance(given, Path) else f"{given.rstrip('/')}/3.txt"
    assert len(hr.Dataset.open(given)) == 11
    assert len(hr.Dataset.open(given, namespace=space)) == 11
    assert bytes(space.read(one)) == b"3"
    assert space.open(one, "r").read() == "3"
    assert space.stat(one).size == 1
    assert space.exists(one)
    assert len(list(space.walk(given))) == 11
    assert len(space.list(given)) == 11
    space.write(one, b"three")
    assert (here / "images/3.txt").read_text() == "three"
    space.copy(one, "copied/3.txt")
    assert (here / "copied/3.txt").read_text() == "three"
    space.delete("copied/3.txt")
    assert not (here / "copied/3.txt").exists()
    assert space.resolve(one).store.local_root is not None


def test_what_is_packed_unpacked_and_synced_may_lie_here(here: Path) -> None:
    packed = pack("images", Path("shards"))
    assert packed.samples == 11
    assert len(hr.Dataset.open("shards")) == 11
    unpack("shards", "again")
    assert (here / "again/deep/10.txt").read_text() == "10"
    with Sync.open("images", "mirror") as sync:
        assert sync.finish(30).files == 11
    assert (here / "mirror/3.txt").read_text() == "3"


def test_fsspec_names_files_here_as_it_was_asked(here: Path) -> None:
    system = fsspec.filesystem("headrace")
    folder = str(here / "images")
    assert system.ls(folder, detail=False)[0] == f"{folder}/0.txt"
    assert max(system.find(folder)) == f"{folder}/deep/10.txt"
    assert system.cat(f"headrace://{folder}/3.txt") == b"3"
    assert system.glob(f"{folder}/1*.txt") == [f"{folder}/1.txt"]


def test_one_tar_here(here: Path) -> None:
    with tarfile.open(here / "one.tar", "w") as tar:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.txt")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    assert len(hr.Dataset.open("one.tar")) == 3


def test_what_is_attached_comes_first_and_that_is_said_once(
    here: Path, space: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    both = str(here / "images")
    space.attach(both, f"file://{here.parent}/attached")
    with caplog.at_level(logging.WARNING, "headrace.namespace"):
        for _ in range(3):
            assert [entry.name for entry in space.list(both)] == ["a.txt"]
            assert len(hr.Dataset.open(both, namespace=space)) == 1
    assert [f"file://{both}" in one.message for one in caplog.records] == [True]
    assert len(hr.Dataset.open("images", namespace=space)) == 11, "a relative name is never one of the namespace"


def test_what_is_beside_an_attachment_is_of_this_machine(space: Namespace) -> None:
    assert [entry.name for entry in space.list("/data")] == ["set"]
    assert bytes(space.read("/data/set/a.txt")) == b"attached"
    with pytest.raises(NotFoundError):
        space.read("/data/sets/a.txt")


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ("nowhere", NotFoundError, "nowhere"),
        ("./nowhere", NotFoundError, "no such file or folder"),
        (Path("nowhere"), NotFoundError, "no such file or folder"),
        ("/no/such/folder", NotFoundError, "nothing is attached here"),
        ("s3:/bucket/data", InputError, "did you mean s3://bucket/data"),
        (Path("s3://bucket/data"), InputError, "did you mean s3://bucket/data"),
        ("", InputError, "empty"),
        ("a\0b", InputError, "NUL"),
    ],
)
def test_what_is_nowhere_says_what_could_be_meant(here: Path, given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        hr.Dataset.open(given)


def test_a_snapshot_comes_before_a_folder_of_its_name(here: Path, space: Namespace) -> None:
    from headrace.catalog.snapshot import take_snapshot

    assert len(hr.Dataset.open("images")) == 11, "there is no snapshot of that name"
    take_snapshot("images/deep", "images", namespace=space, settings=Settings.load())
    assert len(hr.Dataset.open("images")) == 1
    assert len(hr.Dataset.open("./images")) == 11
    assert len(hr.Dataset.open(Path("images"))) == 11
    (here / "images@v9").mkdir()
    (here / "images@v9/a.txt").write_text("a")
    (here / "images@v9/b.txt").write_text("b")
    assert len(hr.Dataset.open("images@v1")) == 1
    assert len(hr.Dataset.open("images@v9")) == 2


def test_a_relative_name_means_the_same_in_every_process_and_folder(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = hr.Dataset.open("images")
    copy = pickle.dumps(dataset)
    monkeypatch.chdir("/")
    assert len(pickle.loads(copy)) == 11
    command = "import pickle, sys; print(len(list(pickle.load(sys.stdin.buffer).loader())))"
    told = subprocess.run([sys.executable, "-c", command], input=copy, capture_output=True, check=True, cwd="/")
    assert int(told.stdout) == 11
    space = Namespace.load()
    monkeypatch.chdir(here / "images")
    assert bytes(space.read("3.txt")) == b"3"
    monkeypatch.chdir(here / "images/deep")
    with pytest.raises(NotFoundError):
        space.read("3.txt")


def test_a_mount_shows_what_is_attached_and_nothing_else_of_this_machine(space: Namespace) -> None:
    alone = Namespace.load(local=False)
    alone.attach("/data/set", space.mounts()[0].url)
    assert bytes(alone.read("/data/set/a.txt")) == b"attached"
    for path in ("/etc/hostname", "/data/other", str(Path("images").absolute())):
        with pytest.raises(NotFoundError, match="no store is attached"):
            alone.read(path)
    with pytest.raises(InputError):
        alone.read("images/3.txt")
    assert pickle.loads(pickle.dumps(alone)).mounts() == alone.mounts()
    with pytest.raises(InputError):
        pickle.loads(pickle.dumps(alone)).read("images/3.txt")


def test_the_command_line_and_python_agree(here: Path) -> None:
    for given in ("images", "./images", str(here / "images"), f"file://{here}/images", "~/images"):
        told = subprocess.run(
            [sys.executable, "-m", "headrace.cli", "ls", given, "--json"],
            capture_output=True, check=True, text=True, env=os.environ,
        )  # fmt: skip
        listed = {each["path"].removeprefix("file://") for each in json.loads(told.stdout)}
        assert listed == {entry.path.removeprefix("file://") for entry in Namespace.load().list(given)}, given


def test_what_is_kept_of_a_name_is_of_any_folder(here: Path, space: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot of a relative path, and a sync to one, mean the same from elsewhere."""
    take_snapshot("images", "pictures", "v1", namespace=space, settings=Settings.load())
    Sync.open(str(here / "images"), "there", namespace=space).close()
    monkeypatch.chdir(here.parent)
    (known,) = [one for one in statuses(Settings.load().sync.state) if one.folder == str(here / "images")]
    assert known.destination == f"file://{here}/there"
    assert len(hr.Dataset.open("pictures@v1", namespace=space)) == 11


@pytest.mark.parametrize("made", [(), ("my data",), ("my%20data",), ("my data", "my%20data")])
@pytest.mark.parametrize("below", ["", "/", "/new.txt"])
def test_a_url_with_escapes_is_no_other_folder_in_silence(
    here: Path, space: Namespace, made: tuple[str, ...], below: str
) -> None:
    for name in made:
        (here / name).mkdir()
    url = (here / "my data").as_uri() + below
    if "my%20data" in made:
        assert space.named(url) == url
    else:
        with pytest.raises(InputError, match="without percent escapes") as caught:
            space.named(url)
        assert "my data" in (caught.value.hint or "")
        with pytest.raises(InputError):
            space.write(url, b"x")
        with pytest.raises(InputError):
            space.attach("/escaped", url)
    assert sorted(path.name for path in here.iterdir() if path.name.startswith("my")) == sorted(made)


@pytest.mark.parametrize("name", ["100%", "a%zz", "50% off", "a b"])
def test_a_percent_sign_alone_is_no_escape(here: Path, space: Namespace, name: str) -> None:
    space.write(f"file://{here}/{name}/x", b"x")
    assert (here / name / "x").read_bytes() == b"x"
