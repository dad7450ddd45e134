"""``headrace shell RUN``."""

from __future__ import annotations

import click


@click.command()
@click.argument("run")
@click.argument("words", metavar="[-- COMMAND…]", nargs=-1, type=click.UNPROCESSED)
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE",
              help="A variable, as one whose value was not recorded.")  # fmt: skip
@click.option("--resume", is_flag=True, help="Bring its newest complete checkpoint: HEADRACE_RESUME names it.")
@click.option("--keep", is_flag=True, help="Leave the folder in which it was laid out, and tell its path.")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing of our own.")
def command(
    run: str, words: tuple[str, ...], *, variables: tuple[str, ...], resume: bool, keep: bool, quiet: bool
) -> None:
    """Open a shell, or run COMMAND, in what RUN had: same code, environment and inputs, laid out in a new folder.

    Says what cannot be the same. Nothing is recorded: HEADRACE_OUTPUTS is a folder that goes with the shell. RUN
    is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """
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
    site = Site(open_namespace(), settings)
    request = ShellRequest(find_run(run), site, words, given, resume=resume, keep=keep)
    ended = shell(request, whole_environment(), settings.run.cache, tell)
    raise click.exceptions.Exit(ended.status)
