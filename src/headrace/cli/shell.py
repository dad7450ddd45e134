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
    from headrace.cli.run import pair
    from headrace.cluster import ShellOptions, shell

    given = dict(pair(text, "--env") for text in variables)
    options = ShellOptions(words, given, resume, keep, rank, on, anywhere, quiet)
    ended = shell(run, options, tell=lambda text: click.echo(f"headrace: {text}", err=True))
    raise click.exceptions.Exit(ended.status)
