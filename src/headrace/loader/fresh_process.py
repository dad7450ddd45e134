"""Processes of ours beside the one that trains: started afresh, never forked from a program with threads; each is sent
what it needs in one pickle over its socket, and ends with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import spawn
from typing import Any

from headrace.base.errors import InputError, InternalError
from headrace.loader import memory_files as shm

_BOOT = (
    "import sys, json, importlib; sys.path[:] = json.loads(sys.argv[2]); "
    "importlib.import_module(sys.argv[4]).child_main(int(sys.argv[1]), with_thread=sys.argv[3] == '1')"
)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_MOST_FDS = 8  # that come with the payload: it, and what a program is sent beside
_MAIN = (b"__main__", b"__mp_main__")
"""The main script's name in a pickle, and that in one of a process of ours."""
_importing_main: list[bool] = []


@dataclass(frozen=True)
class Fresh:
    """A process that was started, and our end of its socket, which keeps message boundaries."""

    process: subprocess.Popen[bytes]
    socket: socket.socket

    def ended_as(self, within_s: float) -> str:
        """How it ended, in words, where its socket is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(within_s)
        code = self.process.poll()
        if code is None or code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
        return f"killed by signal {-code}"


def start(module: str, payload: bytes, fds: Sequence[int] = ()) -> Fresh:
    """Run ``child_main`` of `module`, which calls `begin`. Does not wait for it. Any thread.

    Its session is one of its own: Ctrl-C at a terminal is for us, and we end it.
    """
    in_main = "1" if threading.current_thread() is threading.main_thread() else "0"
    ours, theirs = shm.connection()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), json.dumps(sys.path), in_main, module],
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    fd = os.memfd_create("headrace", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb") as file, contextlib.suppress(OSError):  # one that has ended already is seen by its socket
        file.write(payload)
        file.flush()
        socket.send_fds(ours, [b"payload"], [fd, *fds])
    return Fresh(process, ours)


def refuse_while_imported(what: str) -> None:
    """Raises InputError in a process that imports the main script to find its functions there."""
    if _importing_main:
        raise InputError(
            f"the main script starts a loader with {what} while it is being imported",
            hint='put what it does under if __name__ == "__main__":',
        )


def payload_of(work: Any, what: str) -> bytes:
    """What `made_of` makes `work` of, in another process. `what`: wants it there, for messages.

    Raises:
        InputError: a function or a source cannot be sent.
    """
    whole = spawn.get_preparation_data("headrace-loader")
    names = ("name", "sys_argv", "dir", "init_main_from_name", "init_main_from_path")
    prepared = {name: whole[name] for name in names if name in whole}
    has_main = "init_main_from_name" in prepared or os.path.isfile(prepared.get("init_main_from_path", ""))
    wrong: Exception | None = None
    try:
        pickled = pickle.dumps(work)
        if not any(name in pickled for name in _MAIN):
            return pickle.dumps(({}, pickled))
        if has_main:
            return pickle.dumps((prepared, pickled))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        wrong = error
    try:
        import cloudpickle
    except ImportError:
        raise _unsent(wrong, what, "install cloudpickle (pip install 'headrace[processes]')") from wrong
    try:  # by value: the main script need not be imported
        return pickle.dumps(({}, cloudpickle.dumps(work)))
    except Exception as error:
        raise _unsent(error, what, "leave out of them what cannot be pickled: open files, locks, clients") from error


def _unsent(error: Exception | None, what: str, hint: str) -> InputError:
    reason = error or "it is defined in a notebook, or at a prompt"
    return InputError(
        f"cannot be sent to another process: {reason}",
        hint=f"{what} needs functions defined at the top of a module, and sources opened by name; or {hint}",
    )


# -- the process -------------------------------------------------------------------------------------------------------


def begin(fd: int, *, with_thread: bool) -> tuple[socket.socket, bytes, list[int]]:
    """The socket, what `payload_of` gave, and the descriptors that `start` was given. Leaves where nothing comes.

    `with_thread`: the parent's thread that started us lives as long as the parent, so its end may be ours (the kernel's
    signal goes by thread, not by process).
    """
    if with_thread:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    sock = socket.socket(fileno=fd)
    _, fds, _, _ = socket.recv_fds(sock, 16, _MOST_FDS)
    if not fds:  # the parent has thought better of it
        os._exit(0)
    with os.fdopen(fds[0], "rb") as file:
        file.seek(0)
        return sock, file.read(), list(fds[1:])


def made_of(payload: bytes) -> Any:
    """What was sent. Imports the main script first, where something of it is needed, as ``multiprocessing`` does."""
    prepared, pickled = pickle.loads(payload)  # noqa: S301 - our own parent wrote it
    if prepared:
        _importing_main.append(True)
        spawn.prepare(prepared)
        _importing_main.clear()
    return pickle.loads(pickled)  # noqa: S301


@dataclass(frozen=True)
class Remote:
    """An error on its way to the parent. `text`: the traceback of what the parent cannot see of it, for people."""

    error: BaseException
    cause: BaseException | None
    text: str

    @staticmethod
    def of(error: BaseException) -> Remote:
        """What of an error of ours can travel, with the traceback of its cause. What cannot be pickled is replaced by
        an InternalError that says the same.
        """
        cause = error.__cause__
        text = "" if cause is None else "".join(traceback.format_exception(cause)).strip()
        return Remote(portable(error), None if cause is None else portable(cause), text)

    def rebuild(self, where: str = "the loader's process") -> BaseException:
        """The error as the child raised it."""
        self.error.__cause__ = self.cause
        if self.text:
            self.error.add_note(f"in {where}:\n{self.text}")
        return self.error


def portable(error: BaseException, kind: type[InputError | InternalError] = InternalError) -> BaseException:
    """The error, or one of `kind` that says the same where it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:
        return kind(f"{type(error).__name__}: {error}", hint="raised in the loader's process")
    return error
