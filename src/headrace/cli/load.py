"""``headrace load PATH``."""

from __future__ import annotations

import click

from headrace.base.errors import TryAgainError
from headrace.cli.output import json_option, show_record


@click.command()
@click.argument("path")
@click.option("-j", "--jobs", default=256, show_default=True, type=click.IntRange(1), help="Objects asked for at once.")
@json_option
def command(path: str, *, jobs: int, as_json: bool) -> None:
    """Bring everything below PATH, or in the snapshot NAME@VERSION, into the node's cache.

    What is there already is skipped, so an interrupted load goes on where it stopped.
    """
    import dataclasses

    from headrace.base.settings import Settings
    from headrace.cli.progress import progress
    from headrace.cli.reading import reads_below
    from headrace.cli.target import open_namespace
    from headrace.cli.warm import Warmer
    from headrace.fetch import Fetcher

    namespace = open_namespace()
    fetcher = Fetcher.open(Settings.load())
    try:
        with progress("loaded") as report:
            warmed = Warmer(fetcher, report, in_flight=jobs).run(reads_below(namespace, path))
    finally:
        fetcher.close()
    row = {"path": path, **dataclasses.asdict(warmed), "errors": [str(error) for error in warmed.errors]}
    show_record({**row, "errors": row["errors"] or None}, as_json=as_json, kinds={"size": "bytes"})
    if warmed.failed:
        first = warmed.errors[0]
        raise type(first)(f"{warmed.failed} not loaded; first: {first.reason}", path=first.path, hint=first.hint)
    if warmed.not_kept:
        raise TryAgainError(
            f"{warmed.not_kept} objects were read but not kept by the cache",
            path=path,
            hint="its limit or its disk may be too small: headrace cache status",
        )
