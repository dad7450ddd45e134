"""CPython's own tests of files, run in a folder of the mount, with every exception listed and said why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, rigged

HARD_LINKS = "hard links are refused: an object has one key"
NOT_UTF8 = "a name that is not UTF-8 is refused (EILSEQ): keys of objects are UTF-8"
NO_ATIME = "no time of last access is kept: it is shown as that of the last change"
FIFOS = "named pipes are refused: an object is a file"
AGAIN = "the same tests once more through a compressor: nothing about files, and long"
MANY = "the same archive unpacked a dozen times: long"
TWICE = "the same tests once more: only the class made or the type of the names differs, nothing that reaches a folder"
FORMS = "the same names in other normal forms: names are bytes to the mount, and two forms show that it changes none"
Ended: TypeAlias = "subprocess.CompletedProcess[str]"
EXCEPTIONS: dict[str, dict[str, str]] = {
    "test_dbm_dumb": {
        "test_random": "hundreds of times half a megabyte is written anew to change a few bytes of it: long"
    },
    "test_file": {},
    "test_filecmp": {},
    "test_fileinput": {},
    "test_fileio": {},
    "test_genericpath": {},
    "test_glob": {},
    "test_gzip": {},
    "test_mmap": {"LargeMmapTests": "sparse files of 6 GB: an object has no holes, the close would send all"},
    "test_os": {
        **dict.fromkeys(("BytesWalkTests", "BytesFwalkTests"), TWICE),
        "Pep383Tests": NOT_UTF8,
        "test_getcwd_long_path": "a path of 4,000 bytes: keys of objects end at 1,024",
        "test_utime": NO_ATIME,
        "test_utime_by_*": NO_ATIME,
        "test_utime_dir*": NO_ATIME,
        "test_utime_fd": NO_ATIME,
        "test_utime_nofollow_symlinks": NO_ATIME,
    },
    "test_pathlib": {"test_hardlink_to": HARD_LINKS, "PathTest": TWICE},
    "test_posix": {},
    "test_posixpath": {"test_nonascii_abspath": NOT_UTF8},
    "test_shutil": dict.fromkeys(
        ("test_unpack_archive_gztar", "test_unpack_archive_bztar", "test_unpack_archive_xztar"), AGAIN
    ),
    "test_stat": {},
    "test_tarfile": {
        **dict.fromkeys(("Gzip*", "Bz2*", "Lzma*", "LZMA*"), AGAIN),
        "NoneInfoExtract*": MANY,
        "test_pipe": FIFOS,
    },
    "test_tempfile": {},
    "test_unicode_file_functions": dict.fromkeys(
        ("UnicodeNFCFileTests", "UnicodeNFKCFileTests", "UnicodeNFKDFileTests"), FORMS
    ),
}
"""Module to (pattern of a test's name, as ``-m test -i`` takes it, to the reason it cannot pass here). Left out whole:
test_largefile (a close would send 2.5 GB), test_bufio, test_io, test_logging and test_zipfile (long, and less about
folders than about bytes), test_mailbox (Maildir judges by a folder's time of change, which is not kept)."""

SECONDS = 60
AT_ONCE = 2
"""Each waits for the mount, and the mount for its server: two keep them busy."""


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has the `test` package: this one, or Debian's with libpython3-testsuite."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        if not os.path.exists(candidate):
            continue
        probe = [candidate, "-c", "import test.test_shutil, test.regrtest"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return candidate
    pytest.skip("no Python here has CPython's tests: Debian package libpython3-testsuite")


@pytest.fixture(scope="module")
def mount(seaweedfs: EmbeddedS3) -> Iterator[Rig]:
    with rigged(seaweedfs, HEADRACE_MOUNT_METADATA="full") as rig:  # modes and times outlive the mount
        yield rig
        rig.stop()


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, python: str, mount: Rig) -> Iterator[dict[str, Future[Ended]]]:
    """Every module that was asked for, a few at a time, each in a folder of its own of the one mount."""
    mine = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {module: pool.submit(_run, python, mount, module) for module in _asked_for(mine)}
        pool.shutdown(cancel_futures=True)


def _asked_for(items: list[pytest.Function]) -> list[str]:
    return [item.callspec.params["module"] for item in items]


def _run(python: str, mount: Rig, module: str) -> Ended:
    folder = Path(mount.folder, module)
    (folder / "tmp").mkdir(parents=True)
    ignored = [word for pattern in EXCEPTIONS[module] for word in ("-i", pattern)]
    return subprocess.run(
        [python, "-m", "test", "-v", "--tempdir", str(folder), *ignored, module],
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=SECONDS,
        check=False,
    )


@pytest.mark.server
@pytest.mark.parametrize("module", EXCEPTIONS)
def test_cpython(module: str, runs: dict[str, Future[Ended]], mount: Rig) -> None:
    ended = runs[module].result()
    assert ended.returncode == 0, f"{_failures(ended.stdout)}\n{ended.stderr[-3000:]}\n{mount.log()}"
    assert re.search(r"^Ran [1-9]", ended.stdout, re.MULTILINE), f"no test ran: {ended.stdout[-2000:]}"
    assert os.listdir(Path(mount.folder, module)) == ["tmp"], "the tests' folder was not cleaned"


def _failures(said: str) -> str:
    """The part of the output that names failed tests."""
    start = said.find("\n======================================================================")
    return said[start:][-6000:] if start >= 0 else said[-3000:]
