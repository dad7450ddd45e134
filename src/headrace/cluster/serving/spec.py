"""What a service on a cluster is: which models, by how many replicas, each with what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headrace.base.errors import InputError
from headrace.cluster.serving.scaling import Scale

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_OURS: Final = ("--host", "--port", "--grpc-port", "--threads", "--processes", "--grace", "--linger", "--json")


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """Frozen; pickled by Ray. Times in seconds.

    Args:
        name: of the service: the only one on the cluster, and in the home.
        models: as ``headrace serve`` takes them.
        scale: how many replicas.
        arguments: more of ``headrace serve``'s options; those below have fields of their own.
        cpus: that each replica has of its node.
        gpus: likewise.
        port: where each listens; 0: a free one; another: a node has one replica at most.
        grpc_port: likewise for gRPC; None: no gRPC.
        processes: of each replica.
        threads: of a model in each process; 0: the replica's CPUs, divided.
        grace: for requests under way after a replica was told to end.
        linger: how long before that it goes on answering while it is not listed any more, so that clients and load
            balancers notice.

    Raises:
        InputError.
    """

    name: str
    models: tuple[str, ...]
    scale: Scale
    arguments: tuple[str, ...] = ()
    cpus: float = 1.0
    gpus: float = 0.0
    port: int = 0
    grpc_port: int | None = None
    processes: int = 1
    threads: int = 0
    grace: float = 10.0
    linger: float = 10.0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            hint = "small letters, digits, '.', '_' and '-', at most 40"
            raise InputError(f"{self.name!r} is no name of a service", hint=hint)
        if not self.models:
            raise InputError("no model is named", hint="like digits@prod")
        if self.cpus < 0 or self.gpus < 0 or self.cpus + self.gpus == 0:
            raise InputError("a replica needs CPUs or GPUs", hint="--cpus 1")
        if taken := [one for one in self.arguments if one.partition("=")[0] in _OURS]:
            raise InputError(f"{taken[0]} is a field of its own", hint="see ServiceSpec")

    @property
    def pinned(self) -> bool:
        """Whether a node can have one replica only."""
        return bool(self.port or self.grpc_port)

    def words(self, host: str, port: int, grpc_port: int | None) -> list[str]:
        """Of the command, behind ``headrace``."""
        threads = self.threads or max(1, int(self.cpus) // self.processes)
        words = ["serve", *self.models, *self.arguments, "--host", host, "--port", str(port)]
        words += ["--processes", str(self.processes), "--threads", str(threads)]
        words += ["--grace", f"{self.grace}s", "--linger", f"{self.linger}s"]
        return words if grpc_port is None else [*words, "--grpc-port", str(grpc_port)]
