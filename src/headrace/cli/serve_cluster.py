"""``headrace serve --on CLUSTER``, and what is asked of services there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from headrace.base.errors import InputError
from headrace.cli.output import Column, show_record, show_table

if TYPE_CHECKING:
    from headrace.cluster.serving import ServiceSpec, ServiceTold

_Function = TypeVar("_Function", bound=Callable[..., Any])
_PASSED: Final = ("interval", "window", "max_batch", "queue", "deadline", "max_body", "admin")
"""Options that each server gets as they were given."""
_OPTIONS = (
    click.option("--on", metavar="CLUSTER", help="Serve on a Ray cluster: ray://HOST:10001."),
    click.option("--replicas", metavar="N[..M]", help="So many servers there, or as many as requests ask for.  "
                 "[default: 1]"),
    click.option("--name", metavar="SERVICE", help="Name of the service there.  [default: the first model's]"),
    click.option("--cpus", type=click.FloatRange(0), help="CPUs that each server has of its node.  [default: 1]"),
    click.option("--gpus", type=click.FloatRange(0), help="GPUs likewise.  [default: 0]"),
    click.option("--target", type=click.FloatRange(0, min_open=True), metavar="N",
                 help="Requests under way that are aimed at for each server.  [default: 16]"),
    click.option("--down-after", metavar="TIME", help="How long fewer servers must have been enough.  [default: 60s]"),
    click.option("--send", multiple=True, metavar="PATTERN", help="Variables that the servers get to reach the "
                 "stores.  [default: AWS_*, AZURE_STORAGE_*]"),
    click.option("--detach", "-d", is_flag=True, help="Go on without this command."),
    click.option("--list", "listed", is_flag=True, help="List the services and their servers: with --on those of a "
                 "cluster, else what the home tells."),
    click.option("--stop", metavar="SERVICE", help="Drain and end a service of the cluster."),
    click.option("--restart", metavar="SERVICE", help="Replace its servers one by one; no request fails."),
    click.option("--upstreams", metavar="FILE", help="Keep a file for nginx up to date with the servers of --name."),
    click.option("--reload", metavar="COMMAND", help="Run after each change of that file: 'nginx -s reload'."),
)  # fmt: skip
COLUMNS: Final = (
    Column("service", "SERVICE"), Column("id", "SERVER"), Column("state", "STATE"), Column("url", "URL"),
    Column("node", "NODE"), Column("requests", "REQUESTS/S", "rate"), Column("under_way", "UNDER WAY", "rate"),
    Column("why", "WHY"),
)  # fmt: skip


def cluster_options(function: _Function) -> _Function:
    """The options of ``serve`` that are a cluster's."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def on_cluster(context: click.Context, given: dict[str, Any]) -> bool:
    """Do what the options ask of a cluster; False: they ask nothing of it."""
    asked = {name: value for name, value in given.items() if value not in (None, False, ())}
    doing = [name for name in ("listed", "stop", "restart", "upstreams") if name in asked]
    if len(doing) > 1 or (doing and context.params["models"]):
        raise InputError("--list, --stop, --restart, --upstreams and models exclude each other", hint="one of them")
    if not asked:
        return False
    as_json: bool = context.params["as_json"]
    if "listed" in asked:
        _list(asked.get("on"), as_json=as_json)
    elif "upstreams" in asked:
        _keep_upstreams(asked.get("name"), asked["upstreams"], asked.get("reload"))
    elif "on" not in asked:
        option = f"--{next(iter(asked)).replace('_', '-')}"
        raise InputError("names no cluster", path=option, hint="--on ray://HOST:10001")
    elif "stop" in asked or "restart" in asked:
        _order(asked["on"], asked, as_json=as_json)
    else:
        _serve(context, asked)
    return True


def _serve(context: click.Context, asked: dict[str, Any]) -> None:
    from headrace.base.settings import Settings
    from headrace.cli.target import open_namespace
    from headrace.cluster.serving import SEND, FollowingService, serve
    from headrace.namespace import Home

    as_json: bool = context.params["as_json"]
    settings = Settings.load()
    spec = _spec(context, asked)
    following = None
    known, stopped = _known_token(), threading.Event()

    def begun(token: str) -> None:
        if following is not None:
            stack.enter_context(_signals_set(stopped))
        told: dict[str, Any] = {"id": spec.name, "models": list(spec.models), "replicas": str(spec.scale)}
        told |= {} if known else {"token": token}
        if as_json:
            show_record(told, as_json=True)
            return
        told["models"] = ", ".join(spec.models)
        click.echo("\n".join(f"{'service' if key == 'id' else key}: {value}" for key, value in told.items()))
        if following is not None:
            click.echo("(Ctrl-C stops it)")

    with ExitStack() as stack:
        if "detach" not in asked:
            following = FollowingService(lambda line: click.echo(line, err=True), stopped.is_set)
        serve(
            asked["on"], spec, settings, Home.of(open_namespace(), settings), send=asked.get("send", SEND),
            begun=begun, following=following,
        )  # fmt: skip


def _spec(context: click.Context, asked: dict[str, Any]) -> ServiceSpec:
    """What is asked for. Raises InputError."""
    from headrace.base.units import parse_seconds
    from headrace.cluster.serving import Scale, ServiceSpec
    from headrace.serving import Route
    from headrace.tracking import as_name

    given = context.params
    if given["host"] is not None:
        raise InputError("each server listens on its node's address", path="--host", hint="leave it out")
    routes = [Route.parse(one) for one in given["models"]]
    if not routes:
        raise InputError("no model is named", hint="like digits@prod")
    scale = Scale.parse(
        asked.get("replicas", "1"), target=asked.get("target", 16.0),
        down_after=parse_seconds(asked.get("down_after", "60s"), name="--down-after"),
    )  # fmt: skip
    return ServiceSpec(
        asked.get("name") or as_name(routes[0].model), tuple(route.text for route in routes), scale,
        _passed(context), cpus=given["cpus"] if given["cpus"] is not None else 1.0, gpus=given["gpus"] or 0.0,
        port=given["port"], grpc_port=given["grpc_port"], processes=given["processes"], threads=given["threads"],
        grace=parse_seconds(given["grace"], name="--grace"),
        linger=parse_seconds(given["linger"] or "10s", name="--linger"),
    )  # fmt: skip


def _passed(context: click.Context) -> tuple[str, ...]:
    words: list[str] = []
    for option in context.command.params:
        if option.name in _PASSED and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            words.append(option.opts[0])
            words += [] if option.name == "admin" else [str(context.params[option.name])]
    return tuple(words)


def _known_token() -> bool:
    from headrace.base.settings import environment

    return bool(environment("HEADRACE_SERVE_TOKEN"))


def _list(on: str | None, *, as_json: bool) -> None:
    from headrace.base.settings import Settings
    from headrace.cli.target import open_namespace
    from headrace.cluster.serving import all_listings, services
    from headrace.namespace import Home

    found = services(on) if on is not None else all_listings(Home.of(open_namespace(), Settings.load()))
    show_table(_rows(found), COLUMNS, as_json=as_json, empty="no service")


def _rows(found: Sequence[ServiceTold]) -> list[dict[str, Any]]:
    return [
        {
            "id": one.name, "service": told.name, "state": one.state, "url": one.url, "grpc": one.grpc,
            "node": one.node, "pid": one.pid, "requests": one.requests, "under_way": one.under_way,
            "why": one.why or None, "models": list(told.models), "replicas": told.scale, "wanted": told.wanted,
        }
        for told in found
        for one in told.replicas
    ]  # fmt: skip


def _order(on: str, asked: dict[str, Any], *, as_json: bool) -> None:
    from headrace.cluster.serving import restart, stop

    if "stop" in asked:
        stop(on, asked["stop"])
        show_record({"id": asked["stop"], "state": "stopped"}, as_json=as_json)
    else:
        restart(on, asked["restart"])
        show_record({"id": asked["restart"], "state": "restarting"}, as_json=as_json)


def _keep_upstreams(name: str | None, path: str, reload: str | None) -> None:
    from headrace.base.settings import Settings
    from headrace.cli.target import open_namespace
    from headrace.cluster.serving import Upstreams
    from headrace.namespace import Home

    if name is None:
        raise InputError("names no service", path="--upstreams", hint="--name SERVICE")
    upstreams = Upstreams(Home.of(open_namespace(), Settings.load()), name, path, reload=reload)
    stopped = threading.Event()
    with _signals_set(stopped):
        for names in upstreams.follow(stopped):
            click.echo(f"{path}: {', '.join(names) or 'nobody is ready'}", err=True)


@contextmanager
def _signals_set(stopped: threading.Event) -> Generator[None]:
    """SIGINT and SIGTERM set this, and end nothing by themselves: all is drained first."""
    before = {
        number: signal.signal(number, lambda _number, _frame: stopped.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
