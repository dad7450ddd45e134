"""A client that waits for a publication can be killed, and is told when the store hangs; the publication goes on."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import COMMAND, Rig, only_a_mount, own_server, rigged, silent, wait_for

pytestmark = [pytest.mark.server, pytest.mark.skipif(os.geteuid() != 0, reason="only root sees where others wait")]

WRITER = """
import os, signal, sys
heard = []
signal.signal(signal.SIGTERM, lambda *_: heard.append(1))
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
os.write(file, b"x" * 1000)
print("closing", flush=True)
try:
    os.fsync(file) if sys.argv[2] == "fsync" else os.close(file)
    print("done", len(heard), flush=True)
except OSError as error:
    print("failed", error.errno, flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedS3]:
    only_a_mount()
    with own_server() as made:
        yield made


@contextmanager
def writer(rig: Rig, how: str) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of the publication of a small file."""
    command = [sys.executable, "-c", WRITER, os.path.join(rig.folder, "written"), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "closing\n"
            assert wait_for(lambda: waits(process.pid), 20)
            yield process
        finally:
            process.kill()


def waits(pid: int, *where: str) -> bool:
    """Whether it is in the kernel, for an answer of the mount's (`where`: to such a request), as root sees it."""
    stack = Path(f"/proc/{pid}/stack").read_text()
    return "request_wait_answer" in stack and (not where or any(one in stack for one in where))


def pending(rig: Rig) -> list[str]:
    told = subprocess.run(
        [*COMMAND, "mounts", "--live", "--json"], env=rig.environment, capture_output=True, check=True
    )
    return [each["path"].rpartition("/")[2] for row in json.loads(told.stdout) for each in row["pending"]]


@pytest.mark.parametrize("how", ["close", "fsync"])
@pytest.mark.parametrize("first", [None, signal.SIGTERM], ids=["at once", "after a signal that it handles"])
def test_it_can_be_killed(server: EmbeddedS3, how: str, first: signal.Signals | None) -> None:
    with rigged(server) as rig:
        with silent(server), writer(rig, how) as process:
            if first is not None:
                process.send_signal(first)
                with pytest.raises(subprocess.TimeoutExpired):
                    process.wait(1)  # as on a disk, it waits on
            assert pending(rig) == ["written"]
            process.kill()
            assert process.wait(15) == -signal.SIGKILL
        assert wait_for(lambda: published(rig), 90)


@pytest.mark.parametrize("how", ["close", "fsync"])
def test_a_store_that_hangs_is_told_by_the_deadline(server: EmbeddedS3, how: str) -> None:
    with rigged(server, HEADRACE_FETCH_DEADLINE="2s") as rig:
        with silent(server), writer(rig, how) as process:
            told = process.communicate(timeout=30)[0].split()
            assert told[0] == "failed", told
            assert int(told[1]) == errno.EIO
            assert pending(rig) == ["written"]
        assert wait_for(lambda: published(rig), 90)
        assert Path(rig.folder, "written").read_bytes() == b"x" * 1000


def published(rig: Rig) -> bool:
    return any(one.key == "written" and one.size == 1000 for page in rig.store().list() for one in page)


@pytest.mark.parametrize(
    ("work", "gone", "there"),
    [
        ("os.unlink('victim')", {"victim"}, {"folder", "other"}),
        ("os.rename('other', 'another')", {"other"}, {"victim", "folder", "another"}),
        ("os.rename('folder', 'elsewhere')", {"folder"}, {"victim", "other", "elsewhere"}),
    ],
    ids=["unlink", "rename", "rename of a folder"],
)
def test_what_a_killed_one_had_asked_for_is_finished_and_shown(
    server: EmbeddedS3, work: str, gone: set[str], there: set[str]
) -> None:
    def fill(rig: Rig) -> None:
        for key in ("victim", "other", "folder/inside"):
            rig.store().put(key, b"1")

    with rigged(server, before=fill, HEADRACE_CACHE_TTL="1h") as rig:
        assert set(os.listdir(rig.folder)) == {"victim", "other", "folder"}
        assert os.stat(f"{rig.folder}/folder/inside").st_size == 1
        with silent(server):
            code = f"import os, sys; os.chdir(sys.argv[1]); print(flush=True); {work}"
            with subprocess.Popen(
                [sys.executable, "-c", code, rig.folder], stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                process.stdout.readline()
                assert wait_for(lambda: waits(process.pid, "fuse_rename", "fuse_unlink"), 20), "it never asked"
                process.kill()
                assert process.wait(15) == -signal.SIGKILL
        # killed before anything was done, it is as before; else it is finished, and no name of before is remembered
        done = wait_for(lambda: set(os.listdir(rig.folder)) == there, 15)
        expected = there if done else {"victim", "other", "folder"}
        assert set(os.listdir(rig.folder)) == expected
        stored = {one.key.partition("/")[0] for page in rig.store().list() for one in page}
        assert stored == expected
        for name in gone | there | {"victim", "other", "folder"}:
            assert wait_for(lambda name=name: os.path.lexists(f"{rig.folder}/{name}") == (name in expected), 20), name  # type: ignore[misc]
