"""Real servers, started once when first asked for; a clean environment; and the proof that nothing is left behind.

A missing program skips the tests that need it, with a line at the end that says what to do. With CI=true nothing may be
skipped: a skip is a failure.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

pytest.register_assert_rewrite("headrace.testing.conformance")

from headrace.base import uring  # noqa: E402
from headrace.base.errors import UnsupportedError  # noqa: E402
from headrace.testing.servers import Azurite, CephRGW, EmbeddedS3, FakeGCS, Sftp  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job: our children would ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup: a closed terminal would end nothing
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

ROOT = Path(__file__).parent.parent
CI = os.environ.get("CI", "").lower() in ("1", "true")
_T = TypeVar("_T")


# Servers


def _serving(server: AbstractContextManager[_T]) -> Iterator[_T]:
    try:
        running = server.__enter__()
    except UnsupportedError as error:
        pytest.skip(str(error))  # becomes a failure under CI=true
    try:
        yield running
    finally:
        server.__exit__(None, None, None)


@pytest.fixture(scope="session")
def seaweedfs(_nothing_left: None) -> Iterator[EmbeddedS3]:
    """SeaweedFS, the embedded S3 server."""
    yield from _serving(EmbeddedS3())


@pytest.fixture(scope="session")
def rgw(_nothing_left: None) -> Iterator[CephRGW]:
    """Ceph's S3 gateway."""
    yield from _serving(CephRGW())


@pytest.fixture(scope="session")
def azurite(_nothing_left: None) -> Iterator[Azurite]:
    """Azure Blob Storage's emulator."""
    yield from _serving(Azurite(ROOT / ".tools"))


@pytest.fixture(scope="session")
def gcs(_nothing_left: None) -> Iterator[FakeGCS]:
    """A fake of Google Cloud Storage."""
    yield from _serving(FakeGCS())


@pytest.fixture(scope="session")
def sftp(_nothing_left: None) -> Iterator[Sftp]:
    """OpenSSH's SFTP server."""
    yield from _serving(Sftp())


# A clean environment

_FOREIGN = ("AWS_", "AZURE_", "GOOGLE_", "HEADRACE_", "MLFLOW_", "RANK", "LOCAL_RANK", "WORLD_SIZE")


@pytest.fixture(scope="session", autouse=True)
def _clean_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No credentials, settings or cache of the person who runs the tests; no look for a metadata service."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
            patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        patch.setenv("AWS_CONFIG_FILE", str(home / "aws-config"))
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / "aws-credentials"))
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield
    shutil.rmtree(home, ignore_errors=True)


# Nothing is left behind

_MARK = "HEADRACE_TEST_RUN"


@pytest.fixture(scope="session", autouse=True)
def _nothing_left(_clean_environment: None) -> Iterator[None]:
    """Fails the run when a process, a mount or shared memory of ours outlives the tests and their servers."""
    os.environ[_MARK] = secrets.token_hex(8)
    before = _shared_memory() | _mounts()
    yield
    deadline = time.monotonic() + 10
    while (left := _processes() | ((_shared_memory() | _mounts()) - before)) and time.monotonic() < deadline:
        time.sleep(0.1)  # what was told to end may still be ending
    del os.environ[_MARK]
    assert not left, f"left behind: {sorted(left)}"


def _processes() -> set[str]:
    """Our descendants, and orphans that inherited this run's mark; less Python's own helpers, which end with us."""
    mark = os.environ[_MARK]
    found: set[str] = set()
    descendants = set(psutil.Process().children(recursive=True))
    for process in psutil.process_iter():
        try:
            ours = process in descendants or (process.pid != os.getpid() and process.environ().get(_MARK) == mark)
            if not ours or process.status() == psutil.STATUS_ZOMBIE:
                continue
            command = " ".join(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if "multiprocessing.resource_tracker" not in command and "multiprocessing.forkserver" not in command:
            found.add(f"process {process.pid}: {command[:200]}")
    return found


def _shared_memory() -> set[str]:
    """Ours by name; under CI, where nobody else works, anything."""
    folder = Path("/dev/shm")
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return {f"/dev/shm/{name}" for name in names if CI or "headrace" in name}


def _mounts() -> set[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return {f"mount {line}" for line in lines if "headrace" in line}


# Skips


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    return _no_skip(report)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    return _no_skip(report)


def _no_skip(report):
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI=true does not allow: {reason}"
    return report


def pytest_report_header() -> str:
    """What is not collected, rather than skipped: nothing that users see depends on it."""
    there = uring.mine() is not None
    return "io_uring: " + ("allowed" if there else "refused by this kernel: its unit tests are NOT collected")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        advice = "run `make test` as root, or with passwordless sudo: it installs what the reasons below name"
        terminalreporter.write_line(f"{len(skipped)} skipped. To run them too, {advice}.", yellow=True)
