"""``headrace pack SRC DST``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from headrace.base.errors import InputError
from headrace.cli.on import on_option, tell
from headrace.cli.output import json_option, show_record
from headrace.cli.target import from_option

if TYPE_CHECKING:
    from headrace.dataset import Skip


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["webdataset", "tfrecord", "parquet"]),
    default="webdataset",
    show_default=True,
    help="Of the shards.",
)
@click.option("--shard-size", default="100MB", show_default=True, help="Most bytes of a shard.")
@click.option("--shuffle", "seed", type=int, metavar="SEED", help="Pack in a random order, the same for the same SEED.")
@click.option("--by", default="stem", show_default=True, help="What makes one sample: stem, class or folder.")
@click.option("--map", "function", metavar="MODULE:FUNCTION", help="Apply a Python function to every sample.")
@click.option(
    "--where", metavar="EXPR", help='Pack only samples for which this holds: size < 10_000 and "cls" in parts.'
)
@click.option("--columns", metavar="TYPES", help='Types of the columns of text: "label:i64, features:f32[39]".')
@click.option("--schema", metavar="FILE", help="The same from a TOML or JSON file.")
@click.option("--from", "source_format", metavar="FORMAT", help="Of SRC: csv, jsonl, tar …  [default: by its names]")
@click.option("--name", metavar="PATTERN", help="Names of the shards, with one %d.  [default: %06d.tar and the like]")
@click.option("--max-errors", default="0", show_default=True, help="Samples that may be left out: 10, or 0.1%.")
@click.option("-j", "--workers", default=0, type=click.IntRange(0, 256), help="Shards made at once.  [default: cores]")
@click.option(
    "--verify",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="Compare the listing, or read every shard back.",
)
@on_option
@json_option
@from_option()
def command(
    source: str,
    destination: str,
    *,
    layout: str,
    shard_size: str,
    seed: int | None,
    by: str,
    function: str | None,
    where: str | None,
    columns: str | None,
    schema: str | None,
    source_format: str | None,
    name: str | None,
    max_errors: str,
    workers: int,
    verify: Literal["quick", "full"],
    on: str | None,
    as_json: bool,
) -> None:
    """Pack the samples of SRC into shards (tar, TFRecord or Parquet) below DST, from any store to any other.

    SRC is a path, a URL or a snapshot NAME@VERSION; DST an empty folder. The same SRC and options give the same bytes,
    with any number of workers. After any interruption the same command goes on: finished shards are not made again.
    With --on the nodes of a cluster make the shards; SRC and DST are places that all of them reach.
    """
    import dataclasses
    import os
    import sys

    from headrace.base.units import parse_bytes
    from headrace.cli.progress import passing, progress
    from headrace.cli.target import is_snapshot, open_namespace, target
    from headrace.pack import PackOptions, pack

    if on is not None and workers:
        raise InputError("a cluster's CPUs decide how many shards are made at once", path="-j", hint="leave it out")
    if function:
        sys.path.insert(0, os.getcwd())
    namespace = open_namespace()
    place = source if is_snapshot(source) else target(namespace, source)
    options = PackOptions(
        shard_size=parse_bytes(shard_size, name="--shard-size"),
        seed=seed,
        by=by,
        function=function,
        name=name,
        layout=layout,
        columns=_columns(columns, schema),
        where=where,
        source_format=source_format,
        max_errors=_budget(max_errors),
        workers=workers,
        verify=verify,
    )
    with passing("planned") as planning, progress("packed", "samples") as report:
        goal = target(namespace, destination)
        if on is None:
            packed = pack(place, goal, options, namespace=namespace, planning=planning, progress=report)
        else:
            from headrace.base.settings import Settings
            from headrace.cluster.data.packing import pack_on

            packed = pack_on(
                on, place, goal, options, namespace=namespace, settings=Settings.load(), planning=planning,
                progress=report, tell=tell,
            )  # fmt: skip
    show_record(dataclasses.asdict(packed), as_json=as_json, kinds={"bytes": "bytes", "samples": "count"})


def _columns(text: str | None, file: str | None) -> str | None:
    if file is None:
        return text
    if text is not None:
        raise InputError("--columns and --schema say the same", hint="give one of them")
    from headrace.pack import read_schema

    return str(read_schema(file))


def _budget(text: str) -> Skip:
    from headrace.dataset import Skip

    number, percent = (text[:-1], True) if text.endswith("%") else (text, False)
    try:
        return Skip(max_rate=float(number) / 100) if percent else Skip(max_count=int(number))
    except ValueError:
        raise InputError(f"--max-errors {text!r} is no number", hint="10 samples, or a share of all: 0.1%") from None
