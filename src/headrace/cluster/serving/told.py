"""What replicas, who keeps them and who asks tell each other. Plain values, pickled by Ray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["starting", "ready", "unready", "leaving", "ended"]
"""Of a server: it has never been ready; it answers; it has, and does not now; it was told to end; it has ended."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a server counts: `at`: when, in seconds of its node's clock; `pending`: requests that have no answer yet;
    `answered`, `failed`: requests so far; `spent`: seconds from their arrival to their answer, added up.
    """

    at: float
    pending: float = 0.0
    answered: float = 0.0
    failed: float = 0.0
    spent: float = 0.0


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica as it is. `generation`: of the service's when it was started; `node`: its name; `silent`: seconds since
    its server has answered anything, or was started; `why`: how it ended, or why it is not ready; `lines`: that it
    wrote from the number asked for; `next`: which to ask for then.
    """

    generation: int
    node: str
    node_id: str
    url: str
    grpc: str | None
    pid: int
    phase: Phase
    silent: float
    why: str
    figures: Figures | None
    lines: tuple[str, ...] = ()
    next: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaTold:
    """A replica as people and load balancers see it. `state`: ``waiting`` (for room), ``starting``, ``ready``,
    ``unready``, ``leaving``; only those that are ready are to be asked. `pid`: of ``headrace serve`` on its node;
    `requests`: a second; `under_way`: requests that wait or are being run; `why`: of what it is not ready.
    """

    name: str
    state: str
    url: str | None
    grpc: str | None
    node: str | None
    pid: int | None
    requests: float
    under_way: float
    why: str


@dataclass(frozen=True, slots=True)
class ServiceTold:
    """A service. `scale`: as it was asked for; `wanted`: how many replicas it is to have now; `keeper`: who wrote this;
    `time`: when, RFC 3339.
    """

    name: str
    models: tuple[str, ...]
    scale: str
    wanted: int
    replicas: tuple[ReplicaTold, ...]
    keeper: str = ""
    time: str = ""

    @property
    def ready(self) -> tuple[ReplicaTold, ...]:
        """Those that are to be asked."""
        return tuple(one for one in self.replicas if one.state == "ready")


@dataclass(frozen=True, slots=True)
class HeardService:
    """What there is to pass on to who follows: lines; `next`: what to ask for then; `over`: it has ended."""

    next: int
    lines: tuple[str, ...] = ()
    over: bool = False
