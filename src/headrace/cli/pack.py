"""``headrace pack SRC DST``."""

from __future__ import annotations

import dataclasses

import click

from headrace.base.errors import InputError
from headrace.cli.on import on_option, tell
from headrace.cli.output import json_option, show_record
from headrace.cli.pack_words import PackWords, pack_options
from headrace.cli.target import from_option


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@pack_options
@on_option
@json_option
@from_option()
def command(source: str, destination: str, *, words: PackWords, on: str | None, as_json: bool) -> None:
    """Pack the samples of SRC into shards (tar, TFRecord or Parquet) below DST, from any store to any other.

    SRC is a path, a URL or a snapshot NAME@VERSION; DST an empty folder. The same SRC and options give the same bytes,
    with any number of workers. After any interruption the same command goes on: finished shards are not made again.
    With --on the nodes of a cluster make the shards; SRC and DST are places that all of them reach.
    """
    from headrace.cli.progress import passing, progress
    from headrace.cli.target import is_snapshot, open_namespace, target
    from headrace.pack import pack

    if on is not None and words.workers:
        raise InputError("a cluster's CPUs decide how many shards are made at once", path="-j", hint="leave it out")
    namespace = open_namespace()
    place = source if is_snapshot(source) else target(namespace, source)
    options = words.options()
    with passing("planned") as planning, progress("packed", "samples") as report:
        goal = target(namespace, destination)
        if on is None:
            packed = pack(place, goal, options, namespace=namespace, planning=planning, progress=report)
        else:
            from headrace.base.settings import Settings
            from headrace.cluster import pack_on

            packed = pack_on(
                on, place, goal, options, namespace=namespace, settings=Settings.load(), planning=planning,
                progress=report, tell=tell,
            )  # fmt: skip
    show_record(dataclasses.asdict(packed), as_json=as_json, kinds={"bytes": "bytes", "samples": "count"})
