"""Real servers, started once a run when first asked for; a clean environment; what is left behind is in `tests.left`.

A missing program skips the tests that need it, with a line at the end that says what to do. With CI=true nothing may be
skipped: a skip is a failure.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.left"]
pytest.register_assert_rewrite("headrace.testing.conformance")

from headrace.base.errors import UnsupportedError  # noqa: E402
from headrace.cache import batch_io  # noqa: E402
from headrace.testing.servers import Azurite, CephRGW, EmbeddedS3, FakeGCS, Sftp  # noqa: E402

from .cli_forks import FORKS  # noqa: E402
from .cluster_rig import SharedCluster, shared_cluster  # noqa: E402
from .servers import Keeper, ask  # noqa: E402
from .times import Meter, Recorder, longest_first  # noqa: E402

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job: our children would ignore Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as under nohup: a closed terminal would end nothing
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# A machine that is busy with something else is no fault of an example's. What holds under CI=true is kept.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

ROOT = Path(__file__).parent.parent
CI = os.environ.get("CI", "").lower() in ("1", "true")


# The order of files, and how long they take


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-times", metavar="FILE", help="write tests/times.json anew, and every test's time into FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    if detail := config.getoption("--record-times"):
        worker = hasattr(config, "workerinput")
        config.pluginmanager.register(Meter())
        if not worker:
            config.pluginmanager.register(Recorder(Path(detail)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Without looking for garbage, which takes 4 s of 10. What is there at its end, 8,000 tests and all that they
    import, is never walked again: full collections of it were an eighth of a run's processor time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _no_file_systems_kept() -> Iterator[None]:
    """fsspec keeps file systems by their arguments: the next test's settings may be others."""
    yield
    if module := sys.modules.get("headrace.namespace.filesystem"):
        module.HeadraceFileSystem.clear_instance_cache()


# Servers

_KEEPER = pytest.StashKey[Keeper]()
_KINDS = {
    "seaweedfs": EmbeddedS3,
    "rgw": CephRGW,
    "azurite": lambda: Azurite(ROOT / ".tools"),
    "gcs": FakeGCS,
    "sftp": Sftp,
    "ray": shared_cluster,
}


def pytest_sessionstart(session: pytest.Session) -> None:
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")  # of a process that crashes: where
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_KEEPER] = Keeper(_KINDS)


def pytest_sessionfinish(session: pytest.Session) -> None:
    FORKS.close()
    if keeper := session.config.stash.get(_KEEPER, None):
        keeper.close()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["keeper"] = node.config.stash[_KEEPER].address


@pytest.fixture(scope="session")
def shared(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """The run's server of that name: other processes use it at the same time."""
    config = request.config
    address = config.workerinput["keeper"] if hasattr(config, "workerinput") else config.stash[_KEEPER].address

    def ask_for(name: str) -> Any:
        try:
            return ask(address, name)
        except UnsupportedError as error:
            pytest.skip(str(error))  # becomes a failure under CI=true

    return ask_for


@pytest.fixture(scope="session")
def seaweedfs(shared: Callable[[str], EmbeddedS3]) -> EmbeddedS3:
    """SeaweedFS, the embedded S3 server."""
    return shared("seaweedfs")


@pytest.fixture(scope="session")
def rgw(shared: Callable[[str], CephRGW]) -> CephRGW:
    """Ceph's S3 gateway."""
    return shared("rgw")


@pytest.fixture(scope="session")
def azurite(shared: Callable[[str], Azurite]) -> Azurite:
    """Azure Blob Storage's emulator."""
    return shared("azurite")


@pytest.fixture(scope="session")
def gcs(shared: Callable[[str], FakeGCS]) -> FakeGCS:
    """A fake of Google Cloud Storage."""
    return shared("gcs")


@pytest.fixture(scope="session")
def sftp(shared: Callable[[str], Sftp]) -> Sftp:
    """OpenSSH's SFTP server."""
    return shared("sftp")


@pytest.fixture(scope="session")
def ray_cluster(shared: Callable[[str], SharedCluster]) -> SharedCluster:
    """A Ray cluster of two nodes with two CPUs each."""
    return shared("ray")


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
    there = batch_io.chosen().name == batch_io.IO_URING
    return "io_uring: " + ("allowed" if there else "refused by this kernel: its unit tests are NOT collected")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped:
        advice = "run `make test` as root, or with passwordless sudo: it installs what the reasons below name"
        terminalreporter.write_line(f"{len(skipped)} skipped. To run them too, {advice}.", yellow=True)
