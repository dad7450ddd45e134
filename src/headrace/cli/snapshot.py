"""``headrace snapshot PATH``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.base.errors import HeadraceError, InputError
from headrace.cli.on import listing_of, on_option, tell, workers_on
from headrace.cli.output import json_option, show_record

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.catalog import Snapshot
    from headrace.cluster import Workers
    from headrace.namespace import Namespace


@click.command()
@click.argument("path")
@click.option("--name", help="Name of the data set.  [default: the last part of PATH]")
@click.option("--version", help="Version to make.  [default: the next of v1, v2, …]")
@click.option(
    "--index/--no-index",
    default=None,
    help="Of shards, also keep where each sample lies.  [default: where names tell that they are shards]",
)
@click.option("--format", "form", metavar="FORMAT", help="Of the shards, where names do not tell: tar, mds, jsonl …")
@on_option
@json_option
def command(
    path: str, *, name: str | None, version: str | None, index: bool | None, form: str | None, on: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Record every object below PATH, with its version, as NAME@VERSION in the home.

    From then on NAME@VERSION works wherever a PATH does, needs no listing, and never changes. Of shards, their index is
    kept with it, so that no node has to read them for that. Interrupted, `headrace snapshot NAME@VERSION` goes on.
    """
    from headrace.base.settings import Settings
    from headrace.catalog import open_snapshot
    from headrace.cli.target import is_snapshot, open_namespace

    if form is not None and index is False:
        raise InputError("--format and --no-index", hint="the format is of the shards that are indexed")
    settings, namespace = Settings.load(), open_namespace()
    if is_snapshot(path):
        if name or version or index is False:
            raise InputError(f"{path} is a snapshot already", hint="only its index can still be made")
        index = True
    with workers_on(on, settings) as workers:
        if is_snapshot(path):
            made = open_snapshot(path, namespace=namespace, settings=settings)
        else:
            made = _taken(path, name, version, namespace, settings, workers)
        samples, failure = None, None
        if index is not False:
            try:
                samples = _indexed(made, form, namespace, settings, workers, wanted=bool(index or form))
            except HeadraceError as error:
                failure = error
    row = {"id": made.id, **made.as_dict(), "indexed_samples": samples}
    show_record(row, as_json=as_json, kinds={"bytes": "bytes", "objects": "count", "indexed_samples": "count"})
    if failure is not None:
        raise failure


def _taken(
    path: str, name: str | None, version: str | None, namespace: Namespace, settings: Settings, workers: Workers | None
) -> Snapshot:
    from headrace.cli.progress import progress
    from headrace.formats import take_with_index

    with progress("listed") as report:
        return take_with_index(
            path, name, version, namespace=namespace, settings=settings, progress=report, listing=listing_of(workers)
        )


def _indexed(
    snapshot: Snapshot, form: str | None, namespace: Namespace, settings: Settings, workers: Workers | None, *,
    wanted: bool,
) -> int | None:  # fmt: skip
    from headrace.base.units import format_bytes
    from headrace.cli.progress import passing
    from headrace.formats import keep_index

    elsewhere = None
    if workers is not None:
        from headrace.cluster import scanning_on

        elsewhere = scanning_on(workers, snapshot, tell=tell)

    def begins(name: str, shards: int, size: int) -> None:
        click.echo(f"{snapshot.id} is recorded; indexing its {shards:,} {name} shards, {format_bytes(size)}", err=True)

    with passing("indexed") as report:
        return keep_index(
            snapshot, format=form, wanted=wanted, namespace=namespace, settings=settings, progress=report,
            begins=begins, tell=tell, elsewhere=elsewhere,
        )  # fmt: skip
