"""``headrace mlflow``, and ``headrace mlflow send``."""

from __future__ import annotations

import os

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
    from headrace.base.settings import Settings, whole_environment
    from headrace.cli.serving import stop_on_signals, wait
    from headrace.cli.target import open_namespace
    from headrace.namespace.home import Home
    from headrace.tracking.mlflow_server import (
        Listening,
        artifacts_of,
        backend_uri,
        mlflow_server,
        shown,
        why_outputs_are_hidden,
    )
    from headrace.tracking.program import Program, address, choose_port

    stop_on_signals()
    settings = Settings.load()
    home = Home.of(open_namespace(), settings)
    state = os.path.join(os.path.dirname(os.path.abspath(settings.run.state)), "mlflow")
    chosen = backend if backend is not None else settings.run.mlflow_backend
    where = Listening(host, choose_port(host, port, 5000))
    made = mlflow_server(home, chosen, state, whole_environment(), where, workers)
    with Program(made) as program:
        url, kept = address(where.host, where.port), shown(backend_uri(chosen, state))
        if why := why_outputs_are_hidden(url):
            click.echo(f"MLflow does not show outputs of runs: {why}; see {made.log}", err=True)
        if as_json:
            show_record({"id": url, "url": url, "backend": kept, "artifacts": artifacts_of(home)}, as_json=True)
        else:
            text = f"MLflow at {url} (Ctrl-C stops it); runs in {kept}, artifacts in {artifacts_of(home)}"
            click.echo(text, err=True)
            click.echo(f"export MLFLOW_TRACKING_URI={url}")
        wait(program)


@command.command()
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@json_option
def send(runs: tuple[str, ...], *, as_json: bool) -> None:
    """Send each RUN from the bucket to MLFLOW_TRACKING_URI; what is there already is not sent again."""
    from headrace.base.errors import SettingError
    from headrace.cli.run_access import open_runs
    from headrace.tracking.mlflow_client import MlflowServer
    from headrace.tracking.mlflow_mirror import MlflowMirror, Source

    server = MlflowServer.of_environment()
    if server is None:
        raise SettingError("MLFLOW_TRACKING_URI is not set", hint="headrace mlflow starts a server, and says its URL")
    home = open_runs()
    rows: list[dict[str, object]] = []
    for text in runs:
        run = home.find(text)
        view = run.look()
        mirror = MlflowMirror(server, Source(view.record, run.store, run.prefix, run.url), everywhere=True)
        mirror.follow()
        if view.over:
            mirror.finish(view.ended)
        rows.append({"id": run.id, "mlflow": mirror.id, "points": mirror.points, "url": mirror.url})
    show_table(rows, _COLUMNS, as_json=as_json)
