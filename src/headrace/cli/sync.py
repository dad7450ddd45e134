"""``headrace sync DIR URL``."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.base.errors import InputError
from headrace.cli.output import Column, json_option, show_record, show_table

if TYPE_CHECKING:
    from headrace.sync import Report, SyncOptions

_COLUMNS = (
    Column("folder", "FOLDER"),
    Column("url", "URL"),
    Column("state", "STATE"),
    Column("files", "FILES LEFT", "count"),
    Column("bytes", "BYTES LEFT", "bytes"),
    Column("oldest", "OLDEST", "seconds"),
    Column("updated", "UPDATED", "time"),
)
_NAMED = 20  # files named, as a screen holds


@click.command()
@click.argument("folder", metavar="[DIR]", required=False)
@click.argument("destination", metavar="[URL]", required=False)
@click.option("--once", is_flag=True, help="Send what is there, then end; nothing is being written any more.")
@click.option(
    "--recover",
    is_flag=True,
    help="Send what syncs and runs that died, or ran out of time, have left, as they were told to. All, or of DIR.",
)
@click.option("--status", "status", is_flag=True, help="Show every sync of this machine, and what it has not sent.")
@click.option("--period", help="Shortest time between two uploads of one small file.  [default: sync.period]")
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave these files or folders out. May be repeated.")
@click.option(
    "--checkpoint", "checkpoints", multiple=True, metavar="PATTERN",
    help="Folders that get a marker COMMITTED when all of them is there.  [default: checkpoints/*]",
)  # fmt: skip
@click.option(
    "--delete",
    is_flag=True,
    help="Delete in the store what was sent and is deleted here; not of committed checkpoints, and not too much of it.",
)
@click.option(
    "--delete-checkpoint", "doomed", multiple=True, metavar="PATTERN",
    help="Committed checkpoints that --delete may delete, too. May be repeated.",
)  # fmt: skip
@click.option(
    "--max-delete", "most", type=click.IntRange(0, 100), default=50, show_default=True, metavar="PERCENT",
    help="Delete nothing where more of what was sent is gone.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Delete however much is gone, also where DIR is another folder now.")
@click.option("--bandwidth", metavar="SIZE", help="Bytes a second, on average.  [default: sync.bandwidth]")
@click.option("--drain", metavar="TIME", help="Longest wait at the end for what is not sent.  [default: sync.drain]")
@json_option
def command(
    folder: str | None,
    destination: str | None,
    *,
    once: bool,
    recover: bool,
    status: bool,
    period: str | None,
    exclude: tuple[str, ...],
    checkpoints: tuple[str, ...],
    delete: bool,
    doomed: tuple[str, ...],
    most: int,
    force: bool,
    bandwidth: str | None,
    drain: str | None,
    as_json: bool,
) -> None:
    """Send what changes in DIR to URL (or to a path of the namespace), until SIGTERM or Ctrl-C.

    Small files follow within seconds, large ones when they are closed; of a file that grows only what is new is sent.
    Files stay in the store when they are deleted here. SIGTERM sends what is left first, Ctrl-C does not; either way
    what is left is named, and --recover sends it.
    """
    import dataclasses

    from headrace.base.units import parse_bytes, parse_seconds
    from headrace.sync import Deletion, SyncOptions, statuses

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    if (status or recover) and (destination is not None or once):
        raise InputError("--status and --recover take DIR only", hint="headrace sync --recover DIR")
    if not (status or recover or (folder is not None and destination is not None)):
        raise InputError("DIR and URL are needed", hint="headrace sync outputs s3://bucket/outputs")
    if status:
        rows = [dataclasses.asdict(one) for one in statuses(folder=folder)]
        show_table(rows, _COLUMNS, as_json=as_json, empty="nothing has been synced from here")
        return
    if (doomed and not delete) or (force and not (delete or recover)):
        raise InputError("--force and --delete-checkpoint go with --delete", hint="headrace sync … --delete --force")
    options = SyncOptions.of(
        exclude=exclude, checkpoints=checkpoints,
        delete=Deletion(most / 100, doomed, force) if delete or force else None,
        period_s=None if period is None else parse_seconds(period, name="--period"),
        bandwidth=None if bandwidth is None else parse_bytes(bandwidth, name="--bandwidth"),
    )  # fmt: skip
    drain_s = None if drain is None else parse_seconds(drain, name="--drain")
    if recover:
        _recover(folder, options, drain_s, as_json=as_json)
        return
    assert folder is not None
    assert destination is not None
    _send(folder, destination, options, drain_s, once=once, as_json=as_json)


def _send(
    folder: str, destination: str, options: SyncOptions, drain_s: float | None, *, once: bool, as_json: bool
) -> None:
    from headrace.cli.progress import passing
    from headrace.sync import sync_folder

    over = threading.Event()
    with _sigterm(over.set), passing("sent") as progress:
        report = sync_folder(
            folder, destination, options, until=None if once else over, drain_s=drain_s, progress=progress,
            begun=lambda: click.echo(f"{destination} follows {folder}", err=True), left=_name,
        )  # fmt: skip
    _show(report, as_json=as_json)
    if report.left:
        _name(report)
    report.check(folder)


@contextmanager
def _sigterm(act: Callable[[], object]) -> Generator[None]:
    """SIGTERM does this meanwhile, and ends nothing: what is left is sent first."""
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _recover(folder: str | None, options: SyncOptions, drain_s: float | None, *, as_json: bool) -> None:
    from headrace.cli.progress import passing
    from headrace.jobs import recover
    from headrace.sync import recover_syncs

    with passing("sent") as report, _sigterm(lambda: None):
        found = [*recover_syncs(folder, options, drain_s, progress=report, left=_name)]
    every = [*found, *(recover(drain_s) if folder is None else ())]
    rows = [
        {"folder": one.folder, "url": one.url, "state": one.state if one.error is None else str(one.error),
         "files": one.files, "bytes": one.bytes}
        for one in every
    ]  # fmt: skip
    columns = (*_COLUMNS[:3], Column("files", "SENT", "count"), Column("bytes", "BYTES", "bytes"))
    show_table(rows, columns, as_json=as_json, empty="nothing is left to be sent")
    if failures := [one.error for one in every if one.error is not None]:
        raise failures[-1]


def _show(report: Report, *, as_json: bool) -> None:
    import dataclasses

    row = dataclasses.asdict(report)
    if not as_json:
        row |= {"left": len(report.left) or None, "skipped": len(report.skipped) or None}
    kinds = {"files": "count", "bytes": "bytes", "requests": "count", "checkpoints": "count", "seconds": "seconds"}
    show_record(row, as_json=as_json, kinds=kinds)  # pyright: ignore[reportArgumentType]
    for name, reason in report.skipped[:_NAMED] if not as_json else ():
        click.echo(f"skipped: {name}: {reason}", err=True)


def _name(report: Report) -> None:
    for one in report.left[:_NAMED]:
        click.echo(f"left: {one.path}: {one.bytes:,} bytes{': ' if one.error else ''}{one.error}", err=True)
    if len(report.left) > _NAMED:
        click.echo(f"left: {len(report.left) - _NAMED:,} more", err=True)
