"""``headrace serve --on CLUSTER``, and what is asked of services there."""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from headrace.base.errors import InputError
from headrace.cli.gathered import gathered
from headrace.cli.output import Column, show_record, show_table

if TYPE_CHECKING:
    from headrace.cli.serve_words import ServeWords
    from headrace.cluster.serving import ServiceSpec, ServiceTold

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


@dataclass(frozen=True, slots=True)
class ClusterWords:
    """The options of a cluster as they were given; None: they were not."""

    on: str | None
    replicas: str | None
    name: str | None
    cpus: float | None
    gpus: float | None
    target: float | None
    down_after: str | None
    send: tuple[str, ...]
    detach: bool
    listed: bool
    stop: str | None
    restart: str | None
    upstreams: str | None
    reload: str | None

    @property
    def asked(self) -> list[str]:
        """Names of those that were given."""
        return [one.name for one in fields(self) if getattr(self, one.name) not in (None, False, ())]

    def spec(self, models: tuple[str, ...], words: ServeWords, passed: tuple[str, ...]) -> ServiceSpec:
        """The service that is asked for. `passed`: options that each server gets. Raises InputError."""
        from headrace.base.units import parse_seconds
        from headrace.cluster.serving import Scale, ServiceSpec
        from headrace.serving import Route
        from headrace.tracking import as_name

        if words.host is not None:
            raise InputError("each server listens on its node's address", path="--host", hint="leave it out")
        routes = [Route.parse(one) for one in models]
        if not routes:
            raise InputError("no model is named", hint="like digits@prod")
        down_after = "60s" if self.down_after is None else self.down_after
        scale = Scale.parse(
            "1" if self.replicas is None else self.replicas, target=self.target or 16.0,
            down_after=parse_seconds(down_after, name="--down-after"),
        )  # fmt: skip
        grace, linger = words.patience("10s")
        return ServiceSpec(
            self.name or as_name(routes[0].model), tuple(route.text for route in routes), scale, passed,
            cpus=1.0 if self.cpus is None else self.cpus, gpus=self.gpus or 0.0, port=words.port,
            grpc_port=words.grpc_port, processes=words.processes, threads=words.threads, grace=grace, linger=linger,
        )  # fmt: skip


cluster_options = gathered(ClusterWords, _OPTIONS, "cluster")
"""A decorator: the options of ``serve`` that are a cluster's; the command receives them as ``cluster``."""


def on_cluster(
    context: click.Context, models: tuple[str, ...], words: ServeWords, cluster: ClusterWords, *, as_json: bool
) -> bool:
    """Do what the options ask of a cluster; False: they ask nothing of it."""
    asked = cluster.asked
    doing = [name for name in ("listed", "stop", "restart", "upstreams") if name in asked]
    if len(doing) > 1 or (doing and models):
        raise InputError("--list, --stop, --restart, --upstreams and models exclude each other", hint="one of them")
    if not asked:
        return False
    if cluster.listed:
        _list(cluster.on, as_json=as_json)
    elif cluster.upstreams is not None:
        _keep_upstreams(cluster.name, cluster.upstreams, cluster.reload)
    elif cluster.on is None:
        first = next(name for name in context.params if name in asked)
        raise InputError("names no cluster", path=f"--{first.replace('_', '-')}", hint="--on ray://HOST:10001")
    elif cluster.stop is not None or cluster.restart is not None:
        _order(cluster.on, cluster.stop, cluster.restart, as_json=as_json)
    else:
        _serve(cluster.on, cluster.spec(models, words, _passed(context)), cluster, as_json=as_json)
    return True


def _serve(on: str, spec: ServiceSpec, cluster: ClusterWords, *, as_json: bool) -> None:
    from headrace.cluster.serving import SEND, FollowingService, serve

    stopped = threading.Event()
    following = None
    if not cluster.detach:
        following = FollowingService(lambda line: click.echo(line, err=True), stopped.is_set)
    with ExitStack() as stack:

        def begun(made: str | None) -> None:
            if following is not None:
                stack.enter_context(_signals_set(stopped))
            told: dict[str, Any] = {"id": spec.name, "models": list(spec.models), "replicas": str(spec.scale)}
            told |= {} if made is None else {"token": made}
            if as_json:
                show_record(told, as_json=True)
                return
            told["models"] = ", ".join(spec.models)
            click.echo("\n".join(f"{'service' if key == 'id' else key}: {value}" for key, value in told.items()))
            if following is not None:
                click.echo("(Ctrl-C stops it)")

        serve(on, spec, send=cluster.send or SEND, begun=begun, following=following)


def _passed(context: click.Context) -> tuple[str, ...]:
    words: list[str] = []
    for option in context.command.params:
        if option.name in _PASSED and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE:
            words.append(option.opts[0])
            words += [] if option.name == "admin" else [str(context.params[option.name])]
    return tuple(words)


def _list(on: str | None, *, as_json: bool) -> None:
    from headrace.cluster.serving import all_listings, services

    found = services(on) if on is not None else all_listings()
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


def _order(on: str, stopped: str | None, restarted: str | None, *, as_json: bool) -> None:
    from headrace.cluster.serving import restart, stop

    if stopped is not None:
        stop(on, stopped)
        show_record({"id": stopped, "state": "stopped"}, as_json=as_json)
    elif restarted is not None:
        restart(on, restarted)
        show_record({"id": restarted, "state": "restarting"}, as_json=as_json)


def _keep_upstreams(name: str | None, path: str, reload: str | None) -> None:
    from headrace.cluster.serving import Upstreams
    from headrace.namespace import Home

    if name is None:
        raise InputError("names no service", path="--upstreams", hint="--name SERVICE")
    upstreams = Upstreams(Home.of(), name, path, reload=reload)
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
