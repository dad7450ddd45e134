"""``headrace du PATH``."""

from __future__ import annotations

import click

from headrace.cli.output import Column, json_option, show_table

COLUMNS = [Column("size", "SIZE", "bytes"), Column("files", "FILES", "count"), Column("path", "PATH")]


@click.command()
@click.argument("path", default="/")
@click.option("-d", "--depth", default=1, show_default=True, help="Levels of folders to show.", type=click.IntRange(0))
@json_option
def command(path: str, *, depth: int, as_json: bool) -> None:
    """Add up the sizes of all files below PATH, folder by folder."""
    import headrace as hr

    show_table([folder._asdict() for folder in hr.usage(path, depth)], COLUMNS, as_json=as_json)
