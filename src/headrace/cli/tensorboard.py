"""``headrace tensorboard RUN…``."""

from __future__ import annotations

import click

from headrace.cli.output import json_option, show_record


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
    from headrace.cli.serving import stop_on_signals, wait
    from headrace.namespace import Home
    from headrace.tracking import Runs, find_program, tensorboard

    def tell(text: str) -> None:
        click.echo(f"headrace: {text}", err=True)

    stop_on_signals()
    find_program("tensorboard", "tensorboard")
    found = list(map(Runs(Home.of()).find, runs))
    with tensorboard(found, host=host, port=port, folder=kept, tell=tell) as shown:
        if as_json:
            ids = [one.run.id for one in shown.board.runs]
            show_record({"id": shown.url, "url": shown.url, "logdir": shown.folder, "runs": ids}, as_json=True)
        else:
            click.echo(f"TensorBoard at {shown.url} (Ctrl-C stops it)")
        wait(shown.program, shown.board.look)
