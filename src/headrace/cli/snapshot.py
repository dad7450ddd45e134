"""``headrace snapshot PATH``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("path")
@click.option("--name", help="Name of the data set.  [default: the last part of PATH]")
@click.option("--version", help="Version to make.  [default: the next of v1, v2, …]")
@json_option
def command(path: str, *, name: str | None, version: str | None, as_json: bool) -> None:
    """Record every object below PATH, with its version, as NAME@VERSION in the home.

    From then on NAME@VERSION works wherever a PATH does, needs no listing, and never changes.
    """
    from headrace.base.settings import Settings
    from headrace.cli.progress import progress
    from headrace.cli.target import base_name, open_namespace, target
    from headrace.dataset.snapshot import take_snapshot

    settings, namespace = Settings.load(), open_namespace()
    where = target(namespace, path)
    with progress("listed") as report:
        made = take_snapshot(
            where, name or base_name(where), version, namespace=namespace, settings=settings, progress=report
        )
    show_record({"id": made.id, **made.as_dict()}, as_json=as_json, kinds={"bytes": "bytes", "objects": "count"})
