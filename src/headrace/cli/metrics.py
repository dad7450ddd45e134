"""``headrace metrics RUN…``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from headrace.cli.output import Column, json_option, rfc3339, show_table

if TYPE_CHECKING:
    from headrace.tracking import Series

COLUMNS = (
    Column("run", "RUN"),
    Column("name", "METRIC"),
    Column("points", "POINTS", "count"),
    Column("step", "LAST STEP"),
    Column("last", "LAST", "rate"),
    Column("min", "MIN", "rate"),
    Column("max", "MAX", "rate"),
)
_EVERY_S = 5.0  # seconds between pictures
_MOST_PLOTS = 12  # pictures: who wants others says a pattern


@click.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option("--name", "names", multiple=True, metavar="PATTERN", help="Only these metrics. May be repeated.")
@click.option("--all", "every", is_flag=True, help="Also those of the machine, the job's processes and headrace.")
@click.option("--table", "as_table", is_flag=True, help="A table of last, least and largest values, no pictures.")
@click.option("--x", type=click.Choice(["step", "time"]), default="step", show_default=True)
@click.option("--log", "log", is_flag=True, help="Values on a logarithmic scale.")
@click.option("--rank", type=int, help="Whose values.  [default: the lowest rank that logged the metric]")
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@json_option
def command(
    runs: tuple[str, ...], *, names: tuple[str, ...], every: bool, as_table: bool, x: str, log: bool, rank: int | None,
    watch: bool, as_json: bool,
) -> None:  # fmt: skip
    """Draw the metrics of RUN, or compare those of several: one picture a metric.

    RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """
    import headrace as hr

    readers = {run.id: run.reader(*names) for run in map(hr.run, runs)}
    while True:
        read = {run: reader.series(rank=rank, own=not every and not names) for run, reader in readers.items()}
        if watch and not as_json:
            click.clear()
        if as_json or as_table:
            show_table(_rows(read, whole=as_json), COLUMNS, as_json=as_json, empty="no metrics yet")
        else:
            _draw(read, x, log=log)
        if not watch:
            break
        time.sleep(_EVERY_S)


def _rows(read: dict[str, dict[str, Series]], *, whole: bool) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for run, metrics in read.items():
        for name, one in metrics.items():
            row: dict[str, object] = {"id": f"{run}:{name}", "run": run, "name": name, "points": len(one.values)}
            steps = [None if step != step else int(step) for step in one.steps.tolist()]
            row |= {"step": steps[-1], "last": _number(one.last()), "min": _number(one.min), "max": _number(one.max)}
            if whole:
                times = [rfc3339(int(moment)) for moment in one.times.astype("int64").tolist()]
                row |= {"steps": steps, "times": times, "values": [_number(value) for value in one.values.tolist()]}
            rows.append(row)
    return rows


def _number(value: float) -> float | str:
    """By name where it is none, which JSON has no words for."""
    return value if abs(value) < float("inf") else str(value)


def _draw(read: dict[str, dict[str, Series]], x: str, *, log: bool) -> None:
    import shutil

    from headrace.tracking import draw

    names = sorted({name for metrics in read.values() for name in metrics})
    if not names:
        click.echo("no metrics yet; hr.log({'loss': …}, step=…) makes some, and --all shows the machine's")
        return
    width = min(shutil.get_terminal_size((100, 40)).columns, 120)
    for name in names[:_MOST_PLOTS]:
        curves = {run: metrics[name] for run, metrics in read.items() if name in metrics}
        click.echo(f"{name}")
        click.echo(draw(curves, width=width, height=12, x=x, log=log, encoding=sys.stdout.encoding) + "\n")  # pyright: ignore[reportArgumentType]
    if len(names) > _MOST_PLOTS:
        click.echo(f"and {len(names) - _MOST_PLOTS} more: --name PATTERN picks, --table lists them")
