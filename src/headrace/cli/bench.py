"""``headrace bench PATH``."""

from __future__ import annotations

import click

from headrace.cli.output import Column, json_option, show_table
from headrace.cli.target import from_option

COLUMNS = [
    Column("id", "EPOCH"),
    Column("samples", "SAMPLES", "count"),
    Column("samples_per_s", "SAMPLES/S", "rate"),
    Column("bytes_per_s", "BYTES/S", "bytes"),
    Column("cache_hits", "CACHE HITS", "count"),
    Column("first_batch_s", "FIRST BATCH", "seconds"),
    Column("wait_p50_s", "WAIT P50", "seconds"),
    Column("wait_p99_s", "WAIT P99", "seconds"),
]


@click.command()
@click.argument("path")
@click.option("--by", default="stem", show_default=True, help="What makes one sample: stem, object or class.")
@click.option("--from", "source_format", metavar="FORMAT", help="Of PATH: tar, csv, objects …  [default: by its names]")
@click.option("--batch", default=64, show_default=True, type=click.IntRange(1), help="Samples in a batch.")
@click.option("--epochs", default=2, show_default=True, type=click.IntRange(1), help="The second comes from the cache.")
@click.option("--seconds", default=10.0, show_default=True, help="Longest time for one epoch.")
@click.option("--prefetch", default="512MB", show_default=True, help="Bytes to read ahead.")
@json_option
@from_option()
def command(
    path: str,
    *,
    by: str,
    source_format: str | None,
    batch: int,
    epochs: int,
    seconds: float,
    prefetch: str,
    as_json: bool,
) -> None:
    """Measure how fast the loader delivers shuffled batches of what is at PATH, with a training step that does nothing.

    Samples are what ``Dataset.open`` makes of PATH: single objects, or records of shards. The figures hold for this
    machine, this store and these objects; the order is the same every time.
    """
    import headrace as hr

    measured = list(hr.bench(
        path, by, format=source_format, batch=batch, epochs=epochs, seconds=seconds, prefetch=prefetch
    ))  # fmt: skip
    show_table([epoch.as_dict() for epoch in measured], COLUMNS, as_json=as_json)
    if not as_json:
        click.echo(measured[-1].stats.verdict)
