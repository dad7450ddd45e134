"""``headrace du PATH``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.cli.output import Column, Row, json_option, show_table

if TYPE_CHECKING:
    from headrace.namespace import Entry

COLUMNS = [Column("size", "SIZE", "bytes"), Column("files", "FILES", "count"), Column("path", "PATH")]


@click.command()
@click.argument("path", default="/")
@click.option("-d", "--depth", default=1, show_default=True, help="Levels of folders to show.", type=click.IntRange(0))
@json_option
def command(path: str, *, depth: int, as_json: bool) -> None:
    """Add up the sizes of all files below PATH, folder by folder."""
    from headrace.cli.snapshot_tree import open_objects, snapshot_entries
    from headrace.cli.target import is_snapshot, open_namespace, target, walk

    namespace = open_namespace()
    if is_snapshot(path):
        root, entries = open_objects(namespace, path).store.url, snapshot_entries(namespace, path)
    else:
        root = target(namespace, path)
        entries = walk(namespace, root)
    show_table(add_up(root, entries, depth), COLUMNS, as_json=as_json)


def add_up(root: str, entries: Iterable[Entry], depth: int) -> list[Row]:
    """Files and bytes of each folder down to `depth` levels below `root`, which comes last."""
    base = root.rstrip("/")
    sums: dict[str, list[int]] = {root: [0, 0]}
    for entry in entries:
        folders = entry.path[len(base) + 1 :].split("/")[:-1][:depth]
        for level in range(len(folders) + 1):
            folder = "/".join((base, *folders[:level])) if level else root
            total = sums.setdefault(folder, [0, 0])
            total[0] += 1
            total[1] += entry.size
    rest = sorted(folder for folder in sums if folder != root)
    return [{"path": folder, "files": sums[folder][0], "size": sums[folder][1]} for folder in (*rest, root)]
