"""``headrace models``: published, found by a name, moved from alias to alias, deleted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import InputError
from headrace.cli import model_files
from headrace.cli.list_or_verb import ListOrVerb
from headrace.cli.output import Column, Kind, json_option, show_differences, show_record, show_table

if TYPE_CHECKING:
    from headrace.models import ModelVersion, Moved, Removed

_MODELS = (
    Column("id", "MODEL"),
    Column("newest", "NEWEST", "count"),
    Column("versions", "VERSIONS", "count"),
    Column("aliases", "ALIASES"),
    Column("format", "FORMAT"),
    Column("bytes", "SIZE", "bytes"),
    Column("created", "PUBLISHED", "time"),
)
_VERSIONS = (
    Column("id", "VERSION"),
    Column("aliases", "ALIASES"),
    Column("created", "PUBLISHED", "time"),
    Column("format", "FORMAT"),
    Column("bytes", "SIZE", "bytes"),
    Column("run", "RUN"),
    Column("checkpoint", "CHECKPOINT"),
)
_CHANGES = (
    Column("id", "ALIAS"),
    Column("number", "VERSION", "count"),
    Column("time", "SINCE", "time"),
    Column("by", "BY"),
    Column("what", "BY WAY OF"),
)
_REMOVED = (
    Column("id", "MODEL"),
    Column("versions", "VERSIONS DELETED"),
    Column("left", "LEFTOVERS DELETED"),
    Column("objects", "OBJECTS", "count"),
    Column("bytes", "SIZE", "bytes"),
)
_MIRRORED = (
    Column("id", "MODEL"),
    Column("made", "VERSIONS MADE"),
    Column("deleted", "VERSIONS DELETED"),
    Column("moved", "ALIASES MOVED"),
    Column("refused", "ALIASES REFUSED"),
)
_KINDS: dict[str, Kind] = {"created": "time", "bytes": "bytes"}


@click.group(cls=ListOrVerb)
def command() -> None:
    """List models; publish, compare, promote, fetch and delete versions of them.

    A version is NAME@7 by its number, NAME@prod by an alias, or NAME: the newest.
    """


for one in (model_files.publish, model_files.pull, model_files.follow):
    command.add_command(one)


@command.command("list")
@click.argument("name", required=False)
@click.option("--limit", default=20, show_default=True, help="Of NAME the newest so many versions; 0: all.")
@json_option
def list_(name: str | None, *, limit: int, as_json: bool) -> None:
    """List all models, or the versions of NAME."""
    from headrace.models import Registry

    registry = Registry.load()
    if name is None:
        from headrace.models import list as list_all

        rows = [
            {"id": one.name, "newest": one.newest.number, "versions": one.versions, "format": one.newest.card.format,
             "aliases": dict(one.aliases), "bytes": one.newest.card.bytes, "created": one.newest.card.created}
            for one in list_all(registry=registry)
        ]  # fmt: skip
        empty = "no models yet; try: headrace models publish RUN NAME"
        show_table(rows if as_json else _in_words(rows), _MODELS, as_json=as_json, empty=empty)
        return
    aliases = registry.aliases(name)
    versions = [row_of(version, aliases.names_of(version.number)) for version in registry.versions(name, limit or None)]
    show_table(versions, _VERSIONS, as_json=as_json, empty=f"no version of {name} is published")


@command.command()
@click.argument("version", metavar="NAME[@VERSION]")
@json_option
def show(version: str, *, as_json: bool) -> None:
    """Show what a version is and where it comes from: run, data, code, metrics, signature, files."""
    from headrace.cli import model_shown
    from headrace.models import Registry

    registry = Registry.load()
    found = registry.resolve(version)
    row = row_of(found, registry.aliases(found.name).names_of(found.number))
    if as_json:
        show_record(
            {**row, "url": found.path, "digest": found.card.digest, **dataclasses.asdict(found.card)}, as_json=True
        )
        return
    show_record({**row, "url": found.path, **model_shown.more(found.card)}, as_json=False, kinds=_KINDS)
    for line in model_shown.lines(found.card):
        click.echo(line)


@command.command()
@click.argument("a")
@click.argument("b")
@json_option
def diff(a: str, b: str, *, as_json: bool) -> None:
    """Show what differs between the versions A and B: metrics, lineage, signatures, files."""
    from headrace.models import diff as compare

    show_differences(compare(a, b), as_json=as_json)


@command.command()
@click.argument("text", metavar="NAME[@ALIAS[=VERSION]]")
@click.option("--remove", is_flag=True, help="Take the alias away; the version stays.")
@json_option
def alias(text: str, *, remove: bool, as_json: bool) -> None:
    """Let an alias name a version, NAME@prod=7; or show the aliases of NAME, and who moved them."""
    from headrace.models import Registry, unalias
    from headrace.models import alias as point

    name, at, rest = text.partition("@")
    _, equals, to = rest.partition("=")
    if remove:
        _show(unalias(text), as_json=as_json)
    elif equals:
        _show(point(text.partition("=")[0], to), as_json=as_json)
    elif at:
        hint = f"headrace models alias {text}=NUMBER, or headrace models show {text}"
        raise InputError("says not which version", path=text, hint=hint)
    else:
        found = Registry.load().aliases(name)
        rows = [
            {"id": f"{name}@{one.alias}", **one._asdict(), "now": found.aliases.get(one.alias)}
            for one in reversed(found.history)
        ]
        show_table(rows, _CHANGES, as_json=as_json, empty=f"{name} has no alias")


@command.command()
@click.argument("version", metavar="NAME[@VERSION]")
@click.argument("alias", default="prod")
@json_option
def promote(version: str, alias: str, *, as_json: bool) -> None:
    """Let ALIAS (default: prod) name the version that NAME@staging, NAME@7, or NAME (the newest) names."""
    from headrace.models import promote as promote_

    _show(promote_(version, alias), as_json=as_json)


@command.command()
@click.argument("text", metavar="NAME@ALIAS")
@json_option
def rollback(text: str, *, as_json: bool) -> None:
    """Let an alias name what it named before; again: what it named before that."""
    from headrace.models import rollback as roll_back

    _show(roll_back(text), as_json=as_json)


@command.command()
@click.argument("versions", metavar="NAME@NUMBER…", nargs=-1, required=True)
@json_option
def rm(versions: tuple[str, ...], *, as_json: bool) -> None:
    """Delete versions. One that an alias names is refused."""
    from headrace.models import Registry
    from headrace.models import rm as remove

    registry = Registry.load()
    show_table([_gone(remove(one, registry=registry)) for one in versions], _REMOVED, as_json=as_json)


@command.command()
@click.argument("names", metavar="[NAME]…", nargs=-1)
@click.option(
    "--keep", type=click.IntRange(1), help="Delete versions, but the newest so many and those with an alias."
)
@click.option("--older-than", default="1d", show_default=True, metavar="TIME",
              help="A publication that has not ended is taken for dead when nothing came for so long.")  # fmt: skip
@json_option
def gc(names: tuple[str, ...], *, keep: int | None, older_than: str, as_json: bool) -> None:
    """Delete what publishers that died have left, of all models or of NAME; with --keep also old versions.

    What an alias names stays, and what it would be rolled back to.
    """
    from headrace.base.units import parse_seconds
    from headrace.models import Registry
    from headrace.models import gc as collect

    registry, old_s = Registry.load(), parse_seconds(older_than, name="--older-than")
    rows = [_gone(collect(one, keep=keep, old_s=old_s, registry=registry)) for one in names or registry.names()]
    show_table(rows, _REMOVED, as_json=as_json, empty="no models yet")


@command.command()
@click.argument("names", metavar="[NAME]…", nargs=-1)
@json_option
def mirror(names: tuple[str, ...], *, as_json: bool) -> None:
    """Bring models in step in MLflow's registry, at MLFLOW_TRACKING_URI: all of them, or NAME.

    Where that is set it is done after each change; this makes up for what was missed.
    """
    from headrace.models import Registry
    from headrace.models import mirror as mirror_
    from headrace.tracking import MlflowServer

    MlflowServer.needed()
    registry = Registry.load()
    rows = [{"id": one, **dataclasses.asdict(mirror_(one, registry=registry))} for one in names or registry.names()]
    show_table(rows, _MIRRORED, as_json=as_json, empty="no models yet")


def row_of(version: ModelVersion, aliases: list[str]) -> dict[str, Any]:
    """What lists and scripts see of a version."""
    card = version.card
    return {
        "id": version.id, "name": card.name, "number": card.number, "aliases": aliases, "created": card.created,
        "by": card.by, "format": card.format, "entry": card.entry, "bytes": card.bytes, "files": len(card.files),
        "run": card.run, "checkpoint": card.checkpoint, "note": card.note or None,
    }  # fmt: skip


def _in_words(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "aliases": ", ".join(f"{alias}={one}" for alias, one in row["aliases"].items())} for row in rows]


def _show(moved: Moved, *, as_json: bool) -> None:
    row = {"id": f"{moved.name}@{moved.alias}", **dataclasses.asdict(moved)}
    if as_json:
        show_record(row, as_json=True)
        return
    before = "" if moved.before is None else f" (before: {moved.before})"
    now = "names nothing any more" if moved.number is None else f"names version {moved.number}"
    click.echo(f"{row['id']} {now}{before}")


def _gone(removed: Removed) -> dict[str, Any]:
    return {"id": removed.name, **dataclasses.asdict(removed)}
