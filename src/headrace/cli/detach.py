"""``headrace detach PATH``."""

from __future__ import annotations

import click


@click.command()
@click.argument("path")
@click.option("--file", help="The settings file to change.  [default: the nearest headrace.toml]")
def command(path: str, *, file: str | None) -> None:
    """Take the store off PATH. Nothing in the store changes."""
    from headrace.namespace import detach

    click.echo(f"detached {path} (in {detach(path, file=file)})")
