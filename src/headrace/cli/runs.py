"""``headrace runs``, and ``headrace runs show|diff|tag|note|rm``."""

from __future__ import annotations

import dataclasses
import re
import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.list_or_verb import ListOrVerb
from headrace.cli.output import Column, Kind, Row, json_option, printable, show_differences, show_record, show_table

if TYPE_CHECKING:
    from headrace.tracking import RunView

COLUMNS = (
    Column("id", "RUN"),
    Column("state", "STATE"),
    Column("created", "STARTED", "time"),
    Column("seconds", "TOOK", "seconds"),
    Column("exit_code", "EXIT"),
    Column("files_left", "FILES LEFT", "count"),
    Column("host", "HOST"),
    Column("tags", "TAGS"),
    Column("waits", "WAITS"),
    Column("command", "COMMAND"),
)
_WHERE_ANY = ("tags", "waits")
"""Columns that are shown where a run has something there."""
_KINDS: dict[str, Kind] = {
    "seconds": "seconds",
    "bytes": "bytes",
    "files": "count",
    "files_left": "count",
    "bytes_left": "bytes",
    "oldest_left": "seconds",
    "created": "time",
}
_SORTS = ("created", "name", "state", "duration")
_EVERY_S = 5.0  # seconds between lists
_TAKEN = re.compile(r"-[A-Za-z0-9][A-Za-z0-9._-]+")


@click.group(cls=ListOrVerb)
def command() -> None:
    """List runs; show, compare, tag or delete them.

    RUN is an id, its beginning or end, a name (the newest run of it), or `latest`.
    """


@command.command("list")
@click.option("--name", metavar="PATTERN", help="Only runs of this name.")
@click.option("--state", "states", multiple=True, help="Only runs in this state. May be repeated.")
@click.option("--tag", "tags", multiple=True, metavar="NAME[=PATTERN]",
              help="Only runs with this tag. May be repeated: with all of them.")  # fmt: skip
@click.option("--since", metavar="TIME", help="Only runs begun since then: 2d, 3h, or 2026-01-31T12:00.")
@click.option("--limit", default=20, show_default=True, help="The newest so many; 0: all.")
@click.option("--sort", type=click.Choice(_SORTS), default="created", show_default=True)
@click.option("--watch", is_flag=True, help="Again and again, until Ctrl-C.")
@json_option
def list_(
    name: str | None, states: tuple[str, ...], *, tags: tuple[str, ...], since: str | None, limit: int, sort: str,
    watch: bool, as_json: bool,
) -> None:  # fmt: skip
    """List the newest runs."""
    from headrace.base.units import parse_moment
    from headrace.cli import run_shown
    from headrace.namespace import Home
    from headrace.tracking import Runs, Wanted, Watch

    pairs = {key: pattern if equals else "*" for key, equals, pattern in (text.partition("=") for text in tags)}
    wanted = Wanted(name, states, pairs, parse_moment(since, name="--since") if since is not None else None)
    looks = Watch(Runs(Home.of()), limit or None, wanted)

    def show() -> None:
        rows = [row_of(view) for view in looks.look()]
        if sort != "created":
            key = "seconds" if sort == "duration" else sort
            rows.sort(key=lambda row: row[key])
        if watch and not as_json:
            click.clear()
        cells = rows if as_json else [
            row | {"tags": run_shown.tags(row["tags"]), "waits": row["reason"] if row["state"] == "waiting" else None}
            for row in rows
        ]  # fmt: skip
        shown = [one for one in COLUMNS if one.key not in _WHERE_ANY or any(row.get(one.key) for row in cells)]
        show_table(cells, shown, as_json=as_json, empty="no runs yet; try: headrace run -- COMMAND")

    show()
    while watch:
        time.sleep(_EVERY_S)
        show()


@command.command()
@click.argument("run")
@json_option
def show(run: str, *, as_json: bool) -> None:
    """Show all that is known of RUN."""
    import headrace as hr
    from headrace.cli import run_shown
    from headrace.models import Registry, models_of

    found = hr.run(run)
    view = found.look(notes=True)
    row = row_of(view)
    if not as_json:
        record = view.record
        row["tags"] = run_shown.tags(row["tags"])
        row |= {"code": run_shown.code(record.code), "environment": run_shown.environment(record.environment)}
        row |= {"inputs": run_shown.inputs(record.inputs), "parent": run_shown.parent(record.parent)}
    row |= {"url": found.url, "folder": view.record.folder, "user": view.record.user}
    made = models_of(Registry.load(), found.id)
    row["models"] = [one._asdict() for one in made] if as_json else ", ".join(map(str, made)) or None
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
@click.argument("a")
@click.argument("b")
@click.option("--patch", is_flag=True, help="Show line by line what of the code differs.")
@json_option
def diff(a: str, b: str, *, patch: bool, as_json: bool) -> None:
    """Show what differs between the runs A and B.

    Job, code, environment, inputs and place; results and metrics side by side.
    """
    from headrace.jobs import diff as compare

    found = list(compare(a, b, patch=patch))
    show_differences(found, as_json=as_json)
    for one in found if patch and not as_json else ():
        if one.part == "file":
            told = f"{printable(one.name)}: no text, or too large\n" if one.patch is None else one.patch
            click.echo(f"\n{told}", nl=False)


@command.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also runs that are not over.")
@json_option
def rm(runs: tuple[str, ...], *, force: bool, as_json: bool) -> None:
    """Delete all that is recorded of each RUN: logs, metrics, outputs, checkpoints."""
    import headrace as hr

    rows: list[Row] = []
    for text in runs:
        run = hr.run(text)
        rows.append({"id": run.id, "objects": run.delete(force=force)})
    show_table(rows, (Column("id", "RUN"), Column("objects", "OBJECTS DELETED", "count")), as_json=as_json)


class _Tagging(click.Command):
    """``-NAME`` takes a tag away, as ``--remove NAME`` does: no option of one letter is in the way."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"--remove={one[1:]}" if _TAKEN.fullmatch(one) else one for one in args])


@command.command(cls=_Tagging)
@click.argument("run")
@click.argument("tags", metavar="[NAME[=VALUE] | -NAME]…", nargs=-1)
@click.option("--remove", multiple=True, metavar="NAME", help="Take this tag away, as -NAME does. May be repeated.")
@json_option
def tag(run: str, tags: tuple[str, ...], remove: tuple[str, ...], *, as_json: bool) -> None:
    """Give RUN tags, now or after it has ended; show those that it has.

    They count as those that a job was given: for `headrace runs --tag`, and on the page.
    """
    import headrace as hr
    from headrace.cli import run_shown

    found = hr.run(run)
    changes: dict[str, str | None] = {name: value for name, _, value in (text.partition("=") for text in tags)}
    changes |= dict.fromkeys(remove)
    now = found.tag(changes) if changes else found.tags
    show_record({"id": found.id, "tags": now if as_json else run_shown.tags(now)}, as_json=as_json)


@command.command()
@click.argument("run")
@click.argument("text", required=False)
@json_option
def note(run: str, text: str | None, *, as_json: bool) -> None:
    """Say TEXT of RUN, instead of what was said before; without TEXT show that. An empty TEXT takes it away."""
    import headrace as hr

    found = hr.run(run)
    said = found.set_note(text) if text is not None else found.note
    show_record({"id": found.id, "note": said or None}, as_json=as_json)


def row_of(view: RunView) -> dict[str, Any]:
    """What lists and scripts see of a run."""
    status = view.status
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
        "files_left": view.files_left,
        "bytes_left": view.bytes_left,
        "oldest_left": view.oldest_left,
        "tags": view.tags,
        "note": view.note or None,
        "host": view.record.host,
        "command": shlex.join(view.record.command),
    }
