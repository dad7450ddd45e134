"""``headrace unpack SRC DST``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("source", metavar="SRC")
@click.argument("destination", metavar="DST")
@click.option("-j", "--workers", default=0, type=click.IntRange(0, 256), help="Shards read at once.  [default: cores]")
@click.option("--overwrite", is_flag=True, help="Write over what DST has already.")
@json_option
def command(source: str, destination: str, *, workers: int, overwrite: bool, as_json: bool) -> None:
    """Unpack a shard, or all shards below SRC (tar, TFRecord, Parquet), to single objects below DST."""
    import dataclasses

    from headrace.cli.progress import progress
    from headrace.cli.target import open_namespace, target
    from headrace.pack import unpack

    namespace = open_namespace()
    with progress("unpacked") as report:
        unpacked = unpack(
            target(namespace, source),
            target(namespace, destination),
            workers=workers,
            overwrite=overwrite,
            namespace=namespace,
            progress=report,
        )
    show_record(dataclasses.asdict(unpacked), as_json=as_json, kinds={"bytes": "bytes", "objects": "count"})
