"""``headrace mounts``."""

from __future__ import annotations

import click

from headrace.cli.output import Column, json_option, show_table

COLUMNS = [Column("path", "PATH"), Column("url", "STORE"), Column("read_only", "READ-ONLY", "flag")]


@click.command()
@json_option
def command(*, as_json: bool) -> None:
    """List what is attached where."""
    from headrace.cli.target import open_namespace

    mounts = sorted(open_namespace().mounts(), key=lambda mount: mount.path)
    rows = [{"path": mount.path, "url": mount.url, "read_only": mount.read_only} for mount in mounts]
    show_table(rows, COLUMNS, as_json=as_json, empty="nothing is attached; try: headrace attach PATH URL")
