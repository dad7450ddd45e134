"""Runs that go on by themselves, as `headrace run --detach` and `rerun` in processes of their own: `start`,
`start_again`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headrace.base import errors
from headrace.base.errors import HeadraceError
from headrace.namespace import Home
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
    words = [job] if isinstance(job, str) else ["--", *job]
    return _recorded("run", [*_flags(values), *words], folder)


def start_again(run: str = "latest", values: Mapping[str, str] | None = None, *, resume: bool = False) -> RecordedRun:
    """Begin a run again from its record alone, as another run, which goes on by itself. Any thread.

    Args:
        run: an id, its beginning or end, a name (the newest run of it), or ``latest``.
        values: fields of the job that are to be otherwise, as of `start`.
        resume: go on from the run's newest complete checkpoint.

    Raises:
        NotFoundError: there is no such run, or, with `resume`, no checkpoint. As `start`.
    """
    return _recorded("rerun", [*_flags(values), *(["--resume"] if resume else []), "--", run], None)


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


def _recorded(command: str, words: Sequence[str], folder: str | None) -> RecordedRun:
    process = begin([command, "--detach", *words], folder)
    told, said = process.communicate()
    if process.returncode:
        raise failure(command, process.returncode, said)
    return RecordedRun(Runs(Home.of()).run(told.strip()))


def _flags(values: Mapping[str, str] | None) -> list[str]:
    return [f"--set={name}={value}" for name, value in (values or {}).items()]
