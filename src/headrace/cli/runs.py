"""``headrace runs``, and ``headrace runs show|rm``."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import InputError
from headrace.cli.output import Column, Kind, Row, json_option, show_record, show_table

if TYPE_CHECKING:
    from headrace.tracking.runs import RunView

COLUMNS = (
    Column("id", "RUN"),
    Column("state", "STATE"),
    Column("created", "STARTED", "time"),
    Column("seconds", "TOOK", "seconds"),
    Column("exit_code", "EXIT"),
    Column("files_left", "FILES LEFT", "count"),
    Column("host", "HOST"),
    Column("command", "COMMAND"),
)
_KINDS: dict[str, Kind] = {
    "seconds": "seconds",
    "bytes": "bytes",
    "files": "count",
    "files_left": "count",
    "bytes_left": "bytes",
    "oldest_left": "seconds",
    "created": "time",
}
_SORTS = ("created", "seconds", "name", "state")
_EVERY_S = 2.0


class _ListOrVerb(click.Group):
    """A group whose default command is ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if known else ["list", *args])


@click.group(cls=_ListOrVerb)
def command() -> None:
    """List runs, or show or delete one.

    RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """


@command.command("list")
@click.option("--name", help="Only runs of this name; a pattern may be given.")
@click.option("--state", "states", multiple=True, help="Only runs in this state. May be repeated.")
@click.option("--limit", default=20, show_default=True, help="Look at the newest so many; 0: all.")
@click.option("--sort", type=click.Choice(_SORTS), default="created", show_default=True)
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@json_option
def list_(name: str | None, states: tuple[str, ...], *, limit: int, sort: str, watch: bool, as_json: bool) -> None:
    """List the newest runs."""
    from headrace.cli.run_access import open_runs

    runs = open_runs()

    def rows() -> Iterator[Row]:
        found = [row_of(view) for view in runs.views(limit or None) if _wanted(view, name, states)]
        if sort != "created":
            found.sort(key=lambda row: (row[sort] is None, row[sort]))
        yield from found

    def show() -> None:
        show_table(rows(), COLUMNS, as_json=as_json, empty="no runs yet; try: headrace run -- COMMAND")

    show()
    while watch:
        time.sleep(_EVERY_S)
        if not as_json:
            click.clear()
        show()


@command.command()
@click.argument("run")
@json_option
def show(run: str, *, as_json: bool) -> None:
    """Show all that is known of RUN."""
    from headrace.cli.run_access import find_run

    found = find_run(run)
    view = found.look()
    row = row_of(view) | {"url": found.url, "folder": view.record.folder, "user": view.record.user}
    if as_json:
        statuses = [dataclasses.asdict(status) for status in found.statuses()]
        row |= {"record": dataclasses.asdict(view.record), "statuses": statuses}
    show_record(row, as_json=as_json, kinds=_KINDS)
    if not as_json:
        click.echo("")
        for status in found.statuses():
            attempt = f"  attempt {status.attempt}" if status.attempt > 1 else ""
            reason = f"  {status.reason}" if status.reason else ""
            click.echo(f"{status.time[:19].replace('T', ' ')}  {status.state}{attempt}{reason}")


@command.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also runs that are not over.")
@json_option
def rm(runs: tuple[str, ...], *, force: bool, as_json: bool) -> None:
    """Delete all that is recorded of each RUN: logs, metrics, outputs, checkpoints."""
    from headrace.cli.run_access import find_run

    rows: list[Row] = []
    for text in runs:
        run = find_run(text)
        if not force and not run.look().over:
            raise InputError("is not over", path=run.id, hint="headrace stop it first, or give --force")
        rows.append({"id": run.id, "objects": run.delete()})
    show_table(rows, (Column("id", "RUN"), Column("objects", "OBJECTS DELETED", "count")), as_json=as_json)


def row_of(view: RunView) -> dict[str, Any]:
    """What lists and scripts see of a run."""
    status, lease = view.status, view.lease
    return {
        "id": view.record.id,
        "name": view.record.name,
        "state": view.state,
        "created": view.record.created,
        "seconds": round(view.seconds, 3),
        "attempt": status.attempt,
        "exit_code": status.exit_code,
        "signal": status.signal,
        "reason": status.reason or None,
        "files": status.files,
        "bytes": status.bytes,
        "files_left": lease.files if lease is not None else len(status.left),
        "bytes_left": lease.bytes if lease is not None else None,
        "oldest_left": lease.oldest if lease is not None else None,
        "host": view.record.host,
        "command": shlex.join(view.record.command),
    }


def _wanted(view: RunView, name: str | None, states: tuple[str, ...]) -> bool:
    from fnmatch import fnmatchcase

    return (not states or view.state in states) and (name is None or fnmatchcase(view.record.name, name))
