"""``headrace rm PATH…``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from headrace.base.errors import InputError

if TYPE_CHECKING:
    from headrace.namespace import Entry, Namespace


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("-r", "--recursive", is_flag=True, help="Whole trees too.")
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be deleted.")
@click.option("--uploads", is_flag=True, help="Instead: uploads below PATH that were begun and never ended.")
@click.option("--older-than", default="1d", show_default=True, metavar="TIME", help="With --uploads: at least so old.")
def command(paths: tuple[str, ...], *, recursive: bool, dry_run: bool, uploads: bool, older_than: str) -> None:
    """Delete the files at each PATH; with -r, everything below it.

    Uploads that never ended hold parts that cost money and that no listing shows. Younger ones may be under way: what
    another program sends is thrown away, too.
    """
    from headrace.cli.progress import progress
    from headrace.cli.target import open_namespace, target

    namespace = open_namespace()
    if uploads:
        for path in paths:
            _discard(namespace, target(namespace, path), older_than, dry_run=dry_run)
        return
    doomed = (entry for path in paths for entry in _files(namespace, target(namespace, path), recursive=recursive))
    if dry_run:
        for entry in doomed:
            click.echo(entry.path)
        return
    with progress("deleted") as report:
        namespace.delete_files(doomed, progress=report)


def _discard(namespace: Namespace, path: str, older_than: str, *, dry_run: bool) -> None:
    from headrace.base.units import format_seconds, parse_seconds

    age_s = parse_seconds(older_than, name="--older-than")
    found = namespace.unfinished(path, older_than_s=age_s, discard=not dry_run)
    url = namespace.resolve(path).store.url
    for one in found:
        click.echo(f"{url}/{one.key}, begun {format_seconds(max(0.0, time.time() - one.started_us / 1e6))} ago")
    click.echo(f"{len(found):,} uploads {'would be ' if dry_run else ''}thrown away", err=True)


def _files(namespace: Namespace, path: str, *, recursive: bool) -> Iterator[Entry]:
    if not recursive and namespace.stat(path).kind == "folder":
        raise InputError("is a folder", path=path, hint="rm -r deletes everything below it")
    return namespace.files(path)
