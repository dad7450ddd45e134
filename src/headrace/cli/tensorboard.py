"""``headrace tensorboard RUN…``."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import click

from headrace.base.places import temporary_folder
from headrace.cli.output import json_option, show_record

if TYPE_CHECKING:
    from headrace.tracking.boards import Board


@click.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port to listen on.  [default: 6006, or a free one]",
              type=click.IntRange(0, 65535))  # fmt: skip
@click.option("--logdir-keep", "kept", metavar="DIR", help="Mirror into this folder, and leave it there.")
@json_option
def command(runs: tuple[str, ...], *, host: str, port: int, kept: str | None, as_json: bool) -> None:
    """Show each RUN in TensorBoard, until Ctrl-C; of runs at work, what is new comes within seconds.

    Shown are the event files the job wrote below HEADRACE_OUTPUTS, figures of the machine, and of a run without event
    files what it logged by hr.log. Only what is new is read from the bucket.
    """
    from headrace.base.settings import whole_environment
    from headrace.cli.run_access import open_runs
    from headrace.cli.serving import stop_on_signals, wait
    from headrace.tracking.boards import LOOK_S, Board
    from headrace.tracking.program import Command, Program, address, choose_port, find_program

    stop_on_signals()
    program = find_program("tensorboard", "tensorboard")
    home = open_runs()
    found = list({run.id: run for run in map(home.find, runs)}.values())
    scratch = tempfile.mkdtemp(prefix="headrace-tensorboard-", dir=temporary_folder())
    folder = os.path.abspath(kept) if kept is not None else os.path.join(scratch, "runs")
    os.makedirs(folder, exist_ok=True)
    try:
        board = Board(found, folder, lambda text: click.echo(f"headrace: {text}", err=True))
        board.look()
        _tell(board)
        chosen = choose_port(host, port, 6006)
        url = address(host, chosen)
        argv = [program, "--logdir", folder, "--host", host, "--port", str(chosen)]
        argv += ["--reload_interval", f"{LOOK_S:g}", "--reload_multifile", "true"]
        log = os.path.join(scratch, "tensorboard.log")
        environ = {"TF_CPP_MIN_LOG_LEVEL": "3", **whole_environment()}
        with Program(Command(argv, environ, scratch, log, f"{url}/data/environment", [scratch])) as running:
            if as_json:
                ids = [one.run.id for one in board.runs]
                show_record({"id": url, "url": url, "logdir": folder, "runs": ids}, as_json=True)
            else:
                click.echo(f"TensorBoard at {url} (Ctrl-C stops it)")
            wait(running, board.look)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _tell(board: Board) -> None:
    for one in board.runs:
        if not one.files and not one.points:
            more = "" if one.over else " yet; it is looked for again"
            click.echo(f"headrace: {one.run.id} has neither event files nor metrics{more}", err=True)
