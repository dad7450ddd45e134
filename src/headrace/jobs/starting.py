"""A run that goes on by itself: `headrace run --detach`, or `rerun`, as a process of its own; `start`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.base import errors
from headrace.base.errors import HeadraceError
from headrace.base.settings import Settings
from headrace.namespace import Home, Namespace
from headrace.tracking import RecordedRun, Runs

_PROGRAM: Final = (sys.executable, "-m", "headrace.cli")
_KINDS: Final = {
    kind.exit_code: kind
    for kind in (
        errors.InputError, errors.NotFoundError, errors.DeniedError, errors.ChangedError, errors.TryAgainError,
        errors.NoRoomError,
    )
}  # fmt: skip


def start(
    job: str | Sequence[str], values: Mapping[str, str] | None = None, *, folder: str | None = None
) -> RecordedRun:
    """Begin a run that goes on by itself, also when this process ends; return once it is recorded. Any thread.

    ``for line in hr.jobs.start(["python", "train.py"]).follow(): print(line.text)``. The environment is this process's.

    Args:
        job: path of a job file, or a command and its arguments.
        values: fields of the job by their names in a file, as ``--set`` takes them: ``{"retry.attempts": "2"}``.
        folder: where it begins, and where settings and code are looked for; None: the working folder.

    Raises:
        InputError, SettingError: it asks for what there cannot be. TryAgainError: the store cannot be reached, or CPUs
        or GPUs are not free. What `headrace run` says, as the class of its exit code; nothing was started then.
    """
    what = [job] if isinstance(job, str) else ["--", *job]
    flags = [f"--set={name}={value}" for name, value in (values or {}).items()]
    process = begin(["run", "--detach", *flags, *what], folder)
    told, said = process.communicate()
    if process.returncode:
        raise failure("run", process.returncode, said)
    settings = Settings.load()
    return RecordedRun(Runs(Home.of(Namespace.load(settings), settings)).run(told.strip()))


def begin(words: Sequence[str], folder: str | None = None) -> subprocess.Popen[str]:
    """A command of headrace's that goes on by itself. It ends once its run is recorded, and has said the run's id.

    A process of its own: a runner takes its process's signals, and goes on when this one ends.
    """
    return subprocess.Popen(
        [*_PROGRAM, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip


def failure(command: str, code: int, told: str, path: str | None = None) -> HeadraceError:
    """What a command that failed has said: ``error: …`` and ``hint: …``, the last of each."""
    said = {name: text for name, _, text in (line.partition(": ") for line in told.splitlines())}
    reason = said.get("error", f"headrace {command} ended with {code}")
    return _KINDS.get(code, errors.InternalError)(reason, path=path, hint=said.get("hint"))
