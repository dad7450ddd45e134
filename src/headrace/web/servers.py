"""Which servers of models (``headrace serve``) answer on this node, and with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.serving.live import Live, LiveModel


@dataclass(frozen=True, slots=True)
class ServerHere:
    """One server. `grpc`: ``host:port``; `pid`: of the process that was started; `processes`: how many share the port,
    of which `answering` have told what they serve; `ready`: all of it is; `started`: RFC 3339; `home`: of its models;
    `ours`: whether that is the page's.
    """

    url: str
    grpc: str | None
    pid: int
    processes: int
    answering: int
    ready: bool
    started: str
    home: str
    ours: bool
    models: tuple[LiveModel, ...]


def server_here(live: Live, mark: str | None) -> ServerHere:
    """`mark`: of the page's home (`headrace.serving.live.mark_of`); None: it has none."""
    return ServerHere(
        live.url, live.grpc, live.pid, live.processes, live.answering, live.ready, live.started, live.home,
        live.mark == mark, live.models,
    )  # fmt: skip


def serving(servers: Sequence[ServerHere], name: str) -> tuple[ServerHere, ...]:
    """Those that serve this model of the page's home, each with this model alone."""
    found = (
        replace(one, models=tuple(model for model in one.models if model.name == name)) for one in servers if one.ours
    )
    return tuple(one for one in found if one.models)
