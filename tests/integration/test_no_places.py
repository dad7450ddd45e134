"""Machines that lack what others have: a home, an account, a folder for temporary files. As containers are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without an account")

_SOMEBODY = ["setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]
_READS_ALL = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
"""Wherever the checkout and the interpreter lie."""
_NOBODY_WRITES = (
    "mount --bind /tmp /mnt; "
    "for d in /tmp /var/tmp /dev/shm /run; do mount --bind $d $d; mount -o remount,ro,bind $d; done; "
    'mount -o remount,ro,bind /; cd "$0"; exec "$@"'
)

HOMES = {
    "no home": {},
    "a home that nobody may write to": {"HOME": "/"},
    "a home that is not": {"HOME": "/nonexistent"},
}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """With a folder ``data`` of three files, and ``out``, that anybody may write to."""
    (tmp_path / "data").mkdir()
    for number in range(3):
        (tmp_path / f"data/{number}").write_bytes(b"some bytes")
    for name in ("out", "home", "point"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    yield tmp_path
    shutil.rmtree("/tmp/headrace-run-12345", ignore_errors=True)  # where somebody's mounts would be noted


@pytest.fixture(params=[*HOMES, "nothing that can be written"])
def run(request: pytest.FixtureRequest, place: Path) -> Run:
    """``headrace`` in that place, as somebody without an account."""
    sealed = request.param not in HOMES
    variables = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1", "HEADRACE_HOME": f"file://{place}/home"}

    def call(*argv: str, folder: str = "/", **more: str) -> subprocess.CompletedProcess[str]:
        before = ["unshare", "-m", "--propagation", "private", "sh", "-c", _NOBODY_WRITES, folder] if sealed else []
        told = [f"{name}={value}" for name, value in (variables | HOMES.get(request.param, {}) | more).items()]
        command = [*before, *_SOMEBODY, *_READS_ALL, "env", "-i", *told, sys.executable, *argv]
        if sealed:  # what lies in /tmp is seen at /mnt
            command = [one.replace(str(place), str(place).replace("/tmp", "/mnt", 1)) for one in command]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        assert "internal" not in done.stderr, done.stderr
        assert done.returncode != 70, done.stderr
        return done

    call.sealed = sealed  # type: ignore[attr-defined]
    return call


@pytest.fixture(autouse=True)
def _below_tmp(place: Path) -> None:
    if not str(place).startswith("/tmp/"):
        pytest.skip("the temporary folder is not /tmp")


def headrace(run: Run, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "headrace", *argv, **more)


def test_reading_needs_no_home(run: Run, place: Path) -> None:
    data = f"file://{place}/data"
    for argv, shown in (
        (("ls", data), "0\n1\n2\n"),
        (("cat", f"{data}/1"), "some bytes"),
        (("du", data), "30"),
        (("cp", f"{data}/1", f"{place}/out/copy"), ""),
        (("runs",), "no runs yet"),
        (("snapshots",), "no snapshots yet"),
        (("mounts",), "nothing is attached"),
    ):
        done = headrace(run, *argv)
        assert done.returncode == 0, (argv, done.stderr)
        assert shown in done.stdout, argv
        for line in done.stderr.splitlines():
            assert "HEADRACE_CACHE_DIR" in line or line.startswith("copied"), argv
    assert (place / "out/copy").read_bytes() == b"some bytes"


def test_a_loader_reads_where_a_temporary_folder_is(run: Run, place: Path) -> None:
    code = f"import headrace as hr; print(sum(1 for _ in hr.Dataset.open('file://{place}/data').batch(1)))"
    done = run("-c", code)
    if run.sealed:  # type: ignore[attr-defined]
        assert done.returncode != 0
        assert "HEADRACE_CACHE_DIR" in done.stderr
        assert "TMPDIR" in done.stderr
        done = run("-c", code, TMPDIR=f"{place}/out")
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr


@pytest.mark.parametrize(
    ("argv", "variable"),
    [
        (("cache", "status"), "HEADRACE_CACHE_DIR"),
        (("load", "file://{place}/data"), "HEADRACE_CACHE_DIR"),
        (("doctor",), "HEADRACE_CACHE_DIR"),
        (("sync", "{place}/data", "file://{place}/out/sync"), "HEADRACE_SYNC_STATE"),
        (("run", "--", "true"), "HEADRACE_RUN_STATE"),
        (("mount", "file://{place}/data", "{place}/point"), "HEADRACE_MOUNT_STAGING"),
    ],
)
def test_what_needs_a_place_names_the_variable(run: Run, place: Path, argv: tuple[str, ...], variable: str) -> None:
    sealed = run.sealed  # type: ignore[attr-defined]
    done = headrace(run, *(one.format(place=place) for one in argv))
    assert done.returncode != 0
    wanted = "TMPDIR" if sealed and variable == "HEADRACE_MOUNT_STAGING" else variable
    assert wanted in done.stderr + done.stdout


def test_a_sync_and_a_run_work_once_it_is_set(run: Run, place: Path) -> None:
    state = {"HEADRACE_SYNC_STATE": f"{place}/out/s", "HEADRACE_RUN_STATE": f"{place}/out/r", "TMPDIR": f"{place}/out"}
    done = headrace(run, "sync", "--once", f"{place}/data", f"file://{place}/out/sync", **state)
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(place / "out/sync")) == ["0", "1", "2"]
    done = headrace(
        run, "run", "--", "sh", "-c", "echo hello", HEADRACE_RUN_CACHE=f"{place}/out/c", folder=f"{place}/data", **state
    )
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout


def test_a_tilde_without_a_home_is_no_folder_of_that_name(place: Path) -> None:
    command = [*_SOMEBODY, *_READS_ALL, "env", "-i", f"PATH={os.defpath}", sys.executable, "-m", "headrace"]
    done = subprocess.run(
        [*command, "cp", f"{place}/data/1", "~/copy"], cwd=place / "out", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "HOME" in done.stderr
    assert os.listdir(place / "out") == []
