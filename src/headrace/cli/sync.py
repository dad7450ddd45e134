"""``headrace sync DIR URL``."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from headrace.base.errors import HeadraceError, InputError
from headrace.cli.output import Column, json_option, show_record, show_table

if TYPE_CHECKING:
    from headrace.base.settings import Settings
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

    from headrace.base.settings import Settings
    from headrace.base.units import parse_bytes, parse_seconds
    from headrace.sync import Deletion, SyncOptions, statuses

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    settings = Settings.load()
    if status or recover:
        _refuse(destination, once=once)
        rows = [dataclasses.asdict(one) for one in statuses(settings.sync.state) if _of(folder, one.folder)]
        if status:
            show_table(rows, _COLUMNS, as_json=as_json, empty="nothing has been synced from here")
            return
    elif folder is None or destination is None:
        raise InputError("DIR and URL are needed", hint="headrace sync outputs s3://bucket/outputs")
    if (doomed and not delete) or (force and not (delete or recover)):
        raise InputError("--force and --delete-checkpoint go with --delete", hint="headrace sync … --delete --force")
    deletion = Deletion(most / 100, doomed, force) if delete or force else None
    options = SyncOptions.of(
        settings.sync, exclude=exclude, checkpoints=checkpoints, delete=deletion, watch=not once,
        period_s=None if period is None else parse_seconds(period, name="--period"),
        bandwidth=None if bandwidth is None else parse_bytes(bandwidth, name="--bandwidth"),
    )  # fmt: skip
    patience = settings.sync.drain if drain is None else parse_seconds(drain, name="--drain")
    if recover:
        _recover(settings, folder, options, patience, as_json=as_json)
        return
    assert folder is not None
    assert destination is not None
    report = _sync(settings, folder, destination, options, patience, follow=not once)
    _show(report, as_json=as_json)
    if report.left:
        _name(report)
    report.check(folder)


def _refuse(destination: str | None, *, once: bool) -> None:
    if destination is not None or once:
        raise InputError("--status and --recover take DIR only", hint="headrace sync --recover DIR")


def _of(folder: str | None, known: str) -> bool:
    import os

    return folder is None or os.path.realpath(folder) == known


def _sync(
    settings: Settings, folder: str, destination: str, options: SyncOptions, drain: float, *, follow: bool
) -> Report:
    from headrace.cli.progress import passing
    from headrace.cli.target import open_namespace, target
    from headrace.sync import Sync

    namespace = open_namespace()
    place = target(namespace, destination)
    over = threading.Event()
    with (
        _sigterm(over.set),
        passing("sent") as report,
        Sync.open(folder, place, options, namespace=namespace, settings=settings, progress=report) as sync,
    ):
        try:
            if follow:
                click.echo(f"{destination} follows {folder}", err=True)
                while not over.wait(1.0):
                    pass
            return sync.finish(drain, complete=not follow)
        except KeyboardInterrupt:
            sync.close()
            _name(sync.report())
            raise


@contextmanager
def _sigterm(act: Callable[[], object]) -> Generator[None]:
    """SIGTERM does this meanwhile, and ends nothing: what is left is sent first."""
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _recover(settings: Settings, folder: str | None, options: SyncOptions, drain: float, *, as_json: bool) -> None:
    from headrace.cli.progress import passing
    from headrace.sync import recover_syncs

    rows: list[dict[str, object]] = []
    failure: HeadraceError | None = None
    with passing("sent") as report, _sigterm(lambda: None):
        for one in recover_syncs(folder, options, drain, settings=settings, progress=report, left=_name):
            state = {"folder": one.folder, "url": one.url, "state": one.state}
            rows.append({**state, "files": one.files, "bytes": one.bytes})
            failure = one.error or failure
    if folder is None:
        left = _recover_runs(settings, drain, rows)
        failure = left or failure
    columns = (
        _COLUMNS[0],
        _COLUMNS[1],
        _COLUMNS[2],
        Column("files", "SENT", "count"),
        Column("bytes", "BYTES", "bytes"),
    )
    show_table(rows, columns, as_json=as_json, empty="nothing is left to be sent")
    if failure is not None:
        raise failure


def _recover_runs(settings: Settings, drain: float, rows: list[dict[str, object]]) -> HeadraceError | None:
    """What runs whose runner has died have left; the last error."""
    from headrace.cli.target import open_namespace
    from headrace.jobs import recover

    failure: HeadraceError | None = None
    for one in recover(settings.run.state, open_namespace(), drain):
        state = one.state if one.error is None else str(one.error)
        rows.append({"folder": one.folder, "url": one.url, "state": state, "files": one.files, "bytes": one.bytes})
        failure = one.error or failure
    return failure


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
