"""``headrace serve``."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import click

from headrace.cli.output import json_option, show_record
from headrace.cli.serve_cluster import ClusterWords, cluster_options, on_cluster
from headrace.cli.serve_words import ServeWords, serve_options

if TYPE_CHECKING:
    from headrace.serving import Supervisor

_INTERRUPTED_S = 1.2
"""Ctrl-C ends any command within two seconds."""


@click.command()
@click.argument("models", nargs=-1, metavar="NAME@ALIAS…")
@serve_options
@cluster_options
@json_option
@click.pass_context
def command(
    context: click.Context, /, models: tuple[str, ...], *, words: ServeWords, cluster: ClusterWords, as_json: bool
) -> None:
    """Serve models over HTTP until Ctrl-C: the versions that their aliases name, swapped when an alias moves.

    NAME@prod follows an alias; NAME@7 is one version, NAME the latest at the start. NAME@prod=90,NAME@next=10 gives
    shares of the requests; NAME@prod,NAME@next=shadow asks another version too, whose answers nobody gets.

    TensorFlow Serving's REST is at /v1/models/NAME:predict, the Open Inference Protocol at /v2/models/NAME/infer. On
    another address than loopback a token is wanted (Authorization: Bearer): it is printed, unless HEADRACE_SERVE_TOKEN
    chooses it. What --admin allows wants a token of its own everywhere: HEADRACE_SERVE_ADMIN_TOKEN likewise.

    With --on the same is done on a Ray cluster, by --replicas of them: placed, watched, and drained before they go.
    """
    if on_cluster(context, models, words, cluster, as_json=as_json):
        return
    if not models:
        raise click.UsageError("Missing argument 'NAME@ALIAS…'.", context)
    from headrace.serving import Ending, needed, serve

    needed()
    options, ending = words.options(models), Ending()
    grace_s, linger_s = words.patience()

    def end(number: int, _frame: object) -> None:
        if number == signal.SIGINT:
            ending.ask(_INTERRUPTED_S)
        else:
            ending.ask(grace_s, linger_s=linger_s)

    def begun(server: Supervisor) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)
        _greet(server, as_json=as_json)

    serve(options, ending, begun=begun, stopping=lambda: click.echo("stopping", err=True))


def _greet(server: Supervisor, *, as_json: bool) -> None:
    options = server.options
    told: dict[str, object] = {"id": server.url, "url": server.url, "grpc": server.grpc}
    told["models"] = [one.model for one in options.routes]
    if options.token is not None and not options.known:
        told["token"] = options.token
    if options.admin_token is not None and not options.admin_known:
        told["admin_token"] = options.admin_token
    if as_json:
        show_record(told, as_json=True)
        return
    told["models"] = ", ".join(one.model for one in options.routes)
    lines = [f"{name}: {value}" for name, value in told.items() if value and name != "id"]
    click.echo("\n".join((*lines, "(Ctrl-C stops it)")))
