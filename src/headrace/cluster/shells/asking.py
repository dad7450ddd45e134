"""A shell in what a run had, here or where one of its ranks runs: `hr.shell`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.base.errors import InputError
from headrace.base.settings import Settings, whole_environment
from headrace.jobs import Exit, ShellRequest, Site
from headrace.jobs import shell as shell_here
from headrace.namespace import Home, Namespace
from headrace.tracking import Runs


@dataclass(frozen=True, slots=True)
class ShellOptions:
    """What is wanted of a shell.

    Args:
        command: what is run in the place of an interactive shell; none: that.
        variables: values that were not recorded, and others.
        resume: bring the newest complete checkpoint, for ``HEADRACE_RESUME``.
        keep: leave the folder in which it was laid out.
        rank: on a cluster, on the node where this rank runs, or ran; None: here.
        on: with `rank`, another cluster than the run's.
        anywhere: with `rank`, on another node if that one is gone.
        quiet: nothing of our own is told.
    """

    command: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    resume: bool = False
    keep: bool = False
    rank: int | None = None
    on: str | None = None
    anywhere: bool = False
    quiet: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """What of it ``headrace shell`` is told on the node of a rank."""
        flags = (("--resume", self.resume), ("--keep", self.keep), ("--quiet", self.quiet))
        given = (f"--env={name}={value}" for name, value in self.variables.items())
        return (*(name for name, wanted in flags if wanted), *given, "--", *self.command)


def shell(
    run: str = "latest", options: ShellOptions | None = None, *, tell: Callable[[str], object] = lambda _text: None
) -> Exit:
    """A shell, or a command, in what a run had: its code, environment and inputs, laid out in a new folder.

    It has this process's own input and output, and nothing of it is recorded. Main thread.

    ``hr.shell("latest", hr.ShellOptions(("python", "-c", "import torch"))).status`` is the exit code.

    Args:
        run: an id, its beginning or end, a name (the newest run of it), or ``latest``.
        options: None: an interactive shell, here.
        tell: gets what cannot be as it was, and what goes on, a sentence each.

    Raises:
        NotFoundError: there is no such run, or no such rank. InputError: `on` or `anywhere` without `rank`.
        SettingError: no home is set. Any HeadraceError: something of the run cannot be had; nothing was started then,
        and nothing stays.
    """
    wanted = options or ShellOptions()
    settings = Settings.load()

    def told(text: str) -> None:
        if not wanted.quiet:
            tell(text)

    with Namespace.load(settings) as namespace:
        runs = Runs(Home.of(namespace, settings))
        if wanted.rank is not None:
            from headrace.cluster.shells.here import RankShell, rank_shell

            asked = RankShell(runs.find(run), wanted.rank, wanted.words, wanted.on, anywhere=wanted.anywhere)
            return rank_shell(asked, settings, told)
        if wanted.anywhere or wanted.on is not None:
            raise InputError("--anywhere and --on go with --rank", hint="headrace shell RUN --rank 0")
        request = ShellRequest(
            runs.find(run), Site(namespace, settings), wanted.command, wanted.variables, resume=wanted.resume,
            keep=wanted.keep,
        )  # fmt: skip
        return shell_here(request, whole_environment(), settings.run.cache, told)
