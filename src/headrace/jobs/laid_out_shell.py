"""A shell, or a command, in what a run had: its code, environment, inputs and variables. Nothing of it is recorded."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, Final

from headrace.base.errors import HeadraceError, NotFoundError
from headrace.jobs.again import differences
from headrace.jobs.bring import bring_checkpoint
from headrace.jobs.environment import Invocation
from headrace.jobs.folder import RunFolder
from headrace.jobs.inputs import Site
from headrace.jobs.job import Job
from headrace.jobs.place import AsItLies, Recorded, Source
from headrace.jobs.process import Exit, check_startable
from headrace.jobs.scratch import Scratch, sweep
from headrace.jobs.spec import JobSpec
from headrace.tracking.newest import newest_checkpoint
from headrace.tracking.record import RunRecord, new_id
from headrace.tracking.runs import Run

_GRACE_S: Final = 10.0  # seconds from the first signal to SIGKILL
_NAMED: Final = 8  # names in one line
_FOUND_INSIDE: Final = ("sh", "-c", "if command -v bash > /dev/null; then exec bash; fi; exec sh")
_OF_A_TERMINAL: Final = frozenset(("_", "OLDPWD", "PWD", "SHLVL", "TERM", "COLUMNS", "LINES"))
"""Variables of a shell and its terminal, whose absence tells nothing."""
_SHELL_S_OWN: Final = ("PATH", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class ShellRequest:
    """What is wanted. `site`: where its inputs are looked up, None: none; `command`: empty, an interactive shell;
    `variables`: values that were not recorded, and others; `resume`: bring the newest complete checkpoint, for
    HEADRACE_RESUME; `keep`: leave the folder.
    """

    run: Run
    site: Site | None = None
    command: tuple[str, ...] = ()
    variables: Mapping[str, str] | None = None
    resume: bool = False
    keep: bool = False


def shell(request: ShellRequest, environ: Mapping[str, str], cache: str, tell: Callable[[str], None]) -> Exit:
    """Lay it out, start it on this process's own input and output, wait for it, and clean up. Main thread.

    Ctrl-C is the command's. SIGTERM ends it, and so does SIGHUP. `environ`: the caller's; `cache`: where environments
    are kept; `tell` gets what is not as it was, and what goes on.

    Raises any HeadraceError: something of it cannot be had; nothing was started then, and nothing stays.
    """
    sweep(tell)
    scratch = Scratch()
    kept = False
    try:
        folder = RunFolder(scratch.path, request.run.id, request.run.url)
        if request.keep:
            scratch.keep()
        try:
            ended = _in_folder(request, folder, environ, cache, tell, scratch.lock)
            kept = request.keep
        finally:
            folder.close()
    finally:
        scratch.close(kept=kept)
    if kept:
        tell(f"kept: {folder.path}")
    return ended


def _in_folder(
    request: ShellRequest, folder: RunFolder, environ: Mapping[str, str], cache: str, tell: Callable[[str], None],
    lock: int,
) -> Exit:  # fmt: skip
    record = request.run.record()
    spec = _spec(request, record, tell)
    source: Source = AsItLies(record.folder) if record.code is None else Recorded(request.run)
    job = Job(
        spec, source=source, environ=environ, run_id=new_id(f"shell-{record.name}"), repeats=record,
        site=request.site, before=request.run,
    )  # fmt: skip
    try:
        job.prepare(folder, cache, tell)
        for note in (*job.notes, *_differences(record, job.record(), spec.environment.missing)):
            tell(note)
        resume = _checkpoint(request.run, folder, tell) if request.resume else None
        invocation = job.invocation(folder, 1, resume)
        if not request.command and job.prepared.environment.kind != "image":
            invocation = _with_shell(invocation, folder, request.run.id)
        check_startable(invocation)
        if invocation.limits.memory:
            tell("not as before: its memory is not limited here")
        tell(f"{request.run.id}, in {job.record().folder}; nothing that is done here is recorded")
        return _follow(invocation, job, lock)
    finally:
        job.close()


def _spec(request: ShellRequest, record: RunRecord, tell: Callable[[str], None]) -> JobSpec:
    """The run's, with another command, in one process, without values that nobody knows."""
    given = dict(request.variables or {})
    told = JobSpec.from_json(record.spec, path=request.run.id)
    if told.processes != 1:
        tell(f"one process here, where the run had processes = {told.processes}")
    flags: dict[str, object] = {
        "command": list(request.command or _FOUND_INSIDE), "processes": 1, "resources.wait": False,
    }  # fmt: skip
    flags |= {f"environment.variables.{name}": value for name, value in given.items()}
    spec = told.with_flags(flags)
    if missing := spec.environment.missing:
        tell(f"values not recorded, so not set: {_some(missing)}; give them with --env NAME=VALUE")
    return spec


def _differences(then: RunRecord, here: RunRecord, told: Sequence[str]) -> Generator[str]:
    for text in differences(then, here):
        yield f"not as before: {text}"
    if absent := sorted(set(then.variables) - set(here.variables) - _OF_A_TERMINAL - set(told)):
        yield f"not as before: variables that are not set here: {_some(absent)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _checkpoint(run: Run, folder: RunFolder, tell: Callable[[str], None]) -> str:
    newest = newest_checkpoint(run)
    if newest is None:
        raise NotFoundError("has no complete checkpoint", path=run.id, hint="leave out --resume")
    tell(f"HEADRACE_RESUME: checkpoint {newest.name}{newest.doubt}")
    return bring_checkpoint(run, newest.name, folder.at("resume"))


def _with_shell(invocation: Invocation, folder: RunFolder, run: str) -> Invocation:
    """The user's own shell. What a bash reads at its start may put other programs first: the environment's stay so."""
    program = invocation.environment.get("SHELL", "")
    if not os.path.isabs(program) or not os.access(program, os.X_OK):
        program = shutil.which("bash", path=invocation.environment.get("PATH")) or "sh"
    if os.path.basename(program) != "bash":
        return replace(invocation, argv=(program,))
    lines = ["[ -f ~/.bashrc ] && . ~/.bashrc", f"PS1={shlex.quote(f'({run}) ')}$PS1"]
    for name in _SHELL_S_OWN:
        value = invocation.environment.get(name)
        lines.append(f"export {name}={shlex.quote(value)}" if value is not None else f"unset {name}")
    path = folder.at("bashrc")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n".join(lines) + "\n")
    return replace(invocation, argv=(program, "--rcfile", path))


def _follow(invocation: Invocation, job: Job, lock: int) -> Exit:
    """A child as of any shell: our terminal and process group, so keys reach it as by hand. It holds `lock`, too."""
    asked: list[int] = []
    cpus = invocation.limits.cpus
    launcher = () if cpus is None else ("taskset", "--cpu-list", ",".join(map(str, cpus)))
    argv = (*launcher, *invocation.argv)
    with _signals(asked):
        process = subprocess.Popen(argv, env=dict(invocation.environment), cwd=invocation.folder, pass_fds=(lock,))
        kill_at = float("inf")
        try:
            while process.poll() is None:
                if asked:
                    kill_at = min(kill_at, time.monotonic() + _GRACE_S)
                    _end(job, process, asked.pop())
                if time.monotonic() >= kill_at:
                    process.kill()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            with suppress(HeadraceError):
                job.prepared.stop()
    code = process.returncode
    return Exit(code) if code >= 0 else Exit(None, -code)


def _end(job: Job, process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(HeadraceError):
        job.prepared.send(number, process.send_signal)
    if number == signal.SIGTERM and os.isatty(0):  # a shell at a terminal ignores that one
        process.send_signal(signal.SIGHUP)


@contextmanager
def _signals(asked: list[int]) -> Generator[None]:
    """What keys send goes to all of the terminal's foreground, so to it; others come to us, for it."""

    def keep(number: int, _frame: FrameType | None) -> None:
        asked.append(number)

    def pass_over(_number: int, _frame: FrameType | None) -> None:  # SIG_IGN would be inherited
        pass

    handlers: dict[int, Any] = {signal.SIGINT: pass_over, signal.SIGQUIT: pass_over}
    handlers |= {signal.SIGTERM: keep, signal.SIGHUP: keep}
    wakes = signal.set_wakeup_fd(-1)  # nobody ends us two seconds after a Ctrl-C
    before = {one: signal.signal(one, how) for one, how in handlers.items() if signal.getsignal(one) != signal.SIG_IGN}
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in before.items():
            signal.signal(number, handler)
