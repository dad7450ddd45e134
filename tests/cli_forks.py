"""Commands as forks of one process that has imported them all: half a second of processor time less for each.

Each still has a process, a working directory, variables and standard streams of its own. The process that forks has one
thread, but for an allocator's, and has run no command.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

_TIMEOUT_S = 300
_ROOMS = (
    "base", "store", "store.backends", "fetch", "cache", "namespace", "upload", "pack", "catalog", "formats",
    "formats.index", "formats.tar", "formats.tables", "loader", "loader.pipeline", "cli", "checkup", "jobs",
    "jobs.inputs", "models", "sync", "tracking",
)  # fmt: skip
_NOT_NEEDED = frozenset({"jax", "tf", "tf_elements", "torch", "torch_dataset", "__main__"})
"""Modules that import a framework, or run."""
_OTHERS = (
    "numpy", "pyarrow", "pyarrow.parquet", "pyarrow.compute", "platformdirs", "rich.console", "rich.table",
    "botocore.session",
)  # fmt: skip
_AT_FIRST = dict(os.environ)
"""Variables as the run began: those of the test that is the first to run a command are gone soon, as is its TMPDIR."""
_SAFE = frozenset({"jemalloc_bg_thd"})
"""Threads whose library looks after forks: pyarrow's allocator starts its own anew."""


class Forks:
    """The process that forks, started at the first `run`. Any thread; one command at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], timeout: float = _TIMEOUT_S
    ) -> tuple[int, str, str]:
        """Exit code (as `subprocess` tells it), standard output and standard error of ``headrace arguments…``."""
        with self._lock, _output() as out, _output() as err:
            files = [f"/proc/{os.getpid()}/fd/{one.fileno()}" for one in (out, err)]
            order = {"argv": [*arguments], "cwd": str(folder), "environ": dict(environment), "files": files}
            code = int(self._ask(json.dumps(order), timeout))
            for one in (out, err):
                one.seek(0)
            return code, out.read(), err.read()

    def close(self) -> None:
        """End it. It ends by itself as well when this process does."""
        process, self._process = self._process, None
        if process is not None:
            with process:
                assert process.stdin is not None
                process.stdin.close()

    def _ask(self, order: str, timeout: float) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli_forks"],
                cwd=Path(__file__).parents[1],
                env={**_AT_FIRST, "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(order + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], timeout)
        answer = process.stdout.readline() if ready else ""
        if not answer:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            self.close()
            raise TimeoutError(f"no end within {timeout} s: {order}" if not ready else f"died at: {order}")
        return answer


def _output() -> IO[str]:
    return tempfile.TemporaryFile("w+", errors="surrogateescape")


FORKS = Forks()
"""Of this process."""


def _import_everything() -> None:
    for room in _ROOMS:
        package = importlib.import_module(f"headrace.{room}")
        for module in pkgutil.iter_modules(package.__path__):
            if module.name not in _NOT_NEEDED and not module.ispkg:
                importlib.import_module(f"headrace.{room}.{module.name}")
    for name in _OTHERS:
        importlib.import_module(name)
    threads = {Path(f"/proc/self/task/{one}/comm").read_text().strip() for one in os.listdir("/proc/self/task")}
    assert len(threads - _SAFE) == 1, f"a fork would lose all but one of {threads}"


def _serve(command: Callable[[], NoReturn]) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(order)
            command()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(order: dict[str, Any]) -> None:
    files = order["files"]
    for number, (path, flags) in enumerate(
        [(os.devnull, os.O_RDONLY), (files[0], os.O_WRONLY | os.O_APPEND), (files[1], os.O_WRONLY | os.O_APPEND)]
    ):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["cwd"])
    sys.argv = ["headrace", *order["argv"]]
    sys.path[0] = order["cwd"]  # as `python -m` has it


if __name__ == "__main__":
    from headrace.cli import run  # before its module `run` is imported, and takes the name

    _import_everything()
    gc.freeze()  # or each fork's collector would copy all pages
    _serve(run)
