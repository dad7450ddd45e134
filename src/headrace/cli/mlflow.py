"""``headrace mlflow``, and ``headrace mlflow send``."""

from __future__ import annotations

import click

from headrace.cli.output import Column, json_option, show_record, show_table

_COLUMNS = (
    Column("id", "RUN"),
    Column("mlflow", "IN MLFLOW"),
    Column("points", "POINTS SENT", "count"),
    Column("url", "URL"),
)


class _ServeOrVerb(click.Group):
    """A group whose default command is ``serve``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if known else ["serve", *args])


@click.group(cls=_ServeOrVerb)
def command() -> None:
    """Start MLflow's tracking server with the home as artifact root, or send runs to one.

    Runs are mirrored while they run wherever MLFLOW_TRACKING_URI is set.
    """


@command.command()
@click.option("--backend", help="File for SQLite, or postgresql://…  [default: run.mlflow_backend]")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=0, help="Port to listen on.  [default: 5000, or a free one]",
              type=click.IntRange(0, 65535))  # fmt: skip
@click.option("--workers", default=1, show_default=True, help="Processes that answer.", type=click.IntRange(1))
@json_option
def serve(backend: str | None, *, host: str, port: int, workers: int, as_json: bool) -> None:
    """Start MLflow's tracking server, until Ctrl-C.

    Clients need its URL only: artifacts go through it into the home, with the home's credentials; outputs and
    checkpoints of mirrored runs are among them, read-only. It asks for no password, so it listens on loopback unless
    told. A database's password is safest in HEADRACE_RUN_MLFLOW_BACKEND.
    """
    from headrace.cli.serving import stop_on_signals, wait
    from headrace.tracking import serving_mlflow

    stop_on_signals()
    with serving_mlflow(backend, host=host, port=port, workers=workers) as shown:
        if shown.hidden:
            click.echo(f"MLflow does not show outputs of runs: {shown.hidden}; see {shown.log}", err=True)
        if as_json:
            told = {"id": shown.url, "url": shown.url, "backend": shown.backend, "artifacts": shown.artifacts}
            show_record(told, as_json=True)
        else:
            text = f"MLflow at {shown.url} (Ctrl-C stops it); runs in {shown.backend}, artifacts in {shown.artifacts}"
            click.echo(text, err=True)
            click.echo(f"export MLFLOW_TRACKING_URI={shown.url}")
        wait(shown.program)


@command.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@json_option
def send(runs: tuple[str, ...], *, as_json: bool) -> None:
    """Send each RUN from the bucket to MLFLOW_TRACKING_URI; what is there already is not sent again."""
    from headrace.namespace import Home
    from headrace.tracking import MlflowServer, Runs
    from headrace.tracking import send as send_run

    server, home = MlflowServer.needed(), Runs(Home.of())
    rows: list[dict[str, object]] = []
    for text in runs:
        run = home.find(text)
        sent = send_run(run, server)
        rows.append({"id": run.id, "mlflow": sent.id, "points": sent.points, "url": sent.url})
    show_table(rows, _COLUMNS, as_json=as_json)
