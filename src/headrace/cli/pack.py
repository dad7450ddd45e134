"""``headrace pack SRC DST``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import click

from headrace.base.errors import InputError
from headrace.cli.output import json_option, show_record

if TYPE_CHECKING:
    from headrace.dataset import Skip


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["webdataset"]),
    default="webdataset",
    show_default=True,
    help="Of the shards.",
)
@click.option("--shard-size", default="100MB", show_default=True, help="Most bytes of a shard.")
@click.option("--shuffle", "seed", type=int, metavar="SEED", help="Pack in a random order, the same for the same SEED.")
@click.option("--by", default="stem", show_default=True, help="What makes one sample: stem, class or folder.")
@click.option("--map", "function", metavar="MODULE:FUNCTION", help="Apply a Python function to every sample.")
@click.option("--name", default="%06d.tar", show_default=True, help="Names of the shards, with one %d.")
@click.option("--max-errors", default="0", show_default=True, help="Samples that may be left out: 10, or 0.1%.")
@click.option("-j", "--workers", default=0, type=click.IntRange(0, 256), help="Shards made at once.  [default: cores]")
@click.option(
    "--verify",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="Compare the listing, or read every shard back.",
)
@json_option
def command(
    source: str,
    destination: str,
    *,
    layout: str,
    shard_size: str,
    seed: int | None,
    by: str,
    function: str | None,
    name: str,
    max_errors: str,
    workers: int,
    verify: Literal["quick", "full"],
    as_json: bool,
) -> None:
    """Pack the samples of SRC into tar shards below DST, from any store to any other.

    SRC is a path, a URL or a snapshot NAME@VERSION; DST an empty folder. The same SRC and options give the same bytes,
    with any number of workers. After any interruption the same command goes on: finished shards are not made again.
    """
    import dataclasses
    import os
    import sys

    from headrace.base.units import parse_bytes
    from headrace.cli.progress import passing, progress
    from headrace.cli.target import is_snapshot, open_namespace, target
    from headrace.pack import PackOptions, pack

    del layout  # there is one
    if function:
        sys.path.insert(0, os.getcwd())
    options = PackOptions(
        shard_size=parse_bytes(shard_size, name="--shard-size"),
        seed=seed,
        by=by,
        function=function,
        name=name,
        max_errors=_budget(max_errors),
        workers=workers,
        verify=verify,
    )
    namespace = open_namespace()
    where = source if is_snapshot(source) else target(namespace, source)
    with passing("planned") as planning, progress("packed", "samples") as report:
        packed = pack(
            where, target(namespace, destination), options, namespace=namespace, planning=planning, progress=report
        )
    show_record(dataclasses.asdict(packed), as_json=as_json, kinds={"bytes": "bytes", "samples": "count"})


def _budget(text: str) -> Skip:
    from headrace.dataset import Skip

    number, percent = (text[:-1], True) if text.endswith("%") else (text, False)
    try:
        return Skip(max_rate=float(number) / 100) if percent else Skip(max_count=int(number))
    except ValueError:
        raise InputError(f"--max-errors {text!r} is no number", hint="10 samples, or a share of all: 0.1%") from None
