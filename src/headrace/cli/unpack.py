"""``headrace unpack SRC DST``."""

from __future__ import annotations

import click

from headrace.base.errors import InputError
from headrace.cli.on import on_option, tell
from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option("-j", "--workers", default=0, type=click.IntRange(0, 256), help="Shards read at once.  [default: cores]")
@click.option("--overwrite", is_flag=True, help="Write over what DST has already.")
@on_option
@json_option
def command(source: str, destination: str, *, workers: int, overwrite: bool, on: str | None, as_json: bool) -> None:
    """Unpack a shard, or all shards below SRC (tar, TFRecord, Parquet), to single objects below DST.

    What DST has in the same bytes stays, so an interrupted command goes on. With --on the nodes of a cluster do it.
    """
    import dataclasses

    from headrace.cli.progress import progress
    from headrace.cli.target import open_namespace, target
    from headrace.pack import unpack

    if on is not None and workers:
        raise InputError("a cluster's CPUs decide how many shards are read at once", path="-j", hint="leave it out")
    namespace = open_namespace()
    origin, goal = target(namespace, source), target(namespace, destination)
    with progress("unpacked") as report:
        if on is None:
            unpacked = unpack(
                origin, goal, workers=workers, overwrite=overwrite, namespace=namespace, progress=report
            )
        else:
            from headrace.base.settings import Settings
            from headrace.cluster import unpack_on

            unpacked = unpack_on(
                on, origin, goal, overwrite=overwrite, namespace=namespace, settings=Settings.load(), progress=report,
                tell=tell,
            )  # fmt: skip
    show_record(dataclasses.asdict(unpacked), as_json=as_json, kinds={"bytes": "bytes", "objects": "count"})
