"""``headrace load PATH``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import InputError
from headrace.cli.on import on_option, tell
from headrace.cli.output import Column, json_option, show_record, show_table

if TYPE_CHECKING:
    from headrace.cluster import ClusterWarmed
    from headrace.fetch import Warmed

_COUNTS = ("loaded", "already", "local", "not_kept", "failed", "size")
_NODES = [
    Column("id", "NODE"),
    *(Column(name, name.upper().replace("_", " "), "bytes" if name == "size" else "count") for name in _COUNTS),
]


@click.command()
@click.argument("path")
@click.option("-j", "--jobs", default=256, show_default=True, type=click.IntRange(1), help="Objects asked for at once.")
@on_option
@click.option("--copies", type=click.IntRange(1), metavar="N", help="With --on: each object on N nodes, not all.")
@json_option
def command(path: str, *, jobs: int, on: str | None, copies: int | None, as_json: bool) -> None:
    """Bring everything below PATH, or in the snapshot NAME@VERSION, into the node's cache.

    What is there already is skipped, so an interrupted load goes on where it stopped. With --on it comes into the cache
    of every node of a cluster; with --copies 1 each has a share, and all of them together have everything.
    """
    if on is not None:
        _on_cluster(path, on, jobs, copies, as_json=as_json)
        return
    if copies is not None:
        raise InputError("--copies is about the nodes of a cluster", path="--copies", hint="name one: --on ray://…")
    import headrace as hr
    from headrace.cli.progress import progress

    with progress("loaded") as report:
        warmed = hr.load(path, in_flight=jobs, progress=report)
    show_record({"path": path, **_row(warmed)}, as_json=as_json, kinds={"size": "bytes"})
    warmed.check(path)


def _on_cluster(path: str, on: str, jobs: int, copies: int | None, *, as_json: bool) -> None:
    from headrace.base.settings import Settings
    from headrace.cli.progress import progress
    from headrace.cli.target import open_namespace
    from headrace.cluster import load_on, workers

    settings, namespace = Settings.load(), open_namespace()
    with workers(on, settings) as crew, progress("loaded") as report:
        found = load_on(
            crew, path, namespace=namespace, settings=settings, copies=copies, in_flight=jobs,
            progress=report, tell=tell,
        )  # fmt: skip
    _show(path, found, as_json=as_json)
    found.total.check(path, "headrace cache status, on the nodes")


def _show(path: str, found: ClusterWarmed, *, as_json: bool) -> None:
    nodes = [{"id": name, **_row(one)} for name, one in found.nodes.items()]
    row = {"path": path, **_row(found.total)}
    if as_json:
        show_record({**row, "nodes": nodes, "gone": found.gone}, as_json=True)
        return
    show_record({**row, "gone": found.gone or None}, as_json=False, kinds={"size": "bytes"})
    click.echo()
    show_table(nodes, _NODES, as_json=False)


def _row(warmed: Warmed) -> dict[str, Any]:
    errors = [str(error) for error in warmed.errors]
    return {**{name: getattr(warmed, name) for name in _COUNTS}, "errors": errors or None}
