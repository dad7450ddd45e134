"""``headrace rerun RUN``."""

from __future__ import annotations

import click

from headrace.cli.run import background_option, flags, flags_of, quiet_option, start, tasks_options


@click.command()
@click.argument("run")
@flags
@click.option("--resume", is_flag=True, help="Go on from its newest complete checkpoint: HEADRACE_RESUME names it.")
@tasks_options
@background_option
@quiet_option
def command(
    run: str, *, resume: bool, at_once: int | None, fresh: bool, detach: bool, quiet: bool, **flags: object
) -> None:
    """Run RUN again from its record alone: same command, same code, as another run.

    Says what cannot be the same. RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """
    from headrace.jobs import RunRequest, TaskOptions

    chosen, run_id = flags_of(flags)
    tasks = TaskOptions(at_once, fresh)
    request = RunRequest.again(run, chosen, run_id=run_id, resume=resume, tasks=tasks, quiet=quiet)
    start(request, detach=detach)
