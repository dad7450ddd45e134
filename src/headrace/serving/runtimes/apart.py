"""A runtime in a process of its own: whatever a model's code does to its process, the server goes on."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from headrace.base.errors import CorruptError, DeadlineError, InputError, TryAgainError
from headrace.base.settings import environment, whole_environment
from headrace.serving.runtimes.frames import Load, Loaded, receive, send
from headrace.serving.tensors import Array, Signature

_log = logging.getLogger("headrace.serving")
_SECRETS: Final = ("AWS_", "AZURE_", "GOOGLE_", "HEADRACE_", "MLFLOW_")
"""Variables that a model's code does not get: how the store is reached."""
_START_S: Final = 300.0  # seconds to start the process and load the model
_END_S: Final = 5.0  # seconds to end by itself
_FIRST_S: Final = 0.1  # seconds before the first restart; twice as many before each that follows
_LONGEST_S: Final = 30.0  # seconds before any restart, at most
_STEADY_S: Final = 60.0
"""Who has run for so long is started again at once."""


class Apart:
    """The parent's side. `run` from any thread; one batch after the other."""

    in_process = False

    def __init__(self, load: Load) -> None:
        """Start the process and load the model. Waits.

        Raises CorruptError: the model does not load; the reason is its own. TryAgainError: its process was killed, or
        took too long.
        """
        self._load = load
        self._turn = threading.Lock()
        self._closed = threading.Event()
        self._delay = _FIRST_S
        self._process, self._socket, told = self._start()
        self._since = time.monotonic()
        self._there = True
        self.signatures: Mapping[str, Signature] = told.signatures
        self.platform, self.batched = told.platform, told.batched
        self.restarts = 0

    @property
    def pid(self) -> int:
        """Of the present process."""
        return self._process.pid

    def run(self, signature: str, inputs: Mapping[str, Array], seconds: float | None = None) -> dict[str, Array]:
        """See `Runtime.run`."""
        with self._turn:
            if not self._there:
                raise TryAgainError("the model's process has ended and is being started again", hint="ask again")
            try:
                self._socket.settimeout(seconds)
                send(self._socket, signature=signature, tensors=inputs)
                head, made = receive(self._socket)
            except TimeoutError:
                self._lost()
                raise DeadlineError("the model took too long; its process is started again") from None
            except (OSError, EOFError):
                self._lost()
                raise TryAgainError(f"the model's process has ended ({self._ending()})", hint="ask again") from None
            except Exception:  # what it says is not understood, and what it says next would not be either
                self._lost()
                raise
        if head.refused is not None:
            raise InputError(f"the model refuses these inputs: {head.refused}")
        return made

    def close(self) -> None:
        """See `Runtime.close`. Any thread."""
        self._closed.set()
        self._end()

    def _start(self) -> tuple[subprocess.Popen[bytes], socket.socket, Loaded]:
        ours, theirs = socket.socketpair()
        try:
            command = [sys.executable, "-P", "-m", "headrace.serving.runtimes", str(theirs.fileno())]
            process = subprocess.Popen(
                command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, stdout=2, env=_variables()
            )
        finally:
            theirs.close()
        try:
            ours.settimeout(_START_S)
            send(ours, load=self._load)
            head, _ = receive(ours)
        except BaseException as error:
            _reap(process, 0.0 if isinstance(error, TimeoutError) else _END_S)
            ours.close()
            raise _not_loaded(error, process) from None
        if head.loaded is None:
            ours.close()
            process.kill()
            process.wait()
            raise CorruptError(f"the model does not load: {head.broken}")
        return process, ours, head.loaded

    def _lost(self) -> None:
        """Under the lock."""
        self._there = False
        self._end()
        if time.monotonic() - self._since > _STEADY_S:
            self._delay = _FIRST_S
        threading.Thread(target=self._again, name="serving-restart", daemon=True).start()

    def _again(self) -> None:
        while not self._closed.wait(self._delay):
            self._delay = min(2 * self._delay, _LONGEST_S)
            try:
                process, ours, _ = self._start()
            except Exception as error:
                _log.warning("a model's process could not be started again: %s", error)
                continue
            with self._turn:
                self._process, self._socket = process, ours
                self._since, self._there = time.monotonic(), True
                self.restarts += 1
            if self._closed.is_set():
                self._end()
            return

    def _end(self) -> None:
        with suppress(OSError):
            self._socket.close()
        self._process.kill()
        self._process.wait()

    def _ending(self) -> str:
        return _ended(self._process)


def _reap(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Let it end by itself for so long, so that how it ended is known."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


def _not_loaded(error: BaseException, process: subprocess.Popen[bytes]) -> BaseException:
    if isinstance(error, TimeoutError):
        return DeadlineError(f"the model did not load within {_START_S:g} s")
    if not isinstance(error, OSError | EOFError):
        return error
    told = f"the model's process ended while it loaded ({_ended(process)})"
    return (
        TryAgainError(told, hint="the kernel kills what takes too much memory")
        if process.returncode < 0
        else CorruptError(told)
    )


def _ended(process: subprocess.Popen[bytes]) -> str:
    code = process.wait()
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _variables() -> dict[str, str]:
    kept = {name: value for name, value in whole_environment().items() if not name.startswith(_SECRETS)}
    path = environment("PYTHONPATH")
    return kept | ({"PYTHONPATH": path} if path else {})
