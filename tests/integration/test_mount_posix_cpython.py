"""CPython's own tests of files, run in a folder of the mount, with every exception listed and said why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.servers import EmbeddedS3
from tests.mount_rig import Rig, rigged

HARD_LINKS = "hard links are refused: an object has one key"
NOT_UTF8 = "a name that is not UTF-8 is refused (EILSEQ): keys of objects are UTF-8"
NO_ATIME = "no time of last access is kept: it is shown as that of the last change"
FIFOS = "named pipes are refused: an object is a file"
AGAIN = "the same tests once more through a compressor: nothing about files, and long"
MANY = "the same archive unpacked a dozen times: long"
EXCEPTIONS: dict[str, dict[str, str]] = {
    "test_dbm_dumb": {},
    "test_file": {},
    "test_filecmp": {},
    "test_fileinput": {},
    "test_fileio": {},
    "test_genericpath": {},
    "test_glob": {},
    "test_gzip": {},
    "test_mmap": {"LargeMmapTests": "sparse files of 6 GB: an object has no holes, the close would send all"},
    "test_os": {
        "Pep383Tests": NOT_UTF8,
        "test_getcwd_long_path": "a path of 4,000 bytes: keys of objects end at 1,024",
        "test_utime": NO_ATIME,
        "test_utime_by_*": NO_ATIME,
        "test_utime_dir*": NO_ATIME,
        "test_utime_fd": NO_ATIME,
        "test_utime_nofollow_symlinks": NO_ATIME,
    },
    "test_pathlib": {"test_hardlink_to": HARD_LINKS},
    "test_posix": {},
    "test_posixpath": {"test_nonascii_abspath": NOT_UTF8},
    "test_shutil": {},
    "test_stat": {},
    "test_tarfile": {
        **dict.fromkeys(("Gzip*", "Bz2*", "Lzma*", "LZMA*"), AGAIN),
        "NoneInfoExtract*": MANY,
        "test_pipe": FIFOS,
    },
    "test_tempfile": {},
    "test_unicode_file_functions": {},
}
"""Module to (pattern of a test's name, as ``-m test -i`` takes it, to the reason it cannot pass here). Left out whole:
test_largefile (a close would send 2.5 GB), test_bufio, test_io, test_logging and test_zipfile (long, and less about
folders than about bytes), test_mailbox (Maildir judges by a folder's time of change, which is not kept)."""

SECONDS = 60


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


@pytest.mark.server
@pytest.mark.parametrize("module", EXCEPTIONS)
def test_cpython(module: str, python: str, mount: Rig) -> None:
    folder = Path(mount.folder, module)
    (folder / "tmp").mkdir(parents=True)
    ignored = [word for pattern in EXCEPTIONS[module] for word in ("-i", pattern)]
    ended = subprocess.run(
        [python, "-m", "test", "-v", "--tempdir", str(folder), *ignored, module],
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, f"{_failures(ended.stdout)}\n{ended.stderr[-3000:]}\n{mount.log()}"
    assert re.search(r"^Ran [1-9]", ended.stdout, re.MULTILINE), f"no test ran: {ended.stdout[-2000:]}"
    assert os.listdir(folder) == ["tmp"], "the tests' folder was not cleaned"


def _failures(said: str) -> str:
    """The part of the output that names failed tests."""
    start = said.find("\n======================================================================")
    return said[start:][-6000:] if start >= 0 else said[-3000:]
