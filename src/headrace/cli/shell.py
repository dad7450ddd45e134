"""``headrace shell RUN``."""

from __future__ import annotations

import click


@click.command()
@click.argument("run")
@click.argument("words", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.option("--rank", type=click.IntRange(min=0), metavar="N",
              help="On a cluster: on the node where this rank runs, or ran.")
@click.option("--anywhere", is_flag=True, help="With --rank: on another node, if that one is gone.")
@click.option("--on", metavar="CLUSTER", help="With --rank: another cluster than the run's.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE",
              help="A variable, as one whose value was not recorded.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Bring its newest complete checkpoint: HEADRACE_RESUME names it.")
@click.option("--keep", is_flag=True, help="Leave the folder in which it was laid out, and tell its path.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing of our own.")
def command(
    run: str, words: tuple[str, ...], *, rank: int | None, anywhere: bool, on: str | None, variables: tuple[str, ...],
    resume: bool, keep: bool, quiet: bool,
) -> None:  # fmt: skip
    """Open a shell, or run COMMAND, in what RUN had: same code, environment and inputs, laid out in a new folder.

    Says what cannot be the same. Nothing is recorded: HEADRACE_OUTPUTS is a folder that goes with the shell. RUN
    is an id, its beginning or end, a name (the newest run of it), or `latest`.

    With --rank it is laid out on that rank's node of the cluster, beside what runs there, with its RANK and WORLD_SIZE;
    what is typed here goes there.
    """
    from headrace.base.errors import InputError
    from headrace.base.settings import Settings, whole_environment
    from headrace.cli.run import pair
    from headrace.cli.run_access import find_run
    from headrace.cli.target import open_namespace
    from headrace.jobs import ShellRequest, Site, shell

    def tell(text: str) -> None:
        if not quiet:
            click.echo(f"headrace: {text}", err=True)

    given = dict(pair(text, "--env") for text in variables)
    settings = Settings.load()
    if rank is not None:
        from headrace.cluster import RankShell, rank_shell

        flags = [name for name, asked in (("--resume", resume), ("--keep", keep), ("--quiet", quiet)) if asked]
        options = (*flags, *(f"--env={name}={value}" for name, value in given.items()), "--", *words)
        ended = rank_shell(RankShell(find_run(run), rank, options, on, anywhere=anywhere), settings, tell)
        raise click.exceptions.Exit(ended.status)
    if anywhere or on is not None:
        raise InputError("--anywhere and --on go with --rank", hint="headrace shell RUN --rank 0")
    site = Site(open_namespace(), settings)
    request = ShellRequest(find_run(run), site, words, given, resume=resume, keep=keep)
    ended = shell(request, whole_environment(), settings.run.cache, tell)
    raise click.exceptions.Exit(ended.status)
