"""``headrace bench PATH``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.output import Column, Row, json_option, show_table
from headrace.cli.target import from_option

if TYPE_CHECKING:
    from headrace.dataset import Dataset

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
    from headrace.cli.target import is_snapshot, open_namespace, target

    namespace = open_namespace()
    where = path if is_snapshot(path) else target(namespace, path)
    samples = hr.Dataset.open(where, by, namespace, format=source_format).shuffle(seed=0).batch(batch)
    rows = list(measure(samples, epochs, seconds, prefetch))
    show_table(rows, COLUMNS, as_json=as_json)
    if not as_json:
        click.echo(rows[-1]["verdict"])


def measure(samples: Dataset, epochs: int, seconds: float, prefetch: str) -> Iterator[Row]:
    """Run `epochs` epochs of at most `seconds` each; every one over the same samples."""
    before: dict[str, Any] = {}
    for epoch in range(1, epochs + 1):
        with samples.loader(prefetch=prefetch) as loader:
            until = time.monotonic() + seconds
            for _ in loader:
                if time.monotonic() > until:
                    break
            stats = loader.stats()
        counts = {"cache_hits": stats.cache_hits, "cache_misses": stats.cache_misses}
        yield {
            "id": epoch,
            **stats.as_dict(),
            **{name: count - before.get(name, 0) for name, count in counts.items()},
        }
        before = counts
