"""``headrace serve``."""

from __future__ import annotations

import signal
import threading
from typing import Any

import click

from headrace.cli.output import json_option
from headrace.cli.serve_cluster import cluster_options, on_cluster

_INTERRUPTED_S = 1.2
"""Ctrl-C ends any command within two seconds."""


@click.command()
@click.argument("models", nargs=-1, metavar="NAME@ALIAS…")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1; on a cluster the node's]")
@click.option("--port", default=0, type=click.IntRange(0, 65535), help="Port to listen on.  [default: a free one]")
@click.option("--grpc-port", type=click.IntRange(0, 65535), help="Answer gRPC too, on this port; 0: a free one.")
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1), help="Processes that share it.")
@click.option("--threads", default=0, type=click.IntRange(0),
              help="Threads of a model in each process.  [default: the processors, divided]")  # fmt: skip
@click.option("--interval", default="5s", show_default=True, help="How often a model's aliases are looked at.")
@click.option("--window", default="0s", show_default=True, help="How long a batch waits for more requests.")
@click.option("--max-batch", default=64, show_default=True, type=click.IntRange(1), help="Rows of a batch.")
@click.option("--queue", default=512, show_default=True, type=click.IntRange(1), help="Requests that may wait.")
@click.option("--deadline", default="30s", show_default=True, help="After which a request gets no answer; 0: never.")
@click.option("--max-body", default="64MB", show_default=True, help="Largest request.")
@click.option("--admin", is_flag=True, help="Let clients load and unload models.")
@click.option("--grace", default="10s", show_default=True, help="After SIGTERM, time for requests under way.")
@click.option("--linger", help="After SIGTERM, time to go on while readiness says no.  [default: 0s; on a cluster 10s]")
@cluster_options
@json_option
@click.pass_context
def command(
    context: click.Context, /, models: tuple[str, ...], host: str | None, port: int, *, grpc_port: int | None,
    processes: int, threads: int, interval: str, window: str, max_batch: int, queue: int, deadline: str, max_body: str,
    admin: bool, grace: str, linger: str | None, as_json: bool, **cluster: Any,
) -> None:  # fmt: skip
    """Serve models over HTTP until Ctrl-C: the versions that their aliases name, swapped when an alias moves.

    NAME@prod follows an alias; NAME@7 is one version, NAME the latest at the start. NAME@prod=90,NAME@next=10 gives
    shares of the requests; NAME@prod,NAME@next=shadow asks another version too, whose answers nobody gets.

    TensorFlow Serving's REST is at /v1/models/NAME:predict, the Open Inference Protocol at /v2/models/NAME/infer. On
    another address than loopback a token is wanted (Authorization: Bearer): it is printed, unless HEADRACE_SERVE_TOKEN
    chooses it. What --admin allows wants a token of its own everywhere: HEADRACE_SERVE_ADMIN_TOKEN likewise.

    With --on the same is done on a Ray cluster, by --replicas of them: placed, watched, and drained before they go.
    """
    if on_cluster(context, cluster):
        return
    if not models:
        raise click.UsageError("Missing argument 'NAME@ALIAS…'.", context)
    from headrace.base.settings import environment
    from headrace.base.units import parse_bytes, parse_seconds
    from headrace.serving.extra import needed

    needed()
    from headrace.serving import Options, Route, Rules, Supervisor

    token, admin_token = environment("HEADRACE_SERVE_TOKEN"), environment("HEADRACE_SERVE_ADMIN_TOKEN")
    options = Options(
        tuple(Route.parse(one) for one in models), host or "127.0.0.1", port, grpc_port,
        parse_seconds(interval, name="--interval"),
        Rules(parse_seconds(window, name="--window"), max_batch, queue),
        deadline=parse_seconds(deadline, name="--deadline"), body=parse_bytes(max_body, name="--max-body"),
        processes=processes, threads=threads, token=token, known=token is not None, admin=admin,
        admin_token=admin_token, admin_known=admin_token is not None,
    )  # fmt: skip
    grace_s, linger_s = parse_seconds(grace, name="--grace"), parse_seconds(linger or "0s", name="--linger")
    ended, asked = threading.Event(), [grace_s]

    def end(number: int, frame: object) -> None:  # noqa: ARG001
        asked[0] = _INTERRUPTED_S if number == signal.SIGINT else grace_s
        ended.set()

    with Supervisor(options) as server:
        for ending in (signal.SIGINT, signal.SIGTERM):
            signal.signal(ending, end)
        _greet(server.url, server.grpc, options, as_json=as_json)
        while not ended.wait(1.0):  # a signal that comes just before a wait is heard when it is over
            pass
        click.echo("stopping", err=True)
        server.leave()
        if asked[0] == grace_s:
            ended.clear()
            ended.wait(linger_s)
        server.drain(asked[0])


def _greet(url: str, grpc: str | None, options: object, *, as_json: bool) -> None:
    from headrace.cli.output import show_record
    from headrace.serving import Options

    assert isinstance(options, Options)
    told: dict[str, object] = {"id": url, "url": url, "grpc": grpc, "models": [one.model for one in options.routes]}
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
