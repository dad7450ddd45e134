"""``headrace stat PATH``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("path")
@json_option
def command(path: str, *, as_json: bool) -> None:
    """Show what is known of the file or folder at PATH."""
    from headrace.cli.ls import as_row
    from headrace.cli.target import open_namespace, target

    namespace = open_namespace()
    where = target(namespace, path)
    entry = namespace.stat(where)
    location = namespace.resolve(where)
    row = {
        **as_row(entry),
        "url": entry.path if "://" in entry.path else f"{location.store.url}/{location.key}",
        "mount": location.mount.path if location.mount else None,
        "read_only": location.read_only,
    }
    if entry.kind == "folder":
        row["size"] = None
    show_record(row, as_json=as_json, kinds={"size": "bytes", "read_only": "flag"})
