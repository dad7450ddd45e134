"""``headrace snapshots [NAME]``, and ``headrace snapshots diff|verify|report``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.base.errors import ChangedError
from headrace.cli.on import listing_of, on_option, workers_on
from headrace.cli.output import Column, Kind, Row, json_option, show_record, show_table

if TYPE_CHECKING:
    from headrace.base.settings import Settings
    from headrace.catalog import Change
    from headrace.namespace import Namespace

COLUMNS = [
    Column("id", "SNAPSHOT"),
    Column("created", "CREATED", "time"),
    Column("objects", "OBJECTS", "count"),
    Column("bytes", "SIZE", "bytes"),
    Column("source", "SOURCE"),
]
CHANGES = [
    Column("kind", "CHANGE"),
    Column("size_before", "SIZE BEFORE", "bytes"),
    Column("size_after", "SIZE AFTER", "bytes"),
    Column("path", "KEY"),
]


class _NameOrVerb(click.Group):
    """A group whose first word may also be the argument of its default command, ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if known else ["list", *args])


@click.group(cls=_NameOrVerb)
def command() -> None:
    """List snapshots, of NAME or all, show one (NAME@VERSION), or compare and check them."""


@command.command("list")
@click.argument("name", required=False)
@json_option
def list_(name: str | None, *, as_json: bool) -> None:
    """List all snapshots, or those of NAME; show one, NAME@VERSION."""
    from headrace.catalog import list_snapshots, open_snapshot

    settings, namespace = _open()
    if name is not None and "@" in name:
        one = open_snapshot(name, namespace=namespace, settings=settings)
        kinds: dict[str, Kind] = {column.key: column.kind for column in COLUMNS}
        show_record({"id": one.id, **one.as_dict()}, as_json=as_json, kinds=kinds)
        return
    found = list_snapshots(name, namespace=namespace, settings=settings)
    rows = ({"id": snapshot.id, **snapshot.as_dict()} for snapshot in found)
    show_table(rows, COLUMNS, as_json=as_json, empty="no snapshots yet; try: headrace snapshot PATH --name NAME")


@command.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@json_option
def diff(before: str, after: str, *, as_json: bool) -> None:
    """Show what leads from snapshot A to snapshot B."""
    from headrace.catalog import diff, open_snapshot

    settings, namespace = _open()
    a, b = (open_snapshot(name, namespace=namespace, settings=settings) for name in (before, after))
    show_table(_rows(diff(a, b, settings=settings)), CHANGES, as_json=as_json, empty="the same objects")


@command.command()
@click.argument("name", metavar="A")
@on_option
@json_option
def verify(name: str, *, on: str | None, as_json: bool) -> None:
    """List the source of snapshot A again and show what is no longer as recorded. Exits with 5 if anything is not."""
    from headrace.catalog import open_snapshot, verify
    from headrace.cli.progress import progress

    settings, namespace = _open()
    snapshot = open_snapshot(name, namespace=namespace, settings=settings)
    with workers_on(on, settings) as workers, progress("listed") as report:
        changes = verify(
            snapshot, namespace=namespace, settings=settings, progress=report, listing=listing_of(workers)
        )
        rows = list(_rows(changes))
    show_table(rows, CHANGES, as_json=as_json, empty=f"{snapshot.id}: every object is as recorded")
    broken = [row for row in rows if row["kind"] != "added"]
    if broken:
        raise ChangedError(
            f"{len(broken)} of its objects are missing or changed",
            path=snapshot.id,
            hint="restore them, or take a new snapshot",
        )


@command.command()
@click.argument("name", metavar="A")
@json_option
def report(name: str, *, as_json: bool) -> None:
    """Show what snapshot A holds: counts by folder and suffix, sizes, duplicates, empty and missing partner objects."""
    from headrace.catalog import quality_report
    from headrace.cli.quality import show

    settings, namespace = _open()
    show(name, quality_report(name, namespace=namespace, settings=settings), as_json=as_json)


def _open() -> tuple[Settings, Namespace]:
    from headrace.base.settings import Settings
    from headrace.cli.target import open_namespace

    return Settings.load(), open_namespace()


def _rows(changes: Iterable[Change]) -> Iterable[Row]:
    for change in changes:
        fields = change._asdict()
        yield {"path": fields.pop("key"), **fields}
