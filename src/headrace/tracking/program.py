"""A server program of somebody else's, run until Ctrl-C: found, started in a group of its own, and gone when we are.

A watchdog (`sh`, at the end of a pipe) leads the program's group's end: when this process dies, however it dies, the
pipe closes and the watchdog kills the group and removes what was to be removed. Compare `headrace.store.embedded`.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.base.errors import DeadlineError, InputError, TryAgainError, UnsupportedError
from headrace.base.ports import reserve_port

_WATCHDOG = 'trap "" HUP INT TERM; read -r _; kill -KILL "$1" 2>/dev/null; shift; rm -rf -- "$@"; kill -KILL 0'
"""$1, the program, leads the watchdog's own group, so neither its number nor `0` can mean anyone else."""
_GRACE_S = 0.5
"""For a program that was told to end; then it is killed."""


def find_program(name: str, extra: str) -> str:
    """Beside this Python, else on PATH. Raises UnsupportedError: there is none."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
    if found is None:
        raise UnsupportedError(f"{name} is not installed", hint=f"pip install 'headrace[{extra}]'")
    return found


def choose_port(host: str, wanted: int, usual: int) -> int:
    """`wanted`; for 0 the usual one, or any that is free where that is taken. Raises InputError: `wanted` is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, wanted or usual))
            return wanted or usual
        except OSError as error:
            if wanted:
                reason, hint = f"cannot listen there: {error.strerror}", "--port 0 takes a free one"
                raise InputError(reason, path=f"{host}:{wanted}", hint=hint) from None
    return reserve_port(host)


def address(host: str, port: int) -> str:
    """The URL to give to people on this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


@dataclass(frozen=True, slots=True)
class Command:
    """What is started. `environ`: all of it; `log`: file for what it writes; `ready`: a URL that answers once it is up;
    `scratch`: folders that go when it does.
    """

    argv: Sequence[str]
    environ: Mapping[str, str] = field(repr=False)
    folder: str
    log: str
    ready: str
    scratch: Sequence[str] = ()


class Program:
    """One of them, running; a context manager. Main thread."""

    def __init__(self, command: Command, *, timeout_s: float = 120.0) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start it, and wait until it answers.

        Raises:
            TryAgainError: it ended at once; the message holds its last line. DeadlineError.
        """
        try:
            self._start()
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def ended(self) -> bool:
        """Whether it did by itself."""
        return self._process is None or self._process.poll() is not None

    @property
    def pid(self) -> int | None:
        """Its number; None once it is stopped."""
        return None if self._process is None else self._process.pid

    @property
    def code(self) -> int | None:
        """What it ended with by itself; negative: a signal."""
        return None if self._process is None else self._process.poll()

    def check(self) -> None:
        """Raises TryAgainError: it has ended; the message holds its last line."""
        if self.ended:
            raise TryAgainError(f"{self._name} has ended: {self._log_end()}")

    def stop(self) -> None:
        """End it, with all that it started. Idempotent; half a second."""
        process, self._process = self._process, None
        watchdog, self._watchdog = self._watchdog, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if watchdog is not None:
            watchdog.communicate()
        if process is not None:
            process.wait()

    @property
    def _name(self) -> str:
        return os.path.basename(self._command.argv[0])

    def _start(self) -> None:
        one = self._command
        with open(one.log, "wb") as log:
            self._process = subprocess.Popen(
                one.argv, cwd=one.folder, env=dict(one.environ), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                process_group=0,
            )  # fmt: skip
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "headrace-watchdog", str(self._process.pid), *one.scratch],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            process_group=self._process.pid,
        )  # fmt: skip

    def _wait(self) -> None:
        until = time.monotonic() + self._timeout_s
        while not self._answers():
            if self.ended:
                raise TryAgainError(f"{self._name} ended at once: {self._log_end()}", hint=self._hint)
            if time.monotonic() > until:
                reason = f"{self._name} did not answer in {self._timeout_s:g} s: {self._log_end()}"
                raise DeadlineError(reason, path=self._command.ready, hint=self._hint)
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._command.ready, timeout=2) as answer:  # noqa: S310 - loopback
                return answer.status == 200
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    @property
    def _hint(self) -> str | None:
        return None if self._command.scratch else f"see {self._command.log}"

    def _log_end(self) -> str:
        """Its last line; what stands before an ``@`` in a URL may be secret."""
        try:
            with open(self._command.log, errors="replace") as file:
                lines = file.read()[-4000:].strip().splitlines()
        except OSError:
            lines = []
        return re.sub(r"://[^/@\s]*@", "://***@", lines[-1].strip()) if lines else "it said nothing"
