"""Starting real servers for tests: on loopback, on free ports, gone when the context ends or pytest is killed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.base.errors import HeadraceError, UnsupportedError

HOST = "127.0.0.1"


class ServerError(HeadraceError):
    """A test server did not start; the text ends with the last lines of its log."""

    code = "test-server"


def find_program(name: str, *, package: str, folders: Sequence[Path] = ()) -> str:
    """Absolute path of an executable: in `folders`, on PATH, or in the places Debian keeps daemons.

    Raises:
        UnsupportedError: it is not installed; the hint names the `package` that brings it.
    """
    places = [*map(str, folders), os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/sbin"]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        raise UnsupportedError(f"the program {name} is not installed", hint=f"install {package}, or run: make test")
    return found


def listens(port: int) -> bool:
    """True when something accepts connections on this loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.settimeout(0.5)
        return sock.connect_ex((HOST, port)) == 0


def freeze(pid: int, timeout_s: float = 30.0) -> None:
    """Stop a process (SIGSTOP), and wait until every thread of it has stopped: until one has been woken by the signal,
    which takes a while where the cores are busy, the others go on and may answer.

    Raises:
        ServerError: it has not stopped in time. ProcessLookupError.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + timeout_s
    while not all(state in "TZ" for state in _states(pid)):
        if time.monotonic() > deadline:
            raise ServerError(f"process {pid} has not stopped within {timeout_s:g} s")
        time.sleep(0.002)


def thaw(pid: int) -> None:
    """Let a stopped process go on. Raises ProcessLookupError."""
    os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> Iterator[str]:
    """Of its threads, a letter each (proc(5), ``stat``)."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            yield (thread / "stat").read_text().rpartition(")")[2].split()[0]


class ServerProcess:
    """One child process in its own process group.

    It dies with the thread that started it, even by kill -9 (``setpriv --pdeathsig``): start servers on the main
    thread, or on one that outlives them. Its output goes to ``<folder>/<name>.log``.

    Args:
        argv: the program, which must stay in the foreground, and its arguments.
        death: the signal it gets when the parent dies; SIGTERM for a program that must end children of its own.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        death: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        guard = [find_program("setpriv", package="util-linux"), "--pdeathsig", death.name.removeprefix("SIG"), "--"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until(self, ready: Callable[[], bool], timeout_s: float = 60.0) -> None:
        """Return once `ready()` is true.

        Raises:
            ServerError: the process ended, or `timeout_s` passed; the process is stopped.
        """
        deadline = time.monotonic() + timeout_s
        while not ready():
            ended = self._process.poll()
            if ended is not None or time.monotonic() > deadline:
                self.stop()
                reason = f"ended with status {ended}" if ended is not None else f"was not ready after {timeout_s:g} s"
                raise ServerError(f"{self.name} {reason}: {self.tail()}", path=str(self.log))
            time.sleep(0.05)

    def tail(self, size: int = 2000) -> str:
        """The end of its log."""
        return self.log.read_bytes()[-size:].decode(errors="replace")

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the whole process group: SIGTERM, then SIGKILL. Safe to call twice."""
        if self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            pass
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass


def run_tool(argv: Sequence[str], *, timeout_s: float = 60.0) -> str:
    """Run a helper program to its end; its standard output.

    Raises:
        ServerError: a non-zero status (the text holds its output), or it did not end in time.
    """
    pipe = subprocess.PIPE
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"{argv[0]} did not end within {timeout_s:g} s") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout)[-2000:]
        raise ServerError(f"{argv[0]} ended with status {done.returncode}: {said}")
    return done.stdout


class Server(ABC):
    """A context manager around one or more daemons with a scratch folder of their own.

    Subclasses give `start`, which uses `launch`. Enter and leave on the same, long-lived thread. One that is pickled
    tells another process how it is reached; only the process that started it ends it.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.folder = Path()
        self._processes: list[ServerProcess] = []

    @abstractmethod
    def start(self) -> None:
        """Bring it up, ready to answer."""

    def launch(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        death: signal.Signals = signal.SIGKILL,
    ) -> ServerProcess:
        """Start a daemon that `close` will stop."""
        process = ServerProcess(name, argv, folder=self.folder, environment=environment, death=death)
        self._processes.append(process)
        return process

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_processes": []}

    def close(self) -> None:
        """Stop the daemons, the latest first, and remove the folder. Safe to call twice."""
        if os.getpid() != self._owner:
            return
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = Path()

    def __enter__(self) -> Self:
        # Unix sockets may live in it, so the path is short: not below pytest's folder.
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-test-"))
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
