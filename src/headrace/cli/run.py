"""``headrace run -- COMMAND``."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.base.errors import InputError, TryAgainError
from headrace.cli.job_words import JobCommand

if TYPE_CHECKING:
    from headrace.jobs import Outcome, RunRequest

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)


def flags(function: _Function) -> _Function:
    """The options that say something of the job; `flags_of` reads them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


_OPTIONS = (
    click.option("--name", help="Name of the run.  [default: from the command]"),
    click.option("--id", "run_id", help="Id of the run; it must be new.  [default: time, name and four digits]"),
    click.option("--set", "values", multiple=True, metavar="FIELD=VALUE", help="Any field of the job: grace=1min."),
    click.option("--tag", "tags", multiple=True, metavar="NAME[=VALUE]", help="Something to find the run by."),
    click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable for the command."),
    click.option("--on", metavar="CLUSTER", help="Run it on a Ray cluster: ray://HOST:10001."),
    click.option("--nodes", type=int, help="On so many nodes of it.  [default: 1]"),
    click.option("--workers", metavar="N[..M]", help="As so many processes, wherever there is room on it."),
    click.option("--attempts", type=int, help="How often it is started, at most.  [default: 1]"),
    click.option("--time-limit", help="For all attempts together."),
    click.option("--wait", is_flag=True, default=None, help="Wait for the CPUs and GPUs that it asks for by number."),
)
background_option = click.option("--detach", "-d", is_flag=True, help="Go on in the background; prints the run's id.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Say nothing of our own.")


def tasks_options(function: _Function) -> _Function:
    """The options that say how tasks are run."""
    most = click.IntRange(1, 256)
    at_once = click.option("--at-once", type=most, metavar="N", help="Run at most N tasks side by side.")
    fresh = click.option("--fresh", is_flag=True, help="Run all tasks, also those that are up to date.")
    return at_once(fresh(function))


@click.command(cls=JobCommand, context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="[JOB.TOML] [-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@flags
@click.option("--no-code", is_flag=True, help="Record nothing of the code.")
@click.option("--resume", metavar="RUN", help="Go on from this run's newest complete checkpoint, with the code here.")
@click.option("--go-on", is_flag=True, help="Resume the newest run of this name, unless that has finished well.")
@click.option("--sweep", "sweeps", multiple=True, metavar="NAME=VALUES",
              help="Once for each value: lr=0.1,0.01, seed=1..3. May be repeated: each with each.")  # fmt: skip
@tasks_options
@background_option
@quiet_option
def command(
    words: tuple[str, ...], *, no_code: bool, resume: str | None, go_on: bool, sweeps: tuple[str, ...],
    at_once: int | None, fresh: bool, detach: bool, quiet: bool, **flags: object,
) -> None:  # fmt: skip
    """Run a command as a run: its output, metrics, files and checkpoints go to the home while it works.

    The command finds HEADRACE_RUN_ID, and HEADRACE_OUTPUTS: what it writes there is in the bucket seconds later. Each
    of the job's inputs is told by HEADRACE_INPUT_<NAME>. Its exit code, signals and terminal pass through as if it had
    been started by hand. With --resume the command may be left out: it is that run's. Where that run has no complete
    checkpoint, the one that it was resumed from counts, and so on.

    A job of several tasks, and with --sweep any job, is a run of which each task is a run of its own. In the command
    {lr} is a parameter's value.
    """
    from headrace.jobs import RunRequest, TaskOptions

    chosen, run_id = flags_of(flags)
    if no_code:
        chosen["code.capture"] = "false"
    job: str | tuple[str, ...] = words
    if words and words[0].endswith(".toml"):
        job = words[0]
        if rest := words[2:] if words[1:2] == ("--",) else words[1:]:
            chosen["command"] = list(rest)
    request = RunRequest.of(
        job, chosen, sweeps=[pair(text, "--sweep") for text in sweeps], resume=resume, go_on=go_on, run_id=run_id,
        tasks=TaskOptions(at_once, fresh), quiet=quiet,
    )  # fmt: skip
    start(request, detach=detach)


def flags_of(options: dict[str, Any]) -> tuple[dict[str, object], str | None]:
    """Fields of the job by their names in a file, and the run's id."""
    named = {
        "name": "name", "attempts": "retry.attempts", "time_limit": "time_limit", "on": "cluster.on",
        "nodes": "cluster.nodes", "workers": "cluster.workers", "wait": "resources.wait",
    }  # fmt: skip
    found: dict[str, object] = {
        named[key]: value for key, value in options.items() if key in named and value is not None
    }
    found |= dict(pair(text, "--set") for text in options["values"])
    found |= {f"tags.{name}": value for name, _, value in (text.partition("=") for text in options["tags"])}
    pairs = (pair(text, "--env") for text in options["variables"])
    return found | {f"environment.variables.{key}": value for key, value in pairs}, options["run_id"]


def start(request: RunRequest, *, detach: bool) -> None:
    """Run it, and end as it does."""
    request.check()
    if request.on_cluster:
        _end(_on_cluster(request, detach=detach))
    ready = _to_background() if detach else None
    logging.basicConfig(format="headrace: %(message)s", level=logging.WARNING)

    def started(run: str, log: str) -> None:
        # The runner takes signals from here on, and gives this one back when all is over.
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
            signal.signal(signal.SIGINT, _too_late)
        if ready is not None:
            os.write(ready, run.encode())
            os.close(ready)
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            os.dup2(fd, 2)
            os.close(fd)

    from headrace.jobs import run_here

    with _signals_are_the_commands():
        outcome = run_here(request, passing=None if detach else (1, 2), started=started)
    _end(outcome)


def pair(text: str, option: str) -> tuple[str, str]:
    """Name and value. Raises InputError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"{option} {text}: is no NAME=VALUE", hint=f"{option} NAME=VALUE")
    return name, value


def _on_cluster(request: RunRequest, *, detach: bool) -> Outcome:
    from headrace.cluster import run_on_cluster

    def begins(run: str) -> None:
        if not request.quiet and not detach:
            click.echo(f"headrace: run {run} on {request.spec.cluster.on}; Ctrl-C stops it", err=True)

    with _signals_are_the_commands():
        run, outcome = run_on_cluster(request, detach=detach, begins=begins)
    if outcome is None:
        click.echo(run)
        raise click.exceptions.Exit
    return outcome


def _to_background() -> int:
    """From here on another process; what comes back is where to write the run's id. The caller gets it, and ends."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        with open(reading, "rb") as pipe:
            told = pipe.read().decode()
        if told:
            click.echo(told)
            raise click.exceptions.Exit
        _, code = os.waitpid(pid, 0)  # it has said why
        raise click.exceptions.Exit(os.waitstatus_to_exitcode(code))
    os.close(reading)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return writing


@contextmanager
def _signals_are_the_commands() -> Generator[None]:
    """Ctrl-C is for the command to heed or not, so nothing ends us two seconds later."""
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def _too_late(_number: int, _frame: object) -> None:
    """The run is over and recorded: another Ctrl-C changes nothing of how it ended."""


def _end(outcome: Outcome) -> None:
    """As the command has."""
    try:
        outcome.check()
    except TryAgainError as error:
        if outcome.exit.succeeded:
            raise
        click.echo(f"headrace: {error}", err=True)
    number = outcome.exit.signal
    if number is not None and number in _ENDED_BY:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    raise click.exceptions.Exit(outcome.exit.status)
