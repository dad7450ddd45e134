"""``headrace demo``."""

from __future__ import annotations

import click


@click.command()
@click.option("--data", metavar="FOLDER-OR-URL", help="A tree of class folders of images instead of the digits.")
@click.option("--dir", "folder", default=".demo", show_default=True, help="Folder for the server's data and the cache.")
@click.option("--cluster", is_flag=True, help="Train on two nodes of a Ray cluster, of which one is lost half-way.")
@click.option("--epochs", default=8, show_default=True, type=click.IntRange(2, 1000))
def command(*, data: str | None, folder: str, cluster: bool, epochs: int) -> None:
    """Train a small network on handwritten digits, end to end, from a bucket on this machine.

    Starts an S3 server, uploads every image as an object, attaches the bucket and takes a snapshot. Trains as a run,
    stops that half-way, resumes it, and runs it again from its record alone, in an empty folder; checks that no sample
    was lost or repeated, and that the weights are the same. Shows what the bucket tells of the runs. Then trains from
    the bucket mounted as a folder, and from the same samples packed into shards. Last, publishes two models, serves
    them over HTTP, and swaps them under load.

    With --cluster, two nodes train together instead, once in peace and once until one of them is killed.
    """
    from headrace.cli.demo_job.story import tell

    tell(data, folder, cluster=cluster, epochs=epochs)
