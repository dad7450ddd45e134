"""What is asked of an environment and what is told of one; folders that are made once; what a lock file says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.errors import CorruptError, DeadlineError, InputError, NoRoomError, TryAgainError, UnsupportedError
from headrace.jobs.environment import Environment, EnvironmentRequest, container_name
from headrace.jobs.environment.interpreter import installed
from headrace.jobs.environment.kept import KeptFolders
from headrace.jobs.environment.lockfile import local_packages
from headrace.jobs.environment.prepare import pinned
from headrace.jobs.environment.programs import ask

TEXT = st.text(max_size=20)
MAYBE = st.none() | TEXT


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({}, "host"),
        ({"python": "3.12"}, "host"),
        ({"lock": "uv.lock"}, "venv"),
        ({"lock": "deep/uv.lock", "python": "3.12"}, "venv"),
        ({"lock": "requirements/gpu.txt"}, "venv"),
        ({"image": "docker.io/library/python:3.12@sha256:00"}, "image"),
    ],
)
def test_what_can_be_asked_for(asked: dict[str, str], kind: str):
    assert EnvironmentRequest(**asked).kind == kind


@pytest.mark.parametrize(
    "asked",
    [
        {"lock": "uv.lock", "image": "a"},
        {"image": "a", "python": "3.12"},
        {"lock": "../uv.lock"},
        {"lock": "a/../../uv.lock"},
        {"lock": "/uv.lock"},
        {"lock": "poetry.lock"},
        {"lock": ""},
        {"image": ""},
        {"image": "--privileged"},
        {"image": "a b"},
        {"python": "--help"},
    ],
)
def test_what_cannot(asked: dict[str, str]):
    with pytest.raises(InputError) as caught:
        EnvironmentRequest(**asked)
    assert caught.value.hint


@given(
    st.builds(
        Environment,
        st.sampled_from(["host", "venv", "image"]),
        TEXT,
        MAYBE,
        MAYBE,
        MAYBE,
        MAYBE,
        st.lists(TEXT).map(tuple),
    )
)
def test_an_environment_is_read_as_it_was_written(one: Environment):
    told = one.as_json()
    assert told["format"] == 1
    assert Environment.from_json(told) == one
    assert Environment.from_json({**told, "added later": 1}) == one


@pytest.mark.parametrize(
    "wrong", [{"kind": "moon"}, {"digest": None}, {"packages": "a"}, {"packages": [1]}, {"image": 1}]
)
def test_what_is_no_environment_is_refused(wrong: dict[str, object]):
    told = {**Environment("host", "sha256:00").as_json(), **wrong}
    with pytest.raises(CorruptError):
        Environment.from_json(told)


A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("name", "image", "reference"),
    [
        (
            "python:3.12",
            {"RepoDigests": [f"docker.io/library/python@{A}"], "Digest": A},
            f"docker.io/library/python@{A}",
        ),
        ("host:5000/a/b:1", {"RepoDigests": [f"other/b@{A}", f"host:5000/a/b@{A}"], "Digest": A}, f"host:5000/a/b@{A}"),
        ("a:1", {"RepoDigests": [f"r/a@{B}", f"r/a@{A}"], "Digest": A}, f"r/a@{A}"),
        ("r/a:1", {"RepoDigests": [f"r/a@{B}"]}, f"r/a@{B}"),
        (f"host:5000/a@{B}", {"RepoDigests": [f"host:5000/a@{A}"], "Digest": A}, f"host:5000/a@{B}"),
        (f"host:5000/a:1@{B}", {"RepoDigests": []}, f"host:5000/a@{B}"),
        ("a:1", {"RepoDigests": [], "Id": A}, A),
        ("a:1", {"RepoDigests": None, "Id": "a" * 64}, A),
    ],
)
def test_an_image_is_recorded_with_its_digest(name: str, image: dict[str, object], reference: str):
    assert pinned(name, image) == reference


def test_a_container_is_named_by_its_run():
    assert container_name("20260101-abc_1.2") == "headrace-20260101-abc_1.2"
    for wrong in ("", "a b", "a/b", "a\n", "$x"):
        with pytest.raises(InputError):
            container_name(wrong)


# Lock files


def test_the_jobs_own_packages_are_told_from_those_to_install(tmp_path: Path):
    (tmp_path / "member/src").mkdir(parents=True)
    text = """
[[package]]
name = "job"
source = { virtual = "." }
[[package]]
name = "member"
source = { editable = "member" }
[[package]]
name = "flat"
source = { directory = "../flat" }
[[package]]
name = "numpy"
source = { registry = "https://example.org/simple" }
[[package]]
name = "local-wheel"
source = { path = "wheels/local.whl" }
"""
    found = local_packages(str(tmp_path / "uv.lock"), text.encode())
    assert [(one.name, one.source) for one in found] == [
        ("member", str(tmp_path / "member/src")),
        ("flat", str(tmp_path.parent / "flat")),
    ]
    with pytest.raises(InputError):
        local_packages(str(tmp_path / "uv.lock"), b"[[package")


@pytest.mark.parametrize("line", ["-r other.txt", "-c limits.txt", "-e .", "./here", "/there", "  --editable=x"])
def test_requirements_that_say_too_little(line: str):
    with pytest.raises(InputError, match="line 2"):
        local_packages("/x/requirements.txt", f"# what is needed\n{line}\n".encode())
    assert (
        local_packages("/x/requirements.txt", b"--index-url https://example.org\nnumpy==2.1 --hash=sha256:00\n") == ()
    )


# Folders that are made once


def make(content: str = "whole"):
    def into(folder: str) -> None:
        Path(folder, "file").write_text(content)

    return into


def names(root: Path) -> set[str]:
    return {name for name in os.listdir(root) if not name.endswith(".lock")}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("abcd"), max_size=12), st.integers(1, 4))
def test_the_last_used_stay(tmp_path_factory: pytest.TempPathFactory, uses: list[str], keep: int):
    root = tmp_path_factory.mktemp("kept")
    folders, model = KeptFolders(str(root), keep), list[str]()
    for number, key in enumerate(uses):
        held = folders.get(key, make(key), deadline=5)
        assert held.made == (key not in model)
        assert Path(held.folder, "file").read_text() == key
        held.close()
        os.utime(root / f"{key}.lock", (number, number))  # seconds apart, as far as the folders know
        model = [*(one for one in model if one != key), key]
        model = model[-keep:] if held.made else model
        assert names(root) == set(model)


def test_what_is_held_stays(tmp_path: Path):
    folders = KeptFolders(str(tmp_path), 1)
    held = [folders.get(key, make(), deadline=5) for key in ("a", "b", "c")]
    assert names(tmp_path) == {"a", "b", "c"}
    held[0].close()
    held[0].close()
    held.append(folders.get("d", make(), deadline=5))
    assert names(tmp_path) == {"b", "c", "d"}
    for one in held:
        one.close()


def test_who_uses_it_keeps_nobody_waiting(tmp_path: Path):
    one = KeptFolders(str(tmp_path), 2).get("a", make(), deadline=5)
    other = KeptFolders(str(tmp_path), 2).get("a", make(), deadline=0)
    assert (one.made, other.made, one.folder) == (True, False, other.folder)
    one.close()
    other.close()


def test_all_that_find_it_missing_at_one_time_make_it_once_and_use_it_together(tmp_path: Path):
    """Who made it goes on to use it, and the others do not wait for the end of that."""
    together, all_have_it = threading.Barrier(4), threading.Barrier(4)
    met: set[int] = set()
    made: list[str] = []
    used: list[str] = []

    def sound(folder: str) -> bool:
        there = os.path.isdir(folder)
        if threading.get_ident() not in met:  # the first look: nobody has the lock for itself
            met.add(threading.get_ident())
            together.wait(20)
        return there

    def get() -> None:
        def into(folder: str) -> None:
            made.append(folder)
            make()(folder)

        held = KeptFolders(str(tmp_path), 2).get("a", into, deadline=20, sound=sound)
        all_have_it.wait(20)
        used.append(Path(held.folder, "file").read_text())
        held.close()

    threads = [threading.Thread(target=get) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert (len(made), used) == (1, ["whole"] * 4)


def test_what_fails_leaves_nothing_and_may_be_tried_again(tmp_path: Path):
    folders = KeptFolders(str(tmp_path), 2)

    def fails(folder: str) -> None:
        Path(folder, "half").write_text("half")
        raise InputError("no")

    with pytest.raises(InputError):
        folders.get("a", fails, deadline=5)
    assert names(tmp_path) == set()
    folders.get("a", make(), deadline=5).close()
    assert names(tmp_path) == {"a"}


def test_what_is_not_sound_any_more_is_made_anew(tmp_path: Path):
    folders = KeptFolders(str(tmp_path), 2)
    folders.get("a", make("old"), deadline=5).close()

    def sound(folder: str) -> bool:
        return os.path.isfile(os.path.join(folder, "file")) and Path(folder, "file").read_text() == "new"

    held = folders.get("a", make("new"), deadline=5, sound=sound)
    assert (held.made, Path(held.folder, "file").read_text()) == (True, "new")
    held.close()
    assert names(tmp_path) == {"a"}


def test_many_at_once_make_it_once(tmp_path: Path):
    made: list[int] = []
    waited: list[int] = []
    began = threading.Event()

    def slowly(folder: str) -> None:
        made.append(1)
        began.set()
        until = time.monotonic() + 20
        while len(waited) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        make()(folder)

    def get() -> None:
        folders = KeptFolders(str(tmp_path), 2)
        held = folders.get("a", slowly, deadline=30, waiting=lambda: waited.append(1))
        assert Path(held.folder, "file").read_text() == "whole"
        held.close()

    first = threading.Thread(target=get)
    first.start()
    assert began.wait(10)
    with pytest.raises(TryAgainError, match="another process"):
        KeptFolders(str(tmp_path), 2).get("a", make(), deadline=0.2)
    others = [threading.Thread(target=get) for _ in range(5)]
    for one in others:
        one.start()
    for one in (first, *others):
        one.join(30)
    assert (len(made), len(waited)) == (1, 5)


KILLED = """
import os, signal, sys
from headrace.jobs.environment.kept import KeptFolders
def make(folder):
    open(os.path.join(folder, "file"), "w").write("half")
    os.kill(os.getpid(), signal.SIGKILL)
KeptFolders(sys.argv[1], 2).get(sys.argv[2], make, deadline=5)
"""


def test_killed_while_making_nothing_counts_and_what_it_left_goes(tmp_path: Path):
    for key in ("a", "b"):
        assert (
            subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), key], check=False, timeout=60).returncode == -9
        )
    assert {name[:7] for name in names(tmp_path)} == {".new-a-", ".new-b-"}
    held = KeptFolders(str(tmp_path), 2).get("a", make(), deadline=5)
    assert Path(held.folder, "file").read_text() == "whole"
    held.close()
    assert names(tmp_path) == {"a"}, "what was left of the other key stays for ever"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    if os.getuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "small", where], check=False).returncode:
        pytest.skip("mounting a small disk takes root")
    yield where
    subprocess.run(["umount", where], check=True)


def test_a_full_disk_is_told_and_leaves_room(small_disk: Path):
    def big(folder: str) -> None:
        Path(folder, "file").write_bytes(b"x" * (2 << 20))

    folders = KeptFolders(str(small_disk), 2)
    with pytest.raises(NoRoomError):
        folders.get("a", big, deadline=5)
    folders.get("a", make(), deadline=5).close()
    assert names(small_disk) == {"a"}


# Programs of others


def test_a_program_is_heard(tmp_path: Path):
    told: list[str] = []
    script = "echo out; echo one >&2; printf two >&2; pwd; exit 3"
    answer = ask(["/bin/sh", "-c", script], {"A": "1"}, folder=str(tmp_path), deadline=20, tell=told.append)
    assert (answer.code, answer.out, answer.lines) == (3, f"out\n{tmp_path}\n", ("one", "two"))
    assert told == ["one", "two"]
    with pytest.raises(UnsupportedError):
        ask(["/nowhere/program"], {}, deadline=5)


def test_a_program_that_does_not_end_is_ended_with_its_children(tmp_path: Path):
    began = time.monotonic()
    with pytest.raises(DeadlineError, match="last words: up"):
        ask(["/bin/sh", "-c", f"echo up >&2; sleep 60 & echo $! > {tmp_path}/pid; wait"], os.environ, deadline=2.0)
    assert time.monotonic() - began < 30
    child = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while _lives(child):
        assert time.monotonic() < until
        time.sleep(0.02)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# What is installed


def test_what_is_installed_is_what_the_standard_library_finds(tmp_path: Path):
    """Also where a description looks like a head, an egg is a file, and of a removed one a part is left."""
    def lay(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())

    lay("A_b.c-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: A_b.c\nVersion: 1.0\n\nName: no\nVersion: 9\n")
    lay("dos-2.dist-info/METADATA", "Name: dos\r\nVersion: 2\r\n\r\nName: no\r\n")
    lay("egg-3.egg-info/PKG-INFO", "name: egg\nVERSION: 3\n")
    lay("file-4.egg-info", "Name: file\nVersion: 4\n")
    lay("half-5.dist-info/RECORD", "")
    assert installed([str(tmp_path)]) == ("a-b-c==1.0", "dos==2", "egg==3", "file==4")
    ours = [folder for folder in sys.path if os.path.isdir(folder)]
    known: dict[str, str] = {}
    for one in distributions(path=ours):
        known.setdefault(re.sub("[-_.]+", "-", one.metadata["Name"]).lower(), one.version)
    assert installed(sys.path) == tuple(f"{name}=={version}" for name, version in sorted(known.items()))
