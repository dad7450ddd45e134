"""``headrace rm PATH…``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from headrace.base.errors import InputError

if TYPE_CHECKING:
    from headrace.namespace import Entry, Namespace

_AT_ONCE = 1000


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-r", "--recursive", is_flag=True, help="Whole trees too.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be deleted.")
def command(paths: tuple[str, ...], *, recursive: bool, dry_run: bool) -> None:
    """Delete the files at each PATH; with -r, everything below it."""
    from headrace.cli.progress import progress
    from headrace.cli.target import open_namespace, target

    namespace = open_namespace()
    doomed = (entry for path in paths for entry in _files(namespace, target(namespace, path), recursive=recursive))
    if dry_run:
        for entry in doomed:
            click.echo(entry.path)
        return
    with progress("deleted") as report:
        while group := list(islice(doomed, _AT_ONCE)):
            namespace.delete([entry.path for entry in group])
            report.advance(len(group), sum(entry.size for entry in group))


def _files(namespace: Namespace, path: str, *, recursive: bool) -> Iterator[Entry]:
    from headrace.cli.target import walk

    if not recursive and namespace.stat(path).kind == "folder":
        raise InputError("is a folder", path=path, hint="rm -r deletes everything below it")
    return walk(namespace, path)
