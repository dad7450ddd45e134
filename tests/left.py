"""What a run of tests leaves behind: processes, mounts, shared memory, sockets, threads. A run that leaves any fails.

Each process that ran tests looks for what is its own at its end; the process that started them looks once all others
and the servers are gone.
"""

from __future__ import annotations

import gc
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

MARK = "TESTS_OF_HEADRACE_RUN"
"""In the environment of all that a run starts, so that orphans are known."""
_NAME = "headrace"
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Python's own, which end with us."""
_LOOK_S = 5.0
_BEFORE = pytest.StashKey[set[str]]()
_LEFT = pytest.StashKey[set[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--left-name", default=_NAME, help="what the names of mounts, files and threads of ours hold")
    parser.addoption("--left-wait", type=float, default=10, help="seconds in which what was told to end may end")


def pytest_sessionstart(session: pytest.Session) -> None:
    if not _is_worker(session.config):
        os.environ[MARK] = secrets.token_hex(8)
        session.config.stash[_BEFORE] = _on_the_machine(session.config.getoption("--left-name"))
        session.config.stash[_LEFT] = set()


@pytest.hookimpl(trylast=True)  # after the last fixture's end, the workers' and the servers'
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    name, wait = config.getoption("--left-name"), config.getoption("--left-wait")
    _end_what_lasts()
    left = _once_over(lambda: _of_this_process(name), wait)
    if _is_worker(config):
        config.workeroutput["left"] = sorted(left)
        return
    left |= config.stash[_LEFT]
    left |= _once_over(lambda: (_on_the_machine(name) - config.stash[_BEFORE]) | _marked(), wait)
    config.stash[_LEFT] = left
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    node.config.stash[_LEFT] |= set(getattr(node, "workeroutput", {}).get("left", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for one in sorted(terminalreporter.config.stash.get(_LEFT, set())):
        terminalreporter.write_line(f"left behind: {one}", red=True)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _end_what_lasts() -> None:
    """A process that opens data sets has a fetcher of its own, which lasts as long as the process."""
    if (module := sys.modules.get("headrace.fetch.fetcher")) and module._shared.fetcher is not None:
        module._shared.fetcher.close()


def _once_over(look: Callable[[], set[str]], wait: float) -> set[str]:
    """What is still there after a while: what was told to end may still be ending."""
    deadline = time.monotonic() + wait
    while (left := look()) and time.monotonic() < deadline:
        gc.collect()  # what nobody holds any longer has not been left
        time.sleep(0.1)
    return left


def _of_this_process(name: str) -> set[str]:
    me = psutil.Process()
    found = {f"thread {one.name}" for one in threading.enumerate() if name in one.name}
    found |= {f"socket {one.laddr}" for one in me.net_connections("all") if one.status == psutil.CONN_LISTEN}
    return found | {told for one in me.children(recursive=True) if (told := _told(one))}


def _marked() -> set[str]:
    """The kernel makes who looks at a process's environment wait for its memory's lock, and a process that closes a
    mapping of a mount holds that until the mount answers: so looks are bounded, and all begin beside each other.
    """
    mark, found = os.environ[MARK], set[str]()

    def look(process: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get(MARK) == mark and (told := _told(process)):
                found.add(told)

    threads = [threading.Thread(target=look, args=(one,), daemon=True) for one in psutil.process_iter()]
    deadline = time.monotonic() + _LOOK_S
    for one in threads:
        one.start()
    for one in threads:
        one.join(max(0.0, deadline - time.monotonic()))
    return {told for told in found if not told.startswith(f"process {os.getpid()}:")}


def _told(process: psutil.Process) -> str:
    """Empty: it has ended, or ends with us."""
    try:
        command = " ".join(process.cmdline())
        if process.status() == psutil.STATUS_ZOMBIE or any(one in command for one in _HELPERS):
            return ""
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
    return f"process {process.pid}: {command[:200]}"


def _on_the_machine(name: str) -> set[str]:
    """Ours by name. Under CI, where nobody else works: anything in shared memory, and files, which are another run's as
    likely as ours while people run several.
    """
    everything = os.environ.get("CI", "").lower() in ("1", "true")
    memory = Path("/dev/shm")
    shared = [entry.name for entry in memory.iterdir()] if memory.is_dir() else []
    found = {f"shared memory /dev/shm/{one}" for one in shared if name in one or (everything and name == _NAME)}
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found |= {f"mount {line}" for line in mounts if name in line}
    if everything:
        found |= {f"file {path}" for path in Path(tempfile.gettempdir()).glob(f"{name}-*")}
    return found
