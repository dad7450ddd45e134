"""``headrace cache status|verify|evict|pin|unpin|refresh|serve``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from headrace.base.errors import InputError
from headrace.cli.on import on_option, tell
from headrace.cli.output import Kind, Row, json_option, show_record

if TYPE_CHECKING:
    from headrace.cache import VerifyReport

_KINDS: dict[str, Kind] = {
    "bytes": "bytes",
    "limit": "bytes",
    "free": "bytes",
    "min_free": "bytes",
    "entries": "count",
    "enabled": "flag",
    "filling": "flag",
}


@click.group()
def command() -> None:
    """Look after the node's cache."""


@command.command()
@json_option
def status(*, as_json: bool) -> None:
    """Show where the cache is, what it holds and how full it is."""
    from headrace.cache import Cache

    found = dataclasses.asdict(Cache.open(required=True).status())
    show_record({"path": found.pop("dir"), **found}, as_json=as_json, kinds=_KINDS)


@command.command()
@on_option
@json_option
def verify(*, on: str | None, as_json: bool) -> None:
    """Read every entry and compare it with its checksum; damaged ones are removed. With --on, those of every node."""
    from headrace.cache import Cache
    from headrace.cli.progress import progress

    if on is not None:
        _verify_on(on, as_json=as_json)
        return
    cache = Cache.open(required=True)
    folder = cache.status().dir
    with progress("verified", "entries") as report:
        found = cache.verify(report)
    show_record({"path": folder, **_found(found)}, as_json=as_json, kinds={"bytes": "bytes"})
    found.check(folder)


def _verify_on(on: str, *, as_json: bool) -> None:
    from headrace.base.settings import Settings
    from headrace.cli.progress import progress
    from headrace.cluster import verify_caches, workers

    with workers(on, Settings.load()) as crew, progress("verified", "entries") as report:
        checked = verify_caches(crew, progress=report, tell=tell)
    nodes = [{"id": name, "path": checked.folders[name], **_found(one)} for name, one in checked.nodes.items()]
    if as_json:
        show_record({"nodes": nodes, "gone": checked.gone}, as_json=True)
    else:
        for node in nodes:
            show_record({"node": node.pop("id"), **node}, as_json=False, kinds={"bytes": "bytes"})
            click.echo()
    checked.check(on)


def _found(report: VerifyReport) -> Row:
    counts = {name: getattr(report, name) for name in ("checked", "bytes", "partial", "swept")}
    bad = [{"id": one.name, "key": one.label.key if one.label else None, "reason": one.reason} for one in report.bad]
    return {**counts, "damaged": bad or None}


@command.command()
@click.argument("path", required=False)
@click.option("--to", "goal", help="Evict the least recently used until this much is held, such as 10GB.")
@click.option("--all", "everything", is_flag=True, help="Evict all that is not pinned.")
def evict(path: str | None, *, goal: str | None, everything: bool) -> None:
    """Drop entries: of what is below PATH, or down to a size. Pinned entries stay."""
    import headrace as hr
    from headrace.base.units import format_bytes, parse_bytes

    if sum((path is not None, goal is not None, everything)) != 1:
        raise InputError("evict what?", hint="name one of PATH, --to SIZE, --all")
    gone = hr.evict(path) if path is not None else hr.evict_to(parse_bytes(goal, name="--to") if goal else 0)
    click.echo(f"evicted {gone.entries:,} entries, {format_bytes(gone.bytes)}")


@command.command()
@click.argument("path")
def pin(path: str) -> None:
    """Keep what is below PATH, or in the snapshot NAME@VERSION, from being evicted. Load it first."""
    _pin(path, pinned=True)


@command.command()
@click.argument("path")
def unpin(path: str) -> None:
    """Let what is below PATH be evicted again."""
    _pin(path, pinned=False)


@command.command()
@click.argument("path")
def refresh(path: str) -> None:
    """List PATH anew now, so that data sets and mounts on this node see today's objects before cache.ttl is over."""
    import headrace as hr
    from headrace.base.settings import Settings
    from headrace.cli.progress import progress

    with progress("listed") as report:
        hr.refresh(path, progress=report)
    from headrace.mount import refresh_all

    refresh_all(Settings.load())


@command.command()
def serve() -> None:
    """Let the other nodes that the file `cache.peers` names read what this node keeps, until Ctrl-C.

    On a Ray cluster `[cluster] peers = true` does all of it.
    """
    from headrace.cli.serving import stop_on_signals, until_stopped
    from headrace.cluster import share_cache

    stop_on_signals()
    here, server = share_cache()
    with server, until_stopped():
        click.echo(f"{here} answers at {server.url} (Ctrl-C stops it)")
        server.wait()


def _pin(path: str, *, pinned: bool) -> None:
    import headrace as hr

    count = hr.pin(path, pinned=pinned)
    click.echo(f"{'pinned' if pinned else 'unpinned'} {count:,} objects below {path}")
